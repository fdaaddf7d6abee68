"""Waits of a task for a time, an event, or the answer of somebody else than the caller.

Owns what the journal records of a wait: when it began and ends, and what came of it. A wait that is over ends
in the same way in every run. A wait that is not over parks the task: the function is stopped, and run again
when something has happened. Only a task can be parked, so a call that is none becomes one first, if it can.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import math
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypeAlias

import msgspec
import pydantic

from antiphon import wall_clock
from antiphon.errors import Failure, Unanswered
from antiphon.model.identity import Principal
from antiphon.model.question import Elicit, ElicitResult, OpenUrl, question_key
from antiphon.model.task import dump_questions, others_entry
from antiphon.model.waiting import OtherAnswer, Wait, describe_audience
from antiphon.runtime.authoring.typed_dicts import adapt_typed_dicts
from antiphon.runtime.carriers.base import Check, Parking
from antiphon.runtime.execution.branches import escape, next_key
from antiphon.runtime.execution.fingerprints import used_key
from antiphon.runtime.execution.journal import MISSING
from antiphon.runtime.execution.recorded import check_recorded, read_new, read_recorded, refuse_used
from antiphon.runtime.execution.run import Run
from antiphon.store.contract import Event

__all__ = [
    "Deadline",
    "Duration",
    "Recipient",
    "ask_others",
    "milliseconds",
    "now_of",
    "parking_of",
    "pause",
    "question_deadline",
    "question_to",
    "sleep",
    "sleep_until",
    "wait_for_event",
]

Duration: TypeAlias = float | timedelta
"""A number of seconds, or a `timedelta`."""

Recipient: TypeAlias = str | Principal
"""Who can answer a question: the members of a group or scope, by its name, or one principal, by its id."""

LONGEST_PAUSE_MS = 2000
"""The longest wait for which the function stays in memory. A task that waits longer is parked."""
_FIRST_LOOK_MS = 500
"""When a task looks for an event again that may have been sent while the task was being parked.

After that, each look comes when the task has waited as long again, in case a sender was lost before it woke
the task.
"""
_MAX_MS = 1 << 53
"""The longest duration, in milliseconds."""


def milliseconds(duration: Duration, what: str) -> int:
    """Return a duration in milliseconds; raises `ValueError` if it is negative, or not finite."""
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not math.isfinite(seconds):
        raise ValueError(f"{what} must be a number of seconds or a timedelta, and is {duration!r}.")
    if not 0 <= seconds * 1000 <= _MAX_MS:
        raise ValueError(f"{what} must not be negative or longer than a lifetime, and is {duration!r}.")
    return round(seconds * 1000)


async def parking_of(run: Run, act: str) -> Parking:
    """Return how the call waits, after making a task of it; raises `Failure` if it cannot be one."""
    call = run.call
    if call.carrier.parking is None and call.convert is not None:
        await run.reach(call.convert)
    if _waits_in_process(run):
        raise Failure(
            f"The tool has to {act}, and its task cannot be parked, because the tool has replay=False. "
            "Wait in the function, or remove replay=False."
        )
    if call.carrier.parking is None:
        raise Failure(
            f"The tool has to {act}, and only a task can do that. Call the tool as a task, with a client "
            "that accepts tasks."
        )
    return call.carrier.parking


# Time


async def sleep(run: Run, length: int, key: str | None) -> None:
    """Wait for so many milliseconds from the first run on that gets here."""
    await _sleep(run, key, length=length)


async def sleep_until(run: Run, when: datetime, key: str | None) -> None:
    """Wait until a time; raises `ValueError` for a time without a time zone."""
    if when.tzinfo is None:
        raise ValueError(f"ctx.sleep_until needs a time with a time zone, and got {when!r}.")
    await _sleep(run, key, until=round(when.timestamp() * 1000))


async def _sleep(run: Run, key: str | None, *, length: int = 0, until: int | None = None) -> None:
    run.check_outside_step("sleep")
    # Sleeps without a key are counted within their branch.
    name = escape(key) if key else f"@{branch}" if (branch := run.branch) else ""
    entry = await next_key(run, "sleep", name)
    recorded = run.journal.find(entry)
    if recorded is MISSING:
        recorded = now_of(run) + length if until is None else until
        run.journal.record(entry, recorded)
    await pause(run, entry, recorded)


async def pause(run: Run, entry: str, until: int) -> None:
    """Wait until a time that the journal has. A task that waits for long is parked."""
    left = until - now_of(run)
    if left <= 0:
        await run.yield_in_replay()
    elif left <= LONGEST_PAUSE_MS or _waits_in_process(run):
        with run.activity:
            await asyncio.sleep(left / 1000)
    else:
        await parking_of(run, "wait")
        await run.park(entry, Wait(until=until))


def _waits_in_process(run: Run) -> bool:
    """Return whether the call is a task whose function is not run again."""
    return run.call.task_id is not None and run.call.carrier.parking is None


def now_of(run: Run) -> int:
    """Return the time of a run in milliseconds since 1970; in a task, as the store has it."""
    parking = run.call.carrier.parking
    return int(wall_clock.now() * 1000) if parking is None else parking.now()


# Deadlines


class Deadline:
    """The time within which something has to come, counted from the first run that waits for it.

    With `remind`, the task also wakes after each such time, and reminds those who can answer.
    """

    __slots__ = ("_message", "_parking", "_remind", "_run", "_within")

    def __init__(
        self,
        run: Run,
        parking: Parking,
        message: str,
        *,
        within: Duration | None,
        remind: Duration | None = None,
    ) -> None:
        self._run = run
        self._parking = parking
        self._message = message
        self._within = None if within is None else milliseconds(within, "within")
        self._remind = None if remind is None else milliseconds(remind, "remind")
        if self._remind == 0:
            raise ValueError("remind must be longer than 0 seconds.")

    def check(self, key: str) -> None:
        """Raise `Unanswered` if an earlier run has given up."""
        if self._run.journal.find(f"unanswered:{key}") is not MISSING:
            raise Unanswered(self._message)

    async def wait(self, key: str) -> Wait:
        """Return when the task wakes; raises `Unanswered` if the time is over, in every later run too."""
        self.check(key)
        journal, now = self._run.journal, self._parking.now()
        times = journal.find(f"within:{key}")
        if times is MISSING:
            times = [now, None if self._within is None else now + self._within]
            journal.record(f"within:{key}", times)
        asked, deadline = times
        if deadline is not None and self._parking.has_read_until(deadline):
            journal.record(f"unanswered:{key}", True)
            await self._run.commit()
            raise Unanswered(self._message)
        if self._remind is None:
            return Wait(until=deadline, asked=asked, deadline=deadline)
        reminded = max(now - asked, 0) // self._remind
        next_reminder = asked + (reminded + 1) * self._remind
        until = next_reminder if deadline is None else min(next_reminder, deadline)
        return Wait(until=until, asked=asked, deadline=deadline, reminded=reminded)


async def question_deadline(
    run: Run, message: str, *, within: Duration | None, remind: Duration | None
) -> Deadline:
    """Return the deadline of a question to the caller."""
    parking = await parking_of(run, "wait for an answer for a limited time")
    return Deadline(run, parking, f"Nobody has answered in time: {message}", within=within, remind=remind)


# Questions to others


async def ask_others(
    run: Run,
    question: Elicit | OpenUrl,
    key: str | None,
    check: Check | None,
    *,
    to: Recipient | Sequence[Recipient],
    approvals: int | None,
    within: Duration | None,
    remind: Duration | None,
) -> list[ElicitResult]:
    """Return the answers of others to a question: so many that are accepted, or one that declines.

    Raises `Unanswered` if they do not come in time, and `ReplayMismatch` as `Run.ask` does.
    """
    run.check_outside_step("ask")
    (groups, people), needed = _recipients(to), _needed(approvals)
    names = (*groups, *(f"Principal({id!r})" for id in people))
    parking = await parking_of(run, f"ask {', '.join((*groups, *people))}")
    key = await run.question_key(key or _default_key(question, names, needed))
    message = f"Nobody has answered in time: {question_to(to)}"
    deadline = Deadline(run, parking, message, within=within, remind=remind)
    deadline.check(key)
    answers = _read(run, question, key, check, names)
    run.note_answerers(key, [Principal(id) for id in answers.accepted])
    accepted = [*answers.accepted.values()]
    if len(accepted) >= needed or any(answer.action != "accept" for answer in accepted):
        run.note_used(others_entry(key), answers.numbers)
        await run.yield_in_replay()
        return accepted
    refuse_used(run, others_entry(key))
    run.note_question(key, question, names)
    wait = await deadline.wait(key)
    asked = msgspec.structs.replace(
        wait,
        question=dump_questions({key: question})[key],
        to=groups,
        people=people,
        approvals=needed,
        answered_by=tuple(answers.accepted),
        unfit=answers.unfit,
        problem=answers.problem,
    )
    return await run.park(key, asked)


def question_to(to: Recipient | Sequence[Recipient]) -> str:
    """Return what messages for the caller say of a question to others, which the caller must not see."""
    groups, people = _recipients(to)
    return f"the question to {describe_audience((*groups, *people))}."


def _recipients(to: Recipient | Sequence[Recipient]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the groups that are asked, and the ids of the people; raises `ValueError` for anything else."""
    recipients = (to,) if isinstance(to, str | Principal) else tuple(to)
    people = [recipient.id for recipient in recipients if isinstance(recipient, Principal)]
    groups = [recipient for recipient in recipients if not isinstance(recipient, Principal)]
    if not recipients or not all(isinstance(name, str) and name for name in (*groups, *people)):
        raise ValueError(
            f"ctx.elicit(to=) takes the name of a group or scope, or a Principal with an id, and got {to!r}."
        )
    return tuple(dict.fromkeys(groups)), tuple(dict.fromkeys(people))


def _needed(approvals: int | None) -> int:
    if approvals is None:
        return 1
    if not isinstance(approvals, int) or approvals < 1:
        raise ValueError(f"ctx.elicit(approvals=) must be a number above 0, and is {approvals!r}.")
    return approvals


def _default_key(question: Elicit | OpenUrl, names: Sequence[str], needed: int) -> str:
    """Return the default key of a question to others, which depends on those who are asked."""
    asked = msgspec.json.encode([sorted(names), needed])
    return f"{question_key(question)}_{hashlib.sha256(asked).hexdigest()[:8]}"


class _Answers(NamedTuple):
    """The recorded answers of others to a question."""

    accepted: dict[str, ElicitResult]
    """The first answer of each principal that fits, by the id of the principal."""
    numbers: list[int]
    """Which of the recorded answers these are."""
    unfit: Counter[str]
    """How many answers of each principal do not fit."""
    problem: str | None
    """Why the last answer does not fit; `None` if it does."""


def _read(
    run: Run, question: Elicit | OpenUrl, key: str, check: Check | None, names: Sequence[str]
) -> _Answers:
    """Read the answers, or those with which an earlier run has gone on: no other one counts after that."""
    entries, entry = run.journal.entries, others_entry(key)
    recorded: Sequence[OtherAnswer] = entries.get(entry, ())
    used = entries.get(used_key(entry), True)  # earlier versions did not note which
    accepted, numbers, unfit, problem = dict[str, ElicitResult](), list[int](), Counter[str](), None
    for number, (principal, _, response) in enumerate(recorded):
        if used is not True and number not in used:
            continue
        answer, problem = check_recorded(run, question, entry, response, check)
        run.check_replayed_answer(key, question, is_accepted=problem is None, audience=names)
        if problem is not None:
            unfit[principal] += 1
        elif principal not in accepted:
            accepted[principal] = answer
            numbers.append(number)
    return _Answers(accepted, numbers, unfit, problem)


# Events


@functools.lru_cache(maxsize=256)
def _adapter(type: Any) -> pydantic.TypeAdapter[Any]:
    return pydantic.TypeAdapter(adapt_typed_dicts(type))


async def wait_for_event(run: Run, name: str, key: str, type: Any, *, within: Duration | None) -> Any:
    """Return the data of the next event of a name and key that this task has not received yet.

    Raises `Unanswered` if it does not come in time, and `Failure` if its data does not fit the type. Stops
    the run if the data fitted the type of an earlier version.
    """
    run.check_outside_step("wait for an event")
    parking = await parking_of(run, "wait for an event")

    def load(data: Any) -> Any:
        try:
            return data if type is Any else _adapter(type).validate_python(data)
        except pydantic.ValidationError as error:
            raise Failure(f"The event {name!r} for {key!r} does not fit: {error}") from error

    journal, base = run.journal, f"{escape(name, colons=True)}:{escape(key)}"
    entry = await next_key(run, "event", base)
    deadline = Deadline(run, parking, f"The event {name!r} for {key!r} has not come in time.", within=within)
    deadline.check(entry)
    found = journal.find(entry)
    if found is MISSING:
        event = await _next_event(run, parking, name, key, base)
        if event is None:
            wait = await deadline.wait(entry)
            now = parking.now()
            look = now + max(now - wait.asked, _FIRST_LOOK_MS)
            until = look if wait.deadline is None else min(look, wait.deadline)
            await run.park(entry, msgspec.structs.replace(wait, until=until, event=(name, key)))
        found = {"number": event.number, "id": event.id, "at": event.at, "data": event.data}
        value, error = read_new(run, entry, event.data, load)
        journal.record(entry, found)
        await run.commit()
        if error is not None:
            raise error
        return value
    await run.yield_in_replay()
    return read_recorded(run, entry, found["data"], load, f"the event {name!r} for {key!r}")


async def _next_event(run: Run, parking: Parking, name: str, key: str, base: str) -> Event | None:
    """Return the next event that no branch of the task has received; `None` if there is none."""
    while True:
        last = _last_number(run, base)
        # An activity: the wait has to be known before another branch parks the task.
        events = await run.reach(functools.partial(parking.events, name, key, after=last))
        if not events:
            return None
        if last == _last_number(run, base):  # another branch may have received the event meanwhile
            return events[0]


def _last_number(run: Run, base: str) -> int:
    """Return the number of the last event of a name and key that the task has received; 0 for none."""
    first = f"event:{base}"
    numbers = [
        int(found["number"])
        for entry, found in run.journal.entries.items()
        if entry == first or entry.startswith(f"{first}#")
    ]
    return max(numbers, default=0)
