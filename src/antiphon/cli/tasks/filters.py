"""The options that choose tasks, and the filter that they make. Knows no server and no store."""

# No `from __future__ import annotations`: typer would evaluate the annotations of all commands at each start.
import time
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from antiphon.cli.exit_codes import CommandError

if TYPE_CHECKING:
    from antiphon.store.contract import TaskFilter

__all__ = [
    "NewerOption",
    "OlderOption",
    "OutcomeOption",
    "PhaseOption",
    "PrincipalOption",
    "ToolOption",
    "age_milliseconds",
    "task_filter",
]

PhaseOption = Annotated[
    Literal["ready", "waiting", "ended"] | None,
    typer.Option(
        help="Only tasks that need a worker or have one (ready), that wait for something, or that have ended."
    ),
]
ToolOption = Annotated[
    str | None, typer.Option("--tool", metavar="NAME", help="Only tasks of this tool.", show_default=False)
]
PrincipalOption = Annotated[
    str | None,
    typer.Option("--principal", metavar="ID", help="Only tasks of this principal.", show_default=False),
]
OutcomeOption = Annotated[
    Literal["done", "failed", "cancelled"] | None, typer.Option(help="Only tasks that have ended like this.")
]
OlderOption = Annotated[
    str | None,
    typer.Option(
        "--older",
        metavar="AGE",
        help="Only tasks created longer ago: 90s, 30m, 2h, 7d, 4w.",
        show_default=False,
    ),
]
NewerOption = Annotated[
    str | None,
    typer.Option("--newer", metavar="AGE", help="Only tasks created since then.", show_default=False),
]


def age_milliseconds(text: str, option: str) -> int:
    """Return an age such as `2h` in milliseconds. Raises `CommandError`."""
    from antiphon.model.age import parse_age

    try:
        return parse_age(text)
    except ValueError as error:
        raise CommandError(f"Invalid age {text!r} for {option}: {error}") from None


def task_filter(
    *,
    phase: Literal["ready", "waiting", "ended"] | None = None,
    tool: str | None = None,
    outcome: Literal["done", "failed", "cancelled"] | None = None,
    older: str | None = None,
    newer: str | None = None,
) -> "TaskFilter":
    """Return the filter that the options make. Raises `CommandError`."""
    from antiphon.store.contract import TaskFilter

    if outcome is not None and phase not in (None, "ended"):
        raise CommandError(f"Only ended tasks have an outcome: leave out --phase {phase}.")
    now = int(time.time() * 1000)
    return TaskFilter(
        phase=phase,
        tool=tool,
        outcome=outcome,
        created_before=None if older is None else now - age_milliseconds(older, "--older"),
        created_since=None if newer is None else now - age_milliseconds(newer, "--newer"),
    )
