"""`antiphon new`: creates a small project with a server, its test and a `pyproject.toml`."""
