"""Bytes and dicts to values and back. Pure: no clock, no loop, no randomness, no environment."""
