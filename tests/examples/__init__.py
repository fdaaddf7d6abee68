"""The expense service of `examples/`, and the same service with FastMCP."""
