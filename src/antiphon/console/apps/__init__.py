"""The host side of MCP Apps: the origin that Apps run on, and what an App may ask of its server.

https://github.com/modelcontextprotocol/ext-apps/blob/main/specification/2026-01-26/apps.mdx
"""
