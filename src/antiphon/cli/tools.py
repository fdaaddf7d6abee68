"""`antiphon tools`: lists the tools of a server as function signatures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from antiphon.cli import render
from antiphon.cli.call.arguments import allowed_types
from antiphon.cli.targets import Target, run_async
from antiphon.model.catalog import ToolDefinition

__all__ = ["list_tools", "signature"]

MAX_SHOWN_ARGUMENTS = 100
"""How many arguments a signature shows."""


def list_tools(target: Target, *, as_json: bool) -> None:
    """Print the tools of a server. Raises `CommandError`."""
    tools = run_async(_fetch_tools(target), target)
    if as_json:
        print(render.pretty(tools))
    elif not tools:
        print("This server has no tools.")
    else:
        render.print_signatures(
            [(signature(tool), render.first_line(tool.description or tool.title)) for tool in tools]
        )


def signature(tool: ToolDefinition) -> str:
    """Return a tool as a function signature, required arguments first.

    For example: `greet(name: string, times: integer = 1)`.
    """
    schema = tool.input_schema
    properties, listed = schema.get("properties"), schema.get("required")
    if not isinstance(properties, Mapping):
        properties = {}
    required = {name for name in listed if isinstance(name, str)} if isinstance(listed, list) else set()
    ordered = sorted(properties, key=lambda name: name not in required)
    shown = ordered[:MAX_SHOWN_ARGUMENTS]
    arguments = [_argument(name, properties[name], schema, required) for name in shown]
    if len(ordered) > len(shown):
        arguments.append("…")
    return f"{tool.name}({', '.join(arguments)})"


def _argument(name: str, prop: Any, schema: Mapping[str, Any], required: set[str]) -> str:
    types = sorted(allowed_types(prop, schema), key=lambda kind: (kind == "null", kind))
    declared = f"{name}: {' | '.join(types) or 'any'}"
    if name in required:
        return declared
    default = prop.get("default") if isinstance(prop, Mapping) else None
    return f"{declared} = {render.compact(default)}"


async def _fetch_tools(target: Target) -> Sequence[ToolDefinition]:
    async with target.client() as client:
        # A server without tools need not implement tools/list.
        return await client.tools() if client.offers.tools else []
