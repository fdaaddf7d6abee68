"""The client that gets its own tokens."""
