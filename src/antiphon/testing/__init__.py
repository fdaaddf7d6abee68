"""Tests for tools without a server process: call a tool, answer its questions, and check that it replays.

answers = {"resolution": {"resolution": "Fixed"}}
rehearsal = await rehearse(server, "resolve_bug", {"item": 7}, answers=answers)
assert rehearsal.result.text == "Bug #7 resolved."
assert [question.key for question in rehearsal.questions] == ["resolution"]

assert await check_replay(server, "resolve_bug", {"item": 7}, answers=answers) == []
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from antiphon.testing.calls import Answers, AskedQuestion, Rehearsal
    from antiphon.testing.clock import Clock
    from antiphon.testing.histories import ReplayedHistory, replay_history
    from antiphon.testing.recordings import record, replay
    from antiphon.testing.rehearsal import rehearse
    from antiphon.testing.replay_check import check_replay
    from antiphon.testing.snapshots import assert_tools_match

__all__ = [
    "Answers",
    "AskedQuestion",
    "Clock",
    "Rehearsal",
    "ReplayedHistory",
    "assert_tools_match",
    "check_replay",
    "record",
    "rehearse",
    "replay",
    "replay_history",
]

# A name is imported when it is first used: pytest imports this package at the start of every test run.
_MODULES = {
    "Answers": "calls",
    "AskedQuestion": "calls",
    "Clock": "clock",
    "Rehearsal": "calls",
    "ReplayedHistory": "histories",
    "assert_tools_match": "snapshots",
    "check_replay": "replay_check",
    "record": "recordings",
    "rehearse": "rehearsal",
    "replay": "recordings",
    "replay_history": "histories",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _MODULES:
        raise AttributeError(f"module 'antiphon.testing' has no attribute {name!r}")
    value = getattr(import_module(f"antiphon.testing.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
