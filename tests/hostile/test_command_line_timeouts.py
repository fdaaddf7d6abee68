"""`--timeout` at servers that never answer, never end, or never stop: the command ends with an error."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest

from antiphon.cli.exit_codes import UNREACHABLE
from tests.cli.command import antiphon
from tests.client.fakes import Answer, Reply, legacy, modern
from tests.hostile.hostile_server import TASKS, hostile_server, scripted, tool

STATUS = {"taskId": "t", "status": "working", "pollIntervalMs": 0, "ttlMs": None}
LISTED = {"tools/list": tool({"type": "object"})}
AS_TASK = {
    **LISTED,
    "tools/call": {"resultType": "task", **STATUS},
    "tasks/get": STATUS,
    "tasks/cancel": STATUS,
}
OFFERED: dict[str, Any] = {"tools": {}, "extensions": TASKS}
_cursors = itertools.count()


async def first_page(reply: Reply) -> None:
    """The first page of a list, whose second never comes."""
    if "cursor" in reply.request.params:
        await reply.hang()
    await reply.result({"tools": [], "nextCursor": str(next(_cursors))})


async def changing(reply: Reply) -> None:
    """A task that reports something new at each poll, for ever."""
    await reply.result({**STATUS, "statusMessage": str(next(_cursors))})


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Reply.hang, ("tools", "URL")),
        (Reply.hang, ("doctor", "URL")),
        (legacy(Reply.hang, tools={}), ("tools", "URL")),
        (modern(Reply.hang, tools={}), ("call", "URL", "tool")),
        (modern(first_page, tools={}), ("tools", "URL")),
        (modern(Reply.hang, resources={}), ("read", "URL", "a://b")),
        (scripted(AS_TASK, **OFFERED), ("call", "URL", "tool")),
        (scripted(AS_TASK, **OFFERED), ("call", "URL", "tool", "--task")),
        (scripted(AS_TASK, **OFFERED), ("call", "URL", "tool", "--stream")),
        (scripted({"tasks/get": changing}, **OFFERED), ("tasks", "watch", "URL", "t")),
        (modern(Reply.hang, **OFFERED), ("tasks", "show", "URL", "t")),
    ],
)
def test_the_command_ends_in_time_with_an_error(answer: Answer, words: Sequence[str]) -> None:
    with hostile_server(answer) as server:
        done = antiphon(*(word.replace("URL", server.url) for word in words), "--timeout", "1")
    assert done.returncode == UNREACHABLE, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.rstrip().endswith("To wait longer, use --timeout.")
    assert "timeout=" not in done.stderr, "the option of the command, not of the library"


@pytest.mark.parametrize("words", [("tools", "URL"), ("call", "URL", "tool"), ("doctor", "URL")])
def test_the_timeout_bounds_connecting_too(words: Sequence[str]) -> None:
    with hostile_server(Reply.hang) as server:
        done = antiphon(*(word.replace("URL", server.url) for word in words), "--timeout", "0.5")
    assert done.returncode == UNREACHABLE, done.stderr
    assert "has not answered within 0.5 s: connecting. To wait longer, use --timeout." in done.stderr
