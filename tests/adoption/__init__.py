"""Servers that were written for other libraries, adopted."""
