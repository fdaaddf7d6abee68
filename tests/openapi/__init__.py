"""Servers made from OpenAPI documents and FastAPI apps."""
