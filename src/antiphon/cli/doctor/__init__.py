"""`antiphon doctor`: checks any MCP server with `antiphon.doctor`, and prints the results."""
