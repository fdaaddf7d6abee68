"""Which exceptions are failures of a call, and which are signs that the call is being stopped."""

from __future__ import annotations

import asyncio

import pytest

from antiphon.runtime.execution.failures import StopSignal, as_exception, contain, is_failure
from antiphon.runtime.execution.supervisor import Supervised
from tests.support.polling import turns


@pytest.mark.parametrize(
    "raised", [ValueError(), SystemExit(1), KeyboardInterrupt(), BaseException(), GeneratorExit()]
)
async def test_what_the_running_function_raises_is_a_failure(raised: BaseException) -> None:
    assert is_failure(raised, Supervised.here())


async def test_the_signals_of_the_library_are_no_failure() -> None:
    assert not is_failure(StopSignal(), Supervised.here())


async def test_a_cancellation_is_a_failure_only_if_nobody_cancelled_the_call() -> None:
    work = Supervised.here()
    assert is_failure(asyncio.CancelledError(), work)
    work.stop("cancelled")
    with pytest.raises(asyncio.CancelledError):
        await turns()
    assert not is_failure(asyncio.CancelledError(), work)
    work.uncancel()


async def test_a_coroutine_that_is_closed_has_not_failed() -> None:
    work, found = Supervised(), []

    async def function() -> None:
        work.task = asyncio.current_task()
        try:
            await asyncio.get_running_loop().create_future()
        except GeneratorExit as closed:
            found.append(is_failure(closed, work))
            raise

    coroutine = function()
    task = asyncio.create_task(coroutine)
    await turns()
    task.cancel()
    coroutine.close()
    assert found == [False]
    await asyncio.wait({task})
    assert isinstance(task.exception(), RuntimeError)  # asyncio finds the coroutine closed


def test_without_an_event_loop_no_task_is_current() -> None:
    assert not is_failure(GeneratorExit(), Supervised())


@pytest.mark.parametrize("raised", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
async def test_what_a_task_cannot_hand_on_is_returned(raised: BaseException) -> None:
    async def function() -> str:
        raise raised

    assert await asyncio.create_task(contain(function())) == (None, raised)
    assert as_exception(raised).__cause__ is raised
    assert type(raised).__name__ in str(as_exception(raised))


async def test_other_exceptions_pass() -> None:
    async def function() -> str:
        raise ValueError("x")

    with pytest.raises(ValueError, match="x"):
        await contain(function())
    error = ValueError("x")
    assert as_exception(error) is error
