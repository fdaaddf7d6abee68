"""Reads the segments of a call or a task: in order, each once, across broken connections.

It merges the segments that arrive by different ways, in bounded memory. It must not know which protocol
version sent them.
"""
