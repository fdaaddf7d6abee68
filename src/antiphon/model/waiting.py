"""What a task waits for besides the answers of its caller: a time, an event, or the answer of somebody else.

A task that waits for nothing else than these is parked. The engine decides when a wait is over; this module
must not know the store.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias

import msgspec

__all__ = ["OtherAnswer", "Wait", "describe_audience", "describe_waits", "wake_time"]

OtherAnswer: TypeAlias = tuple[str, int, Any]
"""The answer of somebody else than the caller: the id of the principal, the time, and the response."""

_MAX_NAMED = 3
"""How many of those who are asked the status message of a task names."""


class Wait(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that a task waits for. Times are in milliseconds since 1970."""

    until: int | None = None
    """When the task is run again, although what it waits for has not come; `None` for never."""
    event: tuple[str, str] | None = None
    """The name and the key of an event."""
    question: Any = None
    """A question to somebody else, as `dump_questions` writes it; `None` for any other wait."""
    to: tuple[str, ...] = ()
    """The groups and scopes whose members can answer the question."""
    people: tuple[str, ...] = ()
    """The ids of the principals who can answer the question, besides the members of `to`."""
    approvals: int = 1
    """How many different principals have to answer the question."""
    answered_by: tuple[str, ...] = ()
    """The principals whose answers count so far."""
    asked: int = 0
    """When the question was asked first."""
    deadline: int | None = None
    """When the question or the event is given up; `None` for never."""
    reminded: int = 0
    """How often those who can answer were reminded."""
    unfit: Mapping[str, int] = {}
    """How many answers of each principal did not fit."""
    problem: str | None = None
    """Why the last answer did not fit; `None` if there was none."""

    @property
    def kind(self) -> Literal["question", "event", "time"]:
        """What the task waits for, in one word."""
        return "question" if self.question is not None else "event" if self.event is not None else "time"

    @property
    def asked_names(self) -> tuple[str, ...]:
        """The groups, scopes and principals who are asked, for messages."""
        return (*self.to, *self.people)


def wake_time(waits: Iterable[Wait]) -> int | None:
    """Return when the first of several waits is over at the latest; `None` for never."""
    return min((wait.until for wait in waits if wait.until is not None), default=None)


def describe_waits(waits: Mapping[str, Wait]) -> str:
    """Return the status message of a parked task: what it waits for, without the questions themselves."""
    return " ".join(dict.fromkeys(_describe(wait) for wait in waits.values()))


def describe_audience(names: Sequence[str]) -> str:
    """Return who is asked, as the caller of the task reads it."""
    return ", ".join(names[:_MAX_NAMED]) + (", …" if len(names) > _MAX_NAMED else "")


def _describe(wait: Wait) -> str:
    if wait.event is not None:
        return f"Waiting for the event {wait.event[0]!r}."
    if wait.question is None:
        return "Waiting." if wait.until is None else f"Sleeping until {_moment(wait.until)}."
    names = describe_audience(wait.asked_names)
    if wait.approvals == 1:
        return f"Waiting for an answer from {names}."
    return f"Waiting for {wait.approvals} answers from {names}, {len(wait.answered_by)} given."


def _moment(milliseconds: int) -> str:
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):  # a time after the year 9999
        return "the end of time"
