"""`antiphon doctor`: check any MCP server, report the results, and explain why an address is not a server.

The checks only read: they call no tool and change nothing on the server.
"""
