"""Writes what a client received as JSON for the page, in the words of MCP."""

from __future__ import annotations

from typing import Any

import msgspec

from antiphon.client import Client
from antiphon.errors import RequestError
from antiphon.model.content import Text
from antiphon.model.outcome import PromptResult, ReadResult, Result
from antiphon.printable import printable, printable_text
from antiphon.wire.versions import VERSIONS

__all__ = ["error_view", "outcome_view", "server_view", "shown_view", "version_choices"]

_OFFERS = (
    "tools",
    "resources",
    "prompts",
    "completions",
    "logging",
    "resource_subscriptions",
    "tasks",
    "task_list",
    "streams",
)


def server_view(client: Client, name: str) -> dict[str, Any]:
    """Return how a server describes itself, and what it offers. `name` is the console's own for it.

    The title, the release and the instructions cannot reorder what a person reads.
    """
    server = client.server
    return {
        "server": None if server is None else msgspec.to_builtins(server),
        "title": printable(name if server is None else server.title or server.name),
        "release": "" if server is None else printable(server.version),
        "version": client.version,
        "instructions": client.instructions and printable_text(client.instructions),
        "capabilities": client.capabilities,
        "offers": [name for name in _OFFERS if getattr(client.offers, name)],
    }


def version_choices(newest: str | None = None) -> list[tuple[str, str]]:
    """Return the versions that a person can choose, with labels. `newest` is the one that is spoken now."""
    spoken = [(version, version) for version in VERSIONS.spoken_by_client]
    return [("", f"Newest: {newest}" if newest else "Newest"), *spoken]


def outcome_view(outcome: Result | ReadResult | PromptResult) -> dict[str, Any]:
    """Return the result of a tool, the contents of a resource, or the messages of a prompt."""
    if isinstance(outcome, ReadResult):
        return {"contents": msgspec.to_builtins(outcome.contents)}
    if isinstance(outcome, PromptResult):
        return {"description": outcome.description, "messages": msgspec.to_builtins(outcome.messages)}
    view: dict[str, Any] = {
        "content": msgspec.to_builtins(outcome.content),
        "isError": outcome.is_error,
    }
    if outcome.structured:
        view["structuredContent"] = outcome.data
    if outcome.meta:
        view["_meta"] = outcome.meta
    return view


def shown_view(outcome: Result | ReadResult | PromptResult) -> dict[str, Any]:
    """Return what people see of a result with data: the value itself, and the blocks that do not repeat it.

    Servers repeat the data as text, for clients that read only text.
    """
    if not isinstance(outcome, Result) or not outcome.structured:
        return {}
    data = outcome.data
    wrapped = isinstance(data, dict) and data.keys() == {"result"}
    values = [data, data["result"]] if wrapped else [data]
    repeating = [
        index
        for index, block in enumerate(outcome.content)
        if isinstance(block, Text) and _reads_as(block.text, values)
    ]
    return {"data": values[-1], "repeating": repeating}


def _reads_as(text: str, values: list[Any]) -> bool:
    if text in values:
        return True
    try:
        return msgspec.json.decode(text) in values
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return False


def error_view(error: Exception) -> dict[str, Any]:
    """Return an error for a person: what happened, and the code and the data that the server sent."""
    if isinstance(error, RequestError):
        return {"message": error.message, "code": error.code, "data": error.data}
    return {"message": str(error) or type(error).__name__}
