"""MCP Apps: pages of a server that a host shows."""
