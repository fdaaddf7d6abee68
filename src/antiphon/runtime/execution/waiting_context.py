"""The methods of the `Context` for tasks that take long: sleep, events, many steps, and who has answered.

Owns their documentation. `waiting.py` and `retrying.py` do the work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime, timedelta
from typing import Any, TypeVar, overload

from antiphon.model.identity import Principal
from antiphon.runtime.authoring import step as steps
from antiphon.runtime.execution import waiting
from antiphon.runtime.execution.call_context import CallContext, State
from antiphon.runtime.execution.retrying import Retry
from antiphon.runtime.execution.waiting import Duration

__all__ = ["WaitingContext"]

T = TypeVar("T")
Item = TypeVar("Item")


class WaitingContext(CallContext[State]):
    """The part of the `Context` with which a task waits."""

    __slots__ = ()

    async def sleep(
        self,
        seconds: Duration = 0.0,
        *,
        minutes: float = 0.0,
        hours: float = 0.0,
        days: float = 0.0,
        key: str | None = None,
    ) -> None:
        """Wait for a time. A task that waits for more than two seconds is parked, also for months.

        The time counts from the first run that gets here. A task wakes at most a second late, also after a
        restart. As with `elicit`, the function may run again. Raises `Failure` if the call has to be a task
        and cannot be one.
        """
        extra = timedelta(minutes=minutes, hours=hours, days=days)
        length = waiting.milliseconds(seconds, "ctx.sleep") + waiting.milliseconds(extra, "ctx.sleep")
        await waiting.sleep(self._run, length, key)

    async def sleep_until(self, when: datetime, *, key: str | None = None) -> None:
        """Wait until a time, which needs a time zone. Otherwise like `sleep`."""
        await waiting.sleep_until(self._run, when, key)

    @overload
    async def event(self, name: str, *, key: str, within: Duration | None = None) -> Any: ...
    @overload
    async def event(self, name: str, *, key: str, type: type[T], within: Duration | None = None) -> T: ...
    async def event(self, name: str, *, key: str, type: Any = Any, within: Duration | None = None) -> Any:
        """Wait for an event, and return its data as `type`. `Server.send_event` sends events.

        `name` is the kind of event and `key` the thing that it concerns, such as the id of an order. The call
        gets each event once, in the order in which they were sent, also those that were sent before. It has
        to be a task. Raises `Unanswered` if no event comes `within` the time, in seconds or as a `timedelta`,
        and `Failure` if the data does not fit the type, or if the call cannot be a task.
        """
        return await waiting.wait_for_event(self._run, name, key, type, within=within)

    def answered_by(self, key: str) -> Principal:
        """Return the principal that answered the question of this key; with `approvals`, the first one.

        Raises `LookupError` if nobody has answered it.
        """
        found = self.approved_by(key)
        if not found:
            raise LookupError(f"Nobody has answered a question with the key {key!r}.")
        return found[0]

    def approved_by(self, key: str) -> list[Principal]:
        """Return the principals that answered the question of this key, in the order of their answers.

        Answers count that were accepted, after the function has asked. Nobody is in the list before.
        """
        return list((self._run.answerers or {}).get(key, ()))

    async def map(
        self,
        function: Callable[[Item], Awaitable[T]] | Callable[[Item], T],
        items: Iterable[Item],
        *,
        at_once: int = 10,
        key: str | None = None,
        retry: Retry | None = None,
    ) -> list[T]:
        """Run a step for each item, up to `at_once` at the same time, and return the results in order.

        Each result is recorded: when the call runs again, only the steps that are missing run. The items
        must be the same in every run. The first step that fails stops the others, and its error is raised.
        """
        if not isinstance(at_once, int) or at_once < 1:
            raise ValueError(f"ctx.map(at_once=) must be a number above 0, and is {at_once!r}.")
        name = key or steps.of(function).name
        results: dict[int, T] = {}
        numbered = enumerate(items)

        async def work() -> None:
            for number, item in numbered:
                results[number] = await self.step(function, item, key=f"{name}[{number}]", retry=retry)

        workers = [asyncio.ensure_future(work()) for _ in range(at_once)]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
        return [results[number] for number in range(len(results))]

    async def step(self, function: Callable[..., Any], /, *args: Any, **options: Any) -> Any:
        """Call a function once and record its result. `Context` has it."""
        raise NotImplementedError
