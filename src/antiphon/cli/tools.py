"""`antiphon tools`: what a server offers, each tool as if it were a function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from antiphon.cli import render
from antiphon.cli.call.arguments import types_of
from antiphon.cli.targets import Target, run
from antiphon.model.catalog import ToolDefinition

__all__ = ["list_tools", "signature"]


def list_tools(target: Target, *, as_json: bool) -> None:
    """Print the tools; raises `CommandError`."""
    tools = run(_tools(target))
    if as_json:
        print(render.pretty(tools))
    elif not tools:
        print("This server has no tools.")
    else:
        render.listing([(signature(tool), _first_line(tool)) for tool in tools])


def signature(tool: ToolDefinition) -> str:
    """A tool as a function, what must be given first: `greet(name: string, times: integer = 1)`."""
    schema = tool.input_schema
    properties: Mapping[str, Any] = schema.get("properties") or {}
    required = set(schema.get("required", ()))
    ordered = sorted(properties, key=lambda name: name not in required)
    return (
        f"{tool.name}({', '.join(_argument(name, properties[name], schema, required) for name in ordered)})"
    )


def _argument(name: str, prop: Any, schema: Mapping[str, Any], required: set[str]) -> str:
    allowed = " | ".join(sorted(types_of(prop, schema), key=lambda kind: (kind == "null", kind))) or "any"
    if name in required:
        return f"{name}: {allowed}"
    default = prop.get("default") if isinstance(prop, Mapping) else None
    return f"{name}: {allowed} = {render.compact(default)}"


def _first_line(tool: ToolDefinition) -> str:
    lines = (tool.description or tool.title or "").strip().splitlines()
    return lines[0] if lines else ""


async def _tools(target: Target) -> Sequence[ToolDefinition]:
    async with target.client() as client:
        # A server without tools need not know the method.
        return await client.tools() if "tools" in client.capabilities else []
