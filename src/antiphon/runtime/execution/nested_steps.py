"""Steps inside other steps: they are recorded until the outer step is, and not called again after that.

Owns their keys, and which step the code runs in. The run of the function records them.
"""

from __future__ import annotations

import contextvars
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from antiphon.runtime.authoring.step import Step
from antiphon.runtime.execution.fingerprints import StepPrint
from antiphon.runtime.execution.journal import MISSING
from antiphon.runtime.execution.recorded import read_new, read_recorded

if TYPE_CHECKING:
    from antiphon.runtime.execution.run import Run

__all__ = ["NESTED_KIND", "current_step", "run_nested_step"]

NESTED_KIND: Final = "nested"
"""The prefix of steps inside other steps. It never changes: logs and request states contain it."""

current_step: contextvars.ContextVar[str | None] = contextvars.ContextVar("antiphon_step", default=None)
"""The identity of the step that the code runs in; `None` outside of steps."""


async def run_nested_step(
    run: Run,
    outer: str,
    name: str,
    work: Callable[[], Awaitable[Any]],
    step: Step,
    fingerprint: StepPrint,
) -> Any:
    """Return the recorded result of a step inside another step, or run the step and record its result.

    The step has no place among the steps of the function: its key names the outer step and its own arguments.
    """
    path = f"{outer.removeprefix(f'{NESTED_KIND}:')}/{name}({fingerprint.digest})"
    key = run.journal.key(NESTED_KIND, path)
    found = run.journal.find(key)
    if found is not MISSING:
        return read_recorded(run, key, found, step.read, f"a result of the step {name!r}")
    if (confirming := run.call.carrier.confirm()) is not None:
        await run.confirm(confirming)
    run.journal.before_step(key)
    await run.settle()
    token = current_step.set(key)
    try:
        data = step.dump(await work())
    finally:
        current_step.reset(token)
    value, error = read_new(run, key, data, step.read)
    run.journal.record(key, data)
    await run.commit()
    if error is not None:
        raise error
    return value
