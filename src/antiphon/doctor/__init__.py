"""Checks any MCP server as its clients will use it, and explains why an address is not a server.

The checks only read: they call no tool and change nothing on the server. `antiphon doctor` prints the
results, and the console shows them.
"""
