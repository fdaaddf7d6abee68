"""Asks a server for its lists and for values of arguments. The target's timeout bounds each function.

The other modules import this one only if the cache has no answer: it loads the client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from antiphon.cli.call.arguments import allowed_values
from antiphon.cli.render import first_line
from antiphon.cli.shell_completion.list_cache import Argument, ListKind, Offer
from antiphon.cli.targets import Target
from antiphon.client import Client
from antiphon.errors import MethodNotFound, RequestError
from antiphon.model.catalog import PromptDefinition, ToolDefinition

__all__ = ["fetch_list", "suggested_values"]

T = TypeVar("T")

MAX_ARGUMENTS = 100
MAX_VALUES = 100


def fetch_list(target: Target, kind: ListKind) -> list[Offer]:
    """Return a list of a server; empty if the server has none. Raises errors of the connection."""

    async def fetch(client: Client) -> list[Offer]:
        if ("resources" if kind == "templates" else kind) not in client.capabilities:
            return []
        try:
            return await _LISTS[kind](client)
        except MethodNotFound:  # templates are optional
            return []

    return _ask(target, fetch)


def suggested_values(
    target: Target, owner: str, argument: str, typed: str, others: Mapping[str, str]
) -> Sequence[str]:
    """Return the values that a server suggests, or none. Raises errors of the connection."""

    async def complete(client: Client) -> Sequence[str]:
        try:
            return (await client.complete(owner, argument, typed, others)).values
        except RequestError:  # the server does not complete this argument
            return ()

    return _ask(target, complete)


def _ask(target: Target, work: Callable[[Client], Awaitable[T]]) -> T:
    async def connect() -> T:
        async with asyncio.timeout(target.timeout), target.client() as client:
            return await work(client)

    return asyncio.run(connect())


async def _tools(client: Client) -> list[Offer]:
    return [_tool(each) for each in await client.tools()]


async def _prompts(client: Client) -> list[Offer]:
    return [_prompt(each) for each in await client.prompts()]


async def _resources(client: Client) -> list[Offer]:
    return [Offer(each.uri, each.title or each.name) for each in await client.resources()]


async def _templates(client: Client) -> list[Offer]:
    return [Offer(each.uri_template, each.title or each.name) for each in await client.templates()]


_LISTS: Mapping[ListKind, Callable[[Client], Awaitable[list[Offer]]]] = {
    "tools": _tools,
    "prompts": _prompts,
    "resources": _resources,
    "templates": _templates,
}


def _tool(tool: ToolDefinition) -> Offer:
    properties = tool.input_schema.get("properties")
    known: Mapping[str, Any] = properties if isinstance(properties, Mapping) else {}
    arguments = tuple(
        Argument(name, _description(schema), tuple(allowed_values(schema, tool.input_schema)[:MAX_VALUES]))
        for name, schema in list(known.items())[:MAX_ARGUMENTS]
    )
    return Offer(tool.name, first_line(tool.description or tool.title), arguments)


def _prompt(prompt: PromptDefinition) -> Offer:
    arguments = tuple(
        Argument(each.name, first_line(each.description or each.title))
        for each in (prompt.arguments or ())[:MAX_ARGUMENTS]
    )
    return Offer(prompt.name, first_line(prompt.description or prompt.title), arguments)


def _description(schema: Any) -> str:
    text = schema.get("description") if isinstance(schema, Mapping) else None
    return first_line(text) if isinstance(text, str) else ""
