"""Runs that wait in their process: tools, prompts and resources with `replay=False`."""
