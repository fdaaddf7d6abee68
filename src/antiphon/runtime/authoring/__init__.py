"""Turns an author's functions into tools, resources and prompts.

This happens once, when a function is registered: its signature becomes a schema, its docstring a
description, its return type an output schema. Nothing here must know a running call, a task or a store.
"""
