"""Where the client's request differs from the printed one: each difference by its name, with the reason."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.seeds.blocks import Frame

__all__ = ["CLIENT_DIFFERENCES", "RequestDifference", "request_differences"]

DRAFT, SESSION, STATELESS = ("DRAFT-2026-v1",), ("2025-11-25",), ("2026-07-28",)
MESSAGES, LISTS = ("DRAFT-000-messages", "DRAFT-001-messages"), ("DRAFT-000-additional-info",)
CONTENT = ("DRAFT-001-content",)
CORE = DRAFT + SESSION + MESSAGES + LISTS + CONTENT
STATE = "dev.antiphon/request-state"


@dataclass(frozen=True)
class RequestDifference:
    """One way in which the client's requests differ from what is printed."""

    name: str
    printed: str
    ours: str
    why: str
    change: Callable[[Frame], Frame | None]
    """Returns our request for the printed one; `None` if the client does not make it."""
    where: Sequence[tuple[str, Sequence[str]]]
    """The blocks of the requests, and the dialects."""


def request_differences(block: str, dialect: str) -> list[RequestDifference]:
    """The differences of a request, in the order in which they apply."""
    return [
        difference
        for difference in CLIENT_DIFFERENCES
        if any(block in blocks.split() and dialect in dialects for blocks, dialects in difference.where)
    ]


def _in_params(**fields: object) -> Callable[[Frame], Frame]:
    def change(message: Frame) -> Frame:
        return {**message, "params": {**message["params"], **fields}}

    return change


def _task(**fields: object) -> Callable[[Frame], Frame]:
    def change(message: Frame) -> Frame:
        task = {**message["params"]["task"], **fields}
        task = {name: value for name, value in task.items() if value is not None}
        return {**message, "params": {**message["params"], "task": task}}

    return change


def _with_state(message: Frame) -> Frame:
    params = message["params"]
    return {**message, "params": {**params, "_meta": {**params.get("_meta", {}), STATE: None}}}


def _streaming(message: Frame) -> Frame:
    params = {name: value for name, value in message["params"].items() if name != "stream"}
    return {**message, "params": {**params, "task": {"responseModes": ["streaming", "task"]}}}


def _stream_inside(message: Frame) -> Frame:
    changed = copy.deepcopy(message)
    changed["params"]["stream"] = changed.pop("stream")
    return changed


CLIENT_DIFFERENCES: Sequence[RequestDifference] = (
    RequestDifference(
        "arguments of a tool without any",
        "a call without `arguments`",
        "`arguments: {}`",
        "Both mean the same; other libraries read the one more often.",
        _in_params(arguments={}),
        [("001:20", ("DRAFT-001-messages", "DRAFT-001-content")), ("002:930", DRAFT + SESSION)],
    ),
    RequestDifference(
        "the modes of a call that becomes a task",
        "`task` without `responseModes`",
        '`responseModes: ["task"]`',
        "004 asks for the modes in each such call.",
        _task(responseModes=["task"]),
        [
            ("000:74", CORE),
            ("001:20", ("DRAFT-001-messages", "DRAFT-001-content")),
            ("002:930", DRAFT + SESSION),
        ],
    ),
    RequestDifference(
        "a stream that may become a task",
        "`stream: {}`",
        '`responseModes: ["streaming", "task"]`',
        "004 is the later seed. A server with tasks can resume such a stream.",
        _streaming,
        [("000:265", CORE)],
    ),
    RequestDifference(
        "stream in the params of tasks/result",
        "`stream: {}` beside `params`",
        "inside `params`",
        "JSON-RPC has no members beside `params`.",
        _stream_inside,
        [("000:282", CORE)],
    ),
    RequestDifference(
        "segments as they come",
        "`lastSeqNr` alone",
        "`stream: {}` beside it",
        "The server then sends the segments that come later too, and the client asks once.",
        _in_params(stream={}),
        [("004:359", CORE)],
    ),
    RequestDifference(
        "no lifetime of a stream",
        "`ttl: 60000`",
        "none",
        "The server keeps the task as long as it keeps others; `stream()` has no `ttl`.",
        _task(ttl=None),
        [("004:110", CORE)],
    ),
    RequestDifference(
        "the state of a call",
        "a call without `_meta`",
        "`dev.antiphon/request-state`, null at first",
        "000 has no place for a state. The client says that it sends one back.",
        _with_state,
        [
            ("000:22", MESSAGES + LISTS),
            ("000:74 000:265 004:110", MESSAGES + LISTS),
            ("000:123 000:158", MESSAGES),
            ("000:123 000:214", LISTS),
            ("001:20", ("DRAFT-001-messages",)),
        ],
    ),
    RequestDifference(
        "a status that is not asked for",
        "`tasks/get` before each `tasks/result`",
        "`tasks/result` at once",
        "The answer to it comes as soon as there is one, and this server has one at once.",
        lambda message: None,
        [
            ("001:53 001:145", ("DRAFT-001-messages", "DRAFT-001-content")),
            ("002:967 002:1093", DRAFT + SESSION),
        ],
    ),
)
