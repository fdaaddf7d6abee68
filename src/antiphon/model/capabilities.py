"""The capabilities of servers and clients.

Owns the server's capabilities as plain values, and the table of the client capability that each question
needs. The dialects write capabilities for a protocol version; a dialect whose version names client
capabilities differently translates them into the names used here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from antiphon.model.question import Elicit, ListRoots, OpenUrl, Question, Sample

__all__ = [
    "ANSWERS_EVERYTHING",
    "FOR_STRANGER",
    "PROTECTED",
    "ServerCapabilities",
    "can_answer",
    "capabilities_for",
    "needed_capability",
]

PROTECTED = "dev.antiphon/protected"
"""The experimental capability of a server that protects what it offers everywhere but on this connection."""
FOR_STRANGER = "dev.antiphon/stranger"
"""The key in the `_meta` of a request that whoever has the connection sends for somebody else: a server that
protects what it offers refuses it, because it cannot check that caller."""


class ServerCapabilities(msgspec.Struct, frozen=True):
    """The features that a server offers its callers."""

    tools: bool = False
    resources: bool = False
    prompts: bool = False
    completions: bool = False
    logging: bool = False
    list_changes: frozenset[str] = frozenset()
    """The lists ("tools", "resources", "prompts") whose changes the server announces."""
    resource_subscriptions: bool = False
    """Whether a caller can subscribe to changes of a resource."""
    tasks: bool = False
    """Whether tool calls can become tasks."""
    task_list: bool = False
    """Whether the caller can list its tasks."""
    inbox: bool = False
    """Whether the caller can list, hear of and answer the questions of tasks to others."""
    streams: bool = False
    """Whether the server sends the segments of a tool's output while the tool runs."""
    response_modes: bool = False
    """Whether a caller says in which ways it takes the result of a task: the response modes of SEP-1905."""
    protected: bool = False
    """Whether the server authenticates its callers or needs scopes over HTTP, and not on this connection: who
    has it runs the server."""
    apps: bool = False
    """Whether the server has MCP Apps: pages that a host shows."""


_NEEDED: Mapping[type[Any], tuple[str, str | None]] = {
    Elicit: ("elicitation", "form"),
    OpenUrl: ("elicitation", "url"),
    Sample: ("sampling", None),
    ListRoots: ("roots", None),
}


def needed_capability(question: Question) -> tuple[str, str | None]:
    """Return the client capability that a question needs, and the mode of it, if it has modes."""
    return _NEEDED[type(question)]


def can_answer(capabilities: Mapping[str, Any], question: Question) -> bool:
    """Return whether a client with these capabilities can answer a question."""
    name, mode = _NEEDED[type(question)]
    declared = capabilities.get(name)
    if type(declared) is not dict and not isinstance(declared, Mapping):  # the second test is slow
        return False
    # An elicitation capability that names no mode means forms.
    return mode is None or mode in declared or (mode == "form" and "url" not in declared)


def capabilities_for(*questions: type[Question]) -> dict[str, Any]:
    """Return the capabilities of a client that answers these kinds of questions."""
    capabilities: dict[str, Any] = {}
    for kind in questions:
        name, mode = _NEEDED[kind]
        capabilities.setdefault(name, {}).update({} if mode is None else {mode: {}})
    return capabilities


ANSWERS_EVERYTHING: Mapping[str, Any] = capabilities_for(Elicit, OpenUrl, Sample, ListRoots)
"""The capabilities of a client that answers every kind of question."""
