"""Turns the operations of an OpenAPI document into tools and resources that send requests to the API.

Owns everything between a call and the HTTP request that it becomes. It must not know transports of MCP or
protocol versions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from antiphon.openapi.options import FastAPIOptions, OpenAPIOptions, Operation, OperationFilter

__all__ = ["FastAPIOptions", "OpenAPIOptions", "Operation", "OperationFilter"]


def __getattr__(name: str) -> Any:
    """Import the options when they are first used: every server loads this package, and few use it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from antiphon.openapi import options

    return getattr(options, name)
