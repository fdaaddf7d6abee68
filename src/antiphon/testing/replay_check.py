"""Checks that a tool replays: runs the tool, and replays it from every point of its journal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar

import msgspec

from antiphon.errors import ReplayMismatch
from antiphon.model.capabilities import ANSWERS_EVERYTHING
from antiphon.model.identity import ANONYMOUS
from antiphon.model.outcome import Result
from antiphon.model.question import Question
from antiphon.model.request import CallTool
from antiphon.runtime.execution.context import Context
from antiphon.runtime.execution.failures import StopSignal
from antiphon.runtime.execution.fingerprints import fingerprint_key
from antiphon.runtime.execution.journal import MISSING, Journal
from antiphon.runtime.execution.run import Run
from antiphon.server import Server
from antiphon.testing.calls import (
    Answers,
    AskedQuestion,
    Rehearsal,
    SimulatedCaller,
    make_call,
    responses_to,
    server_and_tool,
)

__all__ = ["JournalEnd", "check_replay", "find_error"]

E = TypeVar("E", bound=BaseException)


async def check_replay(
    target: Server | Callable[..., Any],
    name: str | None = None,
    arguments: Mapping[str, Any] | None = None,
    *,
    answers: Answers | None = None,
) -> list[str]:
    """Run a tool, replay it from every point of its journal, and return a description of each difference.

    An empty list means that the tool replays correctly. Steps run once, in the first run. A replay stops as
    soon as it does something that is not in the journal, so it has no side effects. The parameters are those
    of `rehearse`. Raises `AssertionError` if `answers` has no answer to a question, and `ValueError` for a
    tool with `replay=False`.
    """
    server, tool = server_and_tool(target, name)
    if not server.engine.registry.tool(tool).function.replays:
        raise ValueError(
            f"The tool {tool!r} has replay=False: it is not run again, so it cannot be replayed."
        )
    found: list[str] = []
    async with server.running():
        first = _RecordingJournal()
        expected = await _play(server, tool, arguments, answers, first)
        notes = {key: value for key, value in first.entries.items() if _is_note(key)}
        keys = [key for key in first.entries if key not in notes]
        for point in range(len(keys) + 1):
            replay = _PartialJournal(notes | {key: first.entries[key] for key in keys[:point]})
            outcome = await _play(server, tool, arguments, answers, replay)
            where = f"after {keys[point - 1]!r}" if point else "at the start"
            if isinstance(outcome, ReplayMismatch):
                found.append(f"{where}: {outcome}")
            elif replay.reached is None:
                if point < len(keys):
                    found.append(
                        f"{where}: the replay ended, but the first run continued with {keys[point]!r}."
                    )
                elif _describe(outcome) != _describe(expected):
                    found.append(
                        f"at the end: the replay returned {_describe(outcome)}, "
                        f"but the first run {_describe(expected)}."
                    )
            elif replay.reached not in keys[point:]:
                there = repr(keys[point]) if point < len(keys) else "its end"
                found.append(
                    f"{where}: the replay continued with {replay.reached!r}, but the first run with {there}."
                )
    return found


def _is_note(key: str) -> bool:
    """Return whether an entry of a journal is no operation: the id, the progress, fingerprints and marks."""
    return key in ("id", "progress", "returned") or key.startswith(fingerprint_key(""))


class _Unanswered(AssertionError):
    """The test has no answer to a question of the tool. This is an error of the test, not of the tool."""


class _RecordingJournal(Journal):
    """An empty journal, which records the operations of a run in order."""

    __slots__ = ()


class _PartialJournal(Journal):
    """A journal that stops the run at the first operation that it does not contain."""

    __slots__ = ("reached",)

    def __init__(self, entries: dict[str, Any]) -> None:
        super().__init__(entries)
        self.reached: str | None = None

    def find(self, key: str) -> Any:
        found = super().find(key)
        if found is MISSING:
            self.before_step(key)
        return found

    def before_step(self, key: str) -> NoReturn:
        self.reached = self.reached or key
        raise JournalEnd(key)


async def _play(
    server: Server, tool: str, arguments: Mapping[str, Any] | None, answers: Answers | None, journal: Journal
) -> Any:
    """Run a tool once against a journal, and answer its questions directly."""
    engine = server.engine
    function = engine.registry.tool(tool).function

    def answer(key: str, question: Question) -> Any:
        given = responses_to([AskedQuestion(key, question)], answers)
        if key not in given:
            raise _Unanswered(f"The tool {tool!r} asks the question {key!r}: add its answer to `answers`.")
        return given[key]

    request = CallTool(name=tool, arguments=dict(arguments or {}))
    caller = SimulatedCaller(Rehearsal(), answer)
    call = make_call(request, caller, engine.connection_carrier, 0, ANONYMOUS, ANSWERS_EVERYTHING)
    run = Run(call, journal, limits=server.limits)
    bound = function.bind(request.arguments)
    try:
        return await function.run_once(run, bound, Context(run, engine.environment))
    except BaseException as error:
        if (unanswered := find_error(error, _Unanswered)) is not None:
            raise unanswered from None
        if find_error(error, JournalEnd) is not None:
            return None
        if isinstance(error, Exception):
            return error
        raise


def _describe(outcome: Any) -> str:
    """Return an outcome as a text, to compare and to show."""
    if isinstance(outcome, Exception):
        return f"{type(outcome).__name__}: {outcome}"
    if isinstance(outcome, Result):
        return repr(outcome)
    return repr(msgspec.to_builtins(outcome, enc_hook=repr))


class JournalEnd(StopSignal):
    """A replay has reached an operation that is not in its journal."""


def find_error(error: BaseException, kind: type[E]) -> E | None:
    """Return an error of this kind, also from a group of errors that a task group raised."""
    if isinstance(error, BaseExceptionGroup):
        found = (find_error(each, kind) for each in error.exceptions)
        return next((each for each in found if each is not None), None)
    return error if isinstance(error, kind) else None
