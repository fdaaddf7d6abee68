"""A signal always wakes a command that waits."""

from __future__ import annotations

import subprocess
import sys

from tests.cli.command import PATIENCE, plain_environment
from tests.support.process import ROOT

# The kernel may hand a signal to another thread, or to the main thread just before it begins to wait. In both
# cases the wait goes on. The thread waits in the same way, and then wakes the event loop by force.
_COMMAND = """
import asyncio, signal, sys, threading
from antiphon.cli.targets import run_async

ended = threading.Event()

async def work():
    loop = asyncio.get_running_loop()

    def interrupt():
        waiting.wait()
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        print("noticed" if ended.wait(60) else "not noticed", flush=True)
        if not ended.is_set():
            loop.call_soon_threadsafe(lambda: None)

    waiting = threading.Event()
    threading.Thread(target=interrupt).start()
    loop.call_soon(waiting.set)  # the last thing before the wait
    try:
        await asyncio.Event().wait()
    finally:
        ended.set()

try:
    run_async(work())
except KeyboardInterrupt:
    sys.exit(130)
"""


def test_a_signal_that_does_not_interrupt_the_wait_is_noticed_at_once() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _COMMAND],
        cwd=ROOT,
        env=plain_environment(),
        capture_output=True,
        encoding="utf-8",
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "noticed\n", "")
