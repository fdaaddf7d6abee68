"""Ctrl-C on a server: the first one says what the server waits for, the second one ends it at once.

And a supervisor that is killed leaves no worker process behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import re
import signal
import socket
import threading
from pathlib import Path

import httpx2
import pytest

from antiphon import Client
from antiphon.transport.server.interrupts import Interrupts, Running
from tests.cli.command import PATIENCE, listens, running, worker_processes
from tests.cli.pseudo_terminal import CTRL_C, TerminalSession, in_terminal
from tests.cli.test_stopping import Calls, tool_call
from tests.support.polling import wait_until

SERVER = Path(__file__).parent / "stopping_server.py"
ENDED = (130, "")
SECRETS = {"ANTIPHON_SECRETS": "a secret of sixteen or more"}


def address(terminal: TerminalSession) -> str:
    """Return the URL that a server prints."""
    assert terminal.process.stdout is not None
    found = re.search(r"served at (http://\S+?)[. ]( |Tools|by)", terminal.process.stdout.readline())
    assert found
    return found[1]


def store(folder: Path) -> str:
    return f"sqlite:///{folder / 'tasks.db'}"


async def submit(url: str, *names: str) -> None:
    async with Client(url) as client:
        for name in names:
            await client.submit("work", name=name)


def wait_for_workers(url: str, count: int) -> None:
    """Wait until so many processes have answered."""
    seen: set[int] = set()

    def has_seen_all() -> bool:
        answer = httpx2.post(url, json=tool_call(1, "process"), timeout=PATIENCE).json()
        seen.add(int(answer["result"]["content"][0]["text"]))
        return len(seen) == count

    wait_until(has_seen_all, PATIENCE)


def abandoned_call(url: str, name: str) -> threading.Thread:
    """Make a call in the background, which the server never answers."""

    def send() -> None:
        with pytest.raises(httpx2.TransportError):
            httpx2.post(url, json=tool_call(1, "hold", name=name), timeout=PATIENCE)

    thread = threading.Thread(target=send)
    thread.start()
    return thread


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ((), "Waiting for 2 calls and 1 task, 30 s at most. Press Ctrl-C again to stop at once."),
        (("--workers", "2"), "30 s at most. Press Ctrl-C again to stop at once."),
    ],
    ids=["alone", "workers"],
)
def test_the_first_ctrl_c_says_what_is_waited_for_and_the_second_ends_it(
    tmp_path: Path, options: tuple[str, ...], says: str
) -> None:
    env = {"FOLDER": str(tmp_path), **SECRETS}
    command = ("run", SERVER, "--port", "0", "--store", store(tmp_path), *options)
    with in_terminal(*command, env=env) as terminal:
        url = address(terminal)
        wait_for_workers(url, 2 if options else 1)
        calls = [abandoned_call(url, "first"), abandoned_call(url, "second")]
        asyncio.run(submit(url, "task"))
        wait_until(lambda: all((tmp_path / name).exists() for name in ("first", "second", "task")))
        terminal.press(CTRL_C)
        terminal.expect(says)
        while options and count_waiting(terminal.screen) < 3:
            terminal.expect(says)
        terminal.press(CTRL_C)
        if options:
            press_until_it_ends(terminal)
        assert terminal.wait() == ENDED
    for call in calls:
        call.join()
    assert "Traceback" not in terminal.screen


def count_waiting(screen: str) -> int:
    """Return how many calls and tasks the worker processes say that they wait for."""
    lines = re.findall(r"Worker process \d+ waits for (.*), 30 s", screen)
    return sum(int(count) for line in lines for count in re.findall(r"\d+", line))


def press_until_it_ends(terminal: TerminalSession) -> None:
    """Press Ctrl-C again, as people do: on a busy machine, two are one for a process that did not run."""
    looks = itertools.count(1)

    def has_ended() -> bool:
        if next(looks) % 50 == 0:
            terminal.press(CTRL_C)
        return terminal.process.poll() is not None

    wait_until(has_ended, PATIENCE)


def test_a_worker_process_that_a_second_ctrl_c_ended_ends_the_command_as_one(tmp_path: Path) -> None:
    # Two signals that arrive close together are one for a process that is busy: here, the supervisor.
    env = {"FOLDER": str(tmp_path), **SECRETS}
    with running(SERVER, "--workers", "2", "--store", store(tmp_path), directory=tmp_path, env=env) as server:
        wait_for_workers(server.url, 2)
        call = abandoned_call(server.url, "held")
        wait_until(lambda: (tmp_path / "held").exists())
        workers = worker_processes(server.process.pid)
        for pid in (server.process.pid, *workers):
            os.kill(pid, signal.SIGINT)
        wait_until(lambda: "waits for 1 call" in server.log)
        for pid in workers:
            with contextlib.suppress(ProcessLookupError):  # one has nothing to wait for
                os.kill(pid, signal.SIGINT)
        assert server.process.wait(PATIENCE) == 130
        call.join()


def test_a_worker_says_which_tasks_it_waits_for(tmp_path: Path) -> None:
    env = {"FOLDER": str(tmp_path)}
    with running(SERVER, "--no-worker", "--store", store(tmp_path), directory=tmp_path, env=env) as server:
        asyncio.run(submit(server.url, "one", "other"))
        with in_terminal("worker", SERVER, "--store", store(tmp_path), env=env) as terminal:
            wait_until(lambda: (tmp_path / "one").exists() and (tmp_path / "other").exists())
            terminal.press(CTRL_C)
            terminal.expect("Waiting for 2 tasks, 30 s at most. Press Ctrl-C again to stop at once.")
            terminal.press(CTRL_C)
            assert terminal.wait()[0] == 130
    assert "Traceback" not in terminal.screen


@pytest.mark.parametrize("options", [(), ("--workers", "2")], ids=["alone", "workers"])
def test_a_server_that_waits_for_nothing_says_nothing(tmp_path: Path, options: tuple[str, ...]) -> None:
    env = {"FOLDER": str(tmp_path), **SECRETS}
    command = ("run", SERVER, "--port", "0", "--store", store(tmp_path), *options)
    with in_terminal(*command, env=env) as terminal:
        wait_for_workers(address(terminal), 2 if options else 1)
        terminal.press(CTRL_C)
        assert terminal.wait() == (0, "")
    assert "Waiting" not in terminal.screen
    assert "Traceback" not in terminal.screen


def test_worker_processes_end_with_their_supervisor(tmp_path: Path) -> None:
    env = {"FOLDER": str(tmp_path), **SECRETS}
    with running(SERVER, "--workers", "2", "--store", store(tmp_path), directory=tmp_path, env=env) as server:
        port = int(re.findall(r":(\d+)/", server.url)[0])
        wait_for_workers(server.url, 2)
        calls = Calls(server.url)
        calls.make(1, "hold", name="held")
        wait_until(lambda: (tmp_path / "held").exists())
        children = worker_processes(server.process.pid)
        assert len(children) >= 2
        os.kill(server.process.pid, signal.SIGKILL)
        server.process.wait()
        wait_until(lambda: "The parent process has died. This worker process shuts down." in server.log)
        wait_until(lambda: not listens(port))
        (tmp_path / "end").touch()  # the running call has time to finish
        calls.join()
        assert calls.responses[1].json()["result"]["content"][0]["text"] == "done"
        wait_until(lambda: not any(_is_alive(child) for child in children))
    with socket.create_server(("127.0.0.1", port)):
        pass  # the port is free


def _is_alive(pid: int) -> bool:
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (Running(1, 0), "Waiting for 1 call, 5 s at most. Press Ctrl-C again to stop at once.\n"),
        (Running(0, 1), "Waiting for 1 task, 5 s at most. Press Ctrl-C again to stop at once.\n"),
        (
            Running(1, 2),
            "Waiting for 1 call and 2 tasks, 5 s at most. Press Ctrl-C again to stop at once.\n",
        ),
        (Running(), ""),
    ],
)
def test_the_sentence_counts_calls_and_tasks(
    found: Running, says: str, capfd: pytest.CaptureFixture[str]
) -> None:
    Interrupts(lambda: found, 5.0).handle()
    assert capfd.readouterr().err == says
