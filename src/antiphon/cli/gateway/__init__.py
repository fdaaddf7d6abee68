"""`antiphon gateway`: serves other MCP servers at one endpoint."""
