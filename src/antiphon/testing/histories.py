"""Replays the history of a task against the tools of a server. No step runs, and nobody is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from antiphon.errors import ReplayMismatch
from antiphon.model.identity import Principal
from antiphon.model.question import Question
from antiphon.model.request import CallTool
from antiphon.model.task import HISTORY_FORMAT, answer_entry
from antiphon.model.task_history import TaskHistory
from antiphon.runtime.carriers.base import Check
from antiphon.runtime.carriers.store import StoreCarrier
from antiphon.runtime.execution.context import Context
from antiphon.runtime.execution.journal import Journal
from antiphon.runtime.execution.run import Run
from antiphon.server import Server
from antiphon.testing.calls import Rehearsal, SimulatedCaller, make_call
from antiphon.testing.replay_check import JournalEnd, find_error

__all__ = ["ReplayedHistory", "replay_history"]


@dataclass(frozen=True, slots=True)
class ReplayedHistory:
    """The outcome of `replay_history`."""

    next: str | None
    """The key of the step or question at which the replay ended; `None` if the tool returned or raised."""
    outcome: Any
    """The value that the tool returned, or the exception that it raised; `None` if it did neither."""
    unused: Sequence[str]
    """The keys of recorded steps and answers that the tool did not use."""


async def replay_history(server: Server, history: str | Path | Mapping[str, Any]) -> ReplayedHistory:
    """Replay the history of a task against the tools of a server. No step runs, and nobody is asked.

    `history` is the file that `antiphon tasks export` wrote, or its content. The replay ends at the first
    step or question that the history does not have. Raises `ReplayMismatch` if the tool does something else
    than the history recorded or does not accept its arguments, and `NotFound` if the server does not have the
    tool.
    """
    log = _read_history(history)
    assert log.task is not None
    engine, created = server.engine, log.created
    tool = engine.registry.tool(log.task.tool)
    if (problems := tool.problems_of(created["arguments"])) is not None:
        raise ReplayMismatch(
            f"The arguments of the history do not fit the tool {tool.name!r}: {problems}. Give a new "
            "parameter a default, or such tasks wait for the version before.",
            found="arguments",
            recorded="arguments",
        )
    function = tool.function
    async with server.running():
        request = CallTool(name=log.task.tool, arguments=dict(created["arguments"]))
        journal = _HistoryJournal(log.journal, id=log.task.id)
        call = make_call(
            request,
            SimulatedCaller(Rehearsal()),
            _HistoryCarrier(journal),
            0,
            msgspec.convert(created["principal"], Principal),
            created.get("capabilities", {}),
        )
        run = Run(call, journal, limits=server.limits)
        bound = function.bind(request.arguments)
        outcome: Any = None
        try:
            outcome = await function.run_once(run, bound, Context(run, engine.environment))
        except ReplayMismatch:
            raise
        except BaseException as error:
            if (end := find_error(error, JournalEnd)) is not None:
                return ReplayedHistory(str(end), None, _unused(run))
            if not isinstance(error, Exception):
                raise
            outcome = error
        return ReplayedHistory(None, outcome, _unused(run))


def _read_history(history: str | Path | Mapping[str, Any]) -> TaskHistory:
    content = history if isinstance(history, Mapping) else msgspec.json.decode(Path(history).read_bytes())
    if content.get("format") != HISTORY_FORMAT:
        raise ValueError(
            f"This is no history of format {HISTORY_FORMAT}: write one with `antiphon tasks export`."
        )
    log = TaskHistory()
    for entry in content["log"]:
        log.add(entry["kind"], entry["at"], entry["data"])
    if log.task is None:
        raise ValueError("The history has no entries.")
    return log


def _unused(run: Run) -> Sequence[str]:
    return () if run.replay is None else run.replay.unused()


class _HistoryJournal(Journal):
    """A journal that lets no step run."""

    __slots__ = ()

    def before_step(self, key: str) -> NoReturn:
        raise JournalEnd(key)


class _HistoryCarrier(StoreCarrier):
    """A carrier that takes no question to anybody."""

    __slots__ = ()

    async def ask(self, run: Run, key: str, question: Question, check: Check | None) -> NoReturn:
        raise JournalEnd(answer_entry(key))
