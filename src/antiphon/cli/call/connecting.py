"""Connects a command to its server, with the callbacks that answer questions, and finds what the user named.

`antiphon call`, `antiphon read` and `antiphon prompt` share it.
"""

from __future__ import annotations

import difflib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from antiphon.cli.call.progress import ProgressDisplay
from antiphon.cli.call.questions import ElicitationHandler
from antiphon.cli.exit_codes import CommandError
from antiphon.cli.targets import Target
from antiphon.errors import RequestError
from antiphon.model.catalog import PromptDefinition, ToolDefinition
from antiphon.model.notification import Progress

if TYPE_CHECKING:
    from antiphon.client import Client

__all__ = ["answering_client", "find_by_name"]

Named = TypeVar("Named", ToolDefinition, PromptDefinition)

MAX_SUGGESTED_NAMES = 20
"""How many names the message about an unknown name lists."""


@asynccontextmanager
async def answering_client(
    target: Target,
    handler: ElicitationHandler,
    display: ProgressDisplay,
    elicit: Any = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> AsyncIterator[Client]:
    """Connect a client whose questions the handler answers, and which shows progress and log messages.

    On exit, raises the handler's error if a question had no answer.
    """
    elicit = elicit or display.hidden_during(handler)
    on_progress = on_progress or display.progress
    async with target.client(on_progress=on_progress, on_log=display.log, elicit=elicit) as client:
        if client.server is not None:
            handler.server_name = client.server.title or client.server.name
        try:
            yield client
        except RequestError:
            if handler.error is not None:
                raise handler.error from None
            raise
        finally:
            display.close()
        if handler.error is not None:
            raise handler.error


def find_by_name(kind: str, name: str, definitions: Sequence[Named]) -> Named:
    """Return the definition of this name. Raises `CommandError`, with a name that is close to it."""
    for definition in definitions:
        if definition.name == name:
            return definition
    names = [definition.name for definition in definitions]
    close = difflib.get_close_matches(name, names, n=1)
    listed = ", ".join(names[:MAX_SUGGESTED_NAMES]) or "none"
    hint = f"Did you mean {close[0]!r}?" if close else f"Its {kind}s: {listed}."
    raise CommandError(f"The server has no {kind} {name!r}. {hint}")
