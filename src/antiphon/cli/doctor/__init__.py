"""`antiphon doctor`: examines a server as its clients will, and reports what it found.

It works on any MCP server, so it must not expect one of ours.
"""
