"""The phases of the soak, as data: which processes, which tasks, which faults, and for how long.

Each phase has a store of its own. In a `mix`, tasks come while there is trouble. In a `deploy`, all tasks
stand at a question when version c of the tools arrives, and are answered under trouble. Those whose journal
does not fit version c end after the rollback.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from tests.soak.fleet import Build

__all__ = ["PHASES", "SHORT", "Phase"]

NEW, NEW_WITH_EXTRA, CHANGED = Build("new", "a"), Build("new", "b"), Build("new", "c")
OLD, OLD_WITH_EXTRA = Build("old", "a"), Build("old", "b")
COMMON = ("chain", "chain", "ask", "ask", "stream", "long", "once", "extra")
"""What both libraries have and promise."""


@dataclass(frozen=True)
class Phase:
    """One run on one store."""

    name: str
    tools: Sequence[str]
    faults: Sequence[str]
    builds: Sequence[Build] = (NEW, NEW_WITH_EXTRA)
    """What the processes run, in turn, and what one may run that is stopped and started again."""
    processes: int = 4
    tasks: int = 400
    arguments: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """More arguments, by tool."""
    seconds: float = 60.0
    """How long there is trouble."""
    pauses: tuple[float, float] = (0.3, 1.2)
    """How long it is quiet before the next fault."""
    rest: float = 3.0
    """How long the store is well after each of its faults."""
    kind: Literal["mix", "deploy"] = "mix"
    giving: float = 0.5
    """In which part of the trouble the tasks are given, at the best. With 0, all are given before."""
    events: int = 3
    """How many events each topic gets."""
    answers_at_once: int = 4
    """How many callers answer a question at once, each in another way."""
    readers: int = 3
    """How many callers read a stream."""
    jumps: Sequence[float] = (-3600, 3600, -5, 5)
    """By how many seconds clocks are set wrong."""
    fenced: bool = True

    @property
    def peace(self) -> float:
        """In how many seconds after the trouble all tasks must have ended; very many, for a slow machine."""
        return 180.0 + self.tasks / 5


PHASES: Sequence[Phase] = (
    Phase(
        "everything at once",
        tools=(*COMMON, "stoppable", "sleeper", "waiter"),
        faults=(
            "kill",
            "stop",
            "pause",
            "outage",
            "full database",
            "full disk",
            "killed server",
            "stopped server",
            "read-only server",
        ),
        tasks=600,
        seconds=75.0,
    ),
    Phase(
        "wrong clocks",
        tools=(*COMMON, "stoppable", "waiter"),
        faults=("kill", "stop", "pause", "jump", "jump", "outage"),
        tasks=200,
        seconds=30.0,
    ),
    Phase(
        "two libraries",
        tools=COMMON,
        faults=(
            "kill",
            "stop",
            "stop",
            "pause",
            "outage",
            "killed server",
            "stopped server",
            "read-only server",
        ),
        builds=(OLD, NEW, OLD_WITH_EXTRA, NEW_WITH_EXTRA),
        tasks=250,
        seconds=40.0,
        # What the older library does with the second answer to a question is not judged.
        answers_at_once=1,
    ),
    Phase(
        "a deploy and its rollback",
        tools=("renamed", "grown", "retyped", "reformed", "reargued", "heard"),
        faults=("kill",),
        builds=(NEW,),
        tasks=72,
        seconds=10.0,
        kind="deploy",
        answers_at_once=1,
    ),
    Phase(
        "outages alone",
        tools=("long", "long", "chain", "careful", "careful"),
        # Longer than the time between two outages: every run is lost until they are over.
        arguments={"long": {"leases": 6.0}},
        faults=("outage", "killed server", "stopped server", "read-only server"),
        pauses=(0.3, 0.8),
        rest=0.3,
        tasks=32,
        giving=0.0,
        seconds=40.0,
    ),
    Phase(
        "deadly tasks",
        tools=("deadly", "chain", "chain", "long"),
        # Longer than a deadly task takes to end several processes. The deadly ones come in the first half of
        # that: one that has not ended a process yet counts as harmless to those beside it.
        arguments={"long": {"leases": 10.0}},
        faults=(),
        tasks=24,
        seconds=10.0,
    ),
)

SHORT = replace(
    PHASES[0], faults=(*PHASES[0].faults, "jump"), jumps=(-5, 5), processes=3, tasks=50, seconds=10.0
)
"""What `make test` has time for."""
