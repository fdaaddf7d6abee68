"""Serves servers that were written for the official SDK or for FastMCP, unchanged.

Each generation of the SDK has one module, and it is imported only if a server of that generation is adopted.
"""
