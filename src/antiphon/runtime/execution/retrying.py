"""Tries a step again after it failed, with growing delays. A task that waits for long is parked.

Owns when a step is tried again, and what the journal records of the attempts that failed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

from antiphon import wall_clock
from antiphon.errors import DefinitionError, RetriesExhausted
from antiphon.runtime.execution.journal import MISSING
from antiphon.runtime.execution.run import Run
from antiphon.runtime.execution.waiting import now_of, pause

__all__ = ["Retry", "run_with_retries"]

_MAX_ERROR_CHARACTERS = 500
"""How much of the text of an error is recorded."""
_LONGEST_RETRY_AFTER_SECONDS = 7 * 86400.0
"""How long a service can make a step wait."""
_KEPT_ERRORS = 3
"""How many errors of a step the journal keeps, the last ones."""


@dataclass(frozen=True, slots=True)
class Retry:
    """How often and when a step is tried again after it failed: `ctx.step(f, retry=Retry(attempts=5))`."""

    attempts: int = 3
    """How often the step is tried, with the first time."""
    first: float = 1.0
    """The seconds before the second attempt."""
    factor: float = 2.0
    """How much longer each delay is than the one before."""
    longest: float = 3600.0
    """The longest delay, in seconds. A `Retry-After` may be longer."""
    on: tuple[type[Exception], ...] = (Exception,)
    """The errors after which the step is tried again. After any other error, the step fails at once."""

    def __post_init__(self) -> None:
        if not isinstance(self.attempts, int) or self.attempts < 1:
            raise DefinitionError(f"Retry(attempts=) must be a number above 0, and is {self.attempts!r}.")
        if not (self.first >= 0 and self.factor >= 1 and self.longest >= 0):
            raise DefinitionError(
                f"Retry(first=, longest=) must not be negative, and factor must be at least 1: {self!r}."
            )
        errors = self.on if isinstance(self.on, tuple) else (self.on,)
        if not all(isinstance(error, type) and issubclass(error, Exception) for error in errors):
            raise DefinitionError(f"Retry(on=) takes types of exceptions, and got {self.on!r}.")
        object.__setattr__(self, "on", errors)

    def delay(self, failed: int, error: BaseException) -> float:
        """Return the seconds to wait after so many failed attempts, the last with this error."""
        try:
            grown = self.first * self.factor ** (failed - 1)
        except OverflowError:
            grown = self.longest if self.first else 0.0
        return max(min(grown, self.longest), _retry_after(error))


async def run_with_retries(
    run: Run, name: str, digest: str, retry: Retry, attempt: Callable[[], Awaitable[Any]]
) -> Any:
    """Run a step until it succeeds or no attempt is left; raises `RetriesExhausted` then, in every run.

    A step that has succeeded or was given up stays so, however often this version tries it. The journal has
    an entry for the step with the number of failed attempts and the last errors. Steps of branches are found
    by the digest of their arguments, because their counts may change places in each run.
    """
    entry = run.journal.key("tried", f"{name}({digest})" if run.branch else name)
    recorded = run.journal.find(entry)
    failed = _Failed.read(recorded)
    while True:
        if failed.is_given_up:
            raise failed.as_error(name)
        if failed.attempts >= retry.attempts and not failed.is_tried_again:
            # Another version tried it more often, or did not note that it gave up.
            run.journal.note(entry, failed._replace(is_given_up=True).write())
            raise failed.as_error(name)
        if failed.attempts:
            await pause(run, entry, failed.until)
            # Written with the result of the step: then the step counts as done, however few attempts it has.
            run.journal.note(entry, failed._replace(is_tried_again=True).write())
        try:
            return await attempt()
        except DefinitionError:  # another attempt would not help, and the step may have been done
            raise
        except retry.on as error:
            now = now_of(run)
            until = now + round(retry.delay(failed.attempts + 1, error) * 1000)
            text = f"{type(error).__name__}: {error}"[:_MAX_ERROR_CHARACTERS]
            failed = failed.after([now, text, until])
            failed = failed._replace(is_given_up=failed.attempts >= retry.attempts)
            run.journal.record(entry, failed.write())
            await run.commit()
            if failed.is_given_up:
                raise failed.as_error(name) from error


class _Failed(NamedTuple):
    """The failed attempts at a step: how many, and the time, the error and the next attempt of the last."""

    attempts: int
    last: list[list[Any]]
    is_tried_again: bool = False
    """Whether another attempt began after these, and something was recorded then."""
    is_given_up: bool = False
    """Whether a run had no attempt left, and went on with `RetriesExhausted`."""

    @classmethod
    def read(cls, recorded: Any) -> _Failed:
        """Read the attempts from the journal. Journals of an earlier version have a list of all of them."""
        if recorded is MISSING:
            return cls(0, [])
        if isinstance(recorded, list):
            return cls(len(recorded), recorded[-_KEPT_ERRORS:])
        again, given_up = recorded.get("again", False), recorded.get("given_up", False)
        return cls(recorded["count"], recorded["last"], again, given_up)

    def write(self) -> dict[str, Any]:
        marks = {"again": self.is_tried_again, "given_up": self.is_given_up}
        set_marks = {name: True for name, is_set in marks.items() if is_set}
        return {"count": self.attempts, "last": self.last, **set_marks}

    def after(self, attempt: list[Any]) -> _Failed:
        return _Failed(self.attempts + 1, [*self.last, attempt][-_KEPT_ERRORS:])

    @property
    def until(self) -> int:
        return int(self.last[-1][2])

    def as_error(self, name: str) -> RetriesExhausted:
        message = f"The step {name!r} failed {self.attempts} times, last with {self.last[-1][1]}"
        return RetriesExhausted(message, attempts=self.attempts)


def _retry_after(error: BaseException) -> float:
    """Return the seconds that an error asks to wait: its `retry_after`, or that of its HTTP response."""
    value = getattr(error, "retry_after", None)
    if value is None:
        headers = getattr(getattr(error, "response", None), "headers", None)
        value = None if headers is None else headers.get("retry-after")
    try:
        seconds = _seconds(value)
    except (TypeError, ValueError, OverflowError):
        return 0.0
    return min(max(seconds, 0.0), _LONGEST_RETRY_AFTER_SECONDS)


def _seconds(value: Any) -> float:
    if value is None:
        return 0.0
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, datetime):
        return value.timestamp() - wall_clock.now()
    if isinstance(value, str) and not value.strip().replace(".", "", 1).isdigit():
        moment = parsedate_to_datetime(value)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() - wall_clock.now()
    return float(value)
