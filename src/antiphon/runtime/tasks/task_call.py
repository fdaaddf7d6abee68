"""The call that runs a claimed task, built from the request in the task's log.

The caller of a task is not connected. Its questions park the task, its segments go into the log, and its
progress becomes the status message of the task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from antiphon.model.identity import Implementation
from antiphon.model.outcome import InputRequired, Result
from antiphon.model.request import CallTool, RequestMeta
from antiphon.model.segment import CallerMessage
from antiphon.runtime.authoring.tool import Tool, prepend_emitted
from antiphon.runtime.carriers.base import Carrier
from antiphon.runtime.carriers.store import StoreCarrier
from antiphon.runtime.execution.call import Call, Caller
from antiphon.runtime.execution.invoke import Environment
from antiphon.runtime.execution.journal import Journal
from antiphon.runtime.execution.output_stream import LoggedOutput, OutputStream
from antiphon.runtime.execution.supervisor import Supervised
from antiphon.runtime.limits import Limits
from antiphon.runtime.tasks.claimed_task import ClaimedTask
from antiphon.runtime.tasks.held_task import HeldTask, HeldTaskWork
from antiphon.runtime.tasks.parking import TaskParking

__all__ = ["call_of", "run_with_timeout"]


def call_of(
    claimed: ClaimedTask,
    *,
    confirm: Callable[[], Awaitable[None] | None] | None = None,
    responses: Mapping[str, Any] | None = None,
    held: HeldTask | None = None,
) -> Call[CallTool]:
    """Return the call that runs a claimed task, from the request that its log recorded.

    `confirm` decides whether a step, a question or a segment may begin, in place of the claim. `responses`
    replace the answers that arrived since the last run. A function that is not run again asks through `held`,
    and waits in this process.
    """
    created = claimed.created
    client = created.get("client")
    answers = claimed.responses if responses is None else responses
    carrier: Carrier = (
        StoreCarrier(claimed.journal, confirm or claimed.confirm, TaskParking(claimed))
        if held is None
        else held.carrier
    )
    return Call(
        CallTool(name=claimed.task.tool, arguments=created["arguments"], input_responses=dict(answers)),
        id=claimed.task.id,
        request_meta=RequestMeta(
            client=None if client is None else msgspec.convert(client, Implementation),
            capabilities=created.get("capabilities", {}),
            response_modes=tuple(created.get("modes", ())),
            raw=created.get("trace", {}),
        ),
        principal=claimed.owner,
        carrier=carrier,
        caller=_TaskCaller(claimed),
        work=Supervised.here() if held is None else held.work,
    )


async def run_with_timeout(
    tool: Tool, call: Call[CallTool], environment: Environment
) -> Result | InputRequired:
    """Run a tool with its `timeout`, if it has one. Waiting for an answer does not count."""
    if tool.timeout is None:
        return await tool.run(call, environment)
    try:
        async with asyncio.timeout(tool.timeout) as timeout:
            if isinstance(call.work, HeldTaskWork):
                call.work.limit_by(timeout)
            return await tool.run(call, environment)
    except TimeoutError:
        message = f"The tool {tool.name!r} did not finish within {tool.timeout:g} seconds."
        return await prepend_emitted(call, Result(message, is_error=True))


class _TaskCaller(Caller):
    """The caller of a task is not connected: it reads the task's log."""

    def __init__(self, claimed: ClaimedTask) -> None:
        self._claimed = claimed
        self.task_id = claimed.task.id
        self.answered_in = claimed.answered_in

    @property
    def goes_on(self) -> bool:  # type: ignore[override]
        """Whether this process has released the task, or lost it to another worker."""
        return self._claimed.is_handed_over

    async def notify(self, message: CallerMessage) -> None:
        """Store progress as the status message of the task; log messages go into the server's log."""
        self._claimed.notify(message)

    def open_output(self, call: Call[Any], journal: Journal, limits: Limits) -> OutputStream:
        """Write segments into the log, after those of earlier runs."""
        return LoggedOutput(
            self._claimed.emit, logged=self._claimed.task.segments, max_bytes=limits.max_task_bytes
        )
