"""The thread pool of a server."""

from __future__ import annotations

import asyncio
import threading

import pytest

from antiphon.runtime.execution.executor import ThreadExecutor
from tests.support.polling import until


async def test_closing_says_which_functions_keep_the_process(caplog: pytest.LogCaptureFixture) -> None:
    began, ends = threading.Event(), threading.Event()

    def work() -> None:
        began.set()
        ends.wait(30)

    threads = ThreadExecutor(2)
    waiting = asyncio.ensure_future(threads.run(work, {}))
    await until(began.is_set)
    waiting.cancel()
    threads.close()
    ends.set()
    assert "cannot be interrupted: 1. The process ends when they have returned" in caplog.text


async def test_closing_is_silent_if_nothing_runs(caplog: pytest.LogCaptureFixture) -> None:
    threads = ThreadExecutor(2)
    assert await threads.run(lambda: "done", {}) == "done"
    threads.close()
    assert caplog.text == ""
