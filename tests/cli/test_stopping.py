"""Stopping `antiphon run` with SIGTERM: readiness, one drain for calls and tasks, and errors for the rest."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from antiphon import Client
from tests.cli.command import PATIENCE, Running, running
from tests.support.polling import wait_until

SERVER = Path(__file__).parent / "stopping_server.py"
BOTH = {"Accept": "application/json, text/event-stream"}


@contextmanager
def stopping(folder: Path, *options: str, name: str = "first", **settings: float) -> Iterator[Running]:
    """Run the server; its notes and its log are in the folder."""
    directory = folder / name
    directory.mkdir()
    env = {"FOLDER": str(folder), **{key.upper(): str(value) for key, value in settings.items()}}
    with running(SERVER, *options, directory=directory, env=env) as server:
        yield server


def tool_call(id: int, tool: str, **arguments: Any) -> dict[str, Any]:
    return {
        "jsonrpc": "2.0",
        "id": id,
        "method": "tools/call",
        "params": {"name": tool, "arguments": arguments},
    }


class Calls:
    """Calls that are made in threads, with their responses by id."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._threads: list[threading.Thread] = []
        self.responses: dict[int, httpx2.Response] = {}

    def make(self, id: int, tool: str, headers: dict[str, str] | None = None, **arguments: Any) -> None:
        """Make a call in the background."""

        def send() -> None:
            self.responses[id] = httpx2.post(
                self._url, json=tool_call(id, tool, **arguments), headers=headers, timeout=PATIENCE
            )

        thread = threading.Thread(target=send)
        thread.start()
        self._threads.append(thread)

    def join(self) -> None:
        """Wait for the responses."""
        for thread in self._threads:
            thread.join(PATIENCE)


def status(url: str) -> int:
    return httpx2.get(url.removesuffix("/mcp") + "/readyz", timeout=PATIENCE).status_code


def session_of(url: str) -> dict[str, str]:
    """Open a session of 2025-11-25, and return its headers."""
    params = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "0"},
    }
    opening = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
    token = httpx2.post(url, json=opening, headers=BOTH, timeout=PATIENCE).headers["mcp-session-id"]
    return {**BOTH, "Mcp-Session-Id": token, "MCP-Protocol-Version": "2025-11-25"}


@pytest.mark.parametrize("options", [(), ("--workers", "2")], ids=["alone", "workers"])
def test_requests_are_served_while_the_probe_already_says_that_the_server_leaves(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    secrets = {"ANTIPHON_SECRETS": "a secret of sixteen or more"}
    env = {"FOLDER": str(tmp_path), "DELAY": "4", **secrets}
    store = ("--store", f"sqlite:///{tmp_path / 'tasks.db'}")
    with running(SERVER, *options, *store, directory=tmp_path, env=env) as server:
        wait_until(lambda: status(server.url) == 200, PATIENCE)
        calls = Calls(server.url)
        calls.make(1, "hold", name="held")
        wait_until(lambda: (tmp_path / "held").exists(), PATIENCE)
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: status(server.url) == 503, PATIENCE)
        answer = httpx2.post(server.url, json=tool_call(2, "ping"), timeout=PATIENCE).json()
        assert answer["result"]["content"][0]["text"] == "here"
        (tmp_path / "end").touch()
        calls.join()
        assert calls.responses[1].json()["result"]["content"][0]["text"] == "done"
        assert server.process.wait(PATIENCE) == 0
    assert "Traceback" not in server.log


async def test_a_process_that_was_asked_to_stop_claims_no_task(tmp_path: Path) -> None:
    store = ("--store", f"sqlite:///{tmp_path / 'tasks.db'}")
    with stopping(tmp_path, *store, delay=600) as first:
        first.process.send_signal(signal.SIGTERM)
        wait_until(lambda: status(first.url) == 503, PATIENCE)
        async with Client(first.url) as client:
            task = await client.submit("work", name="worked")
            (tmp_path / "end").touch()
            with stopping(tmp_path, *store, name="second") as second:
                result = await client.task(task.id).drive(timeout=PATIENCE)
                assert result.text == str(second.process.pid)
        first.process.kill()
    assert (tmp_path / "worked").read_text() == f"{second.process.pid}\n"


async def test_a_task_is_released_although_a_call_takes_the_whole_drain(tmp_path: Path) -> None:
    store = ("--store", f"sqlite:///{tmp_path / 'tasks.db'}")
    with stopping(tmp_path, *store, drain=1) as first:
        calls = Calls(first.url)
        async with Client(first.url) as client:
            task = await client.submit("work", name="worked")
            calls.make(1, "hold", name="held")
            wait_until(lambda: (tmp_path / "held").exists() and (tmp_path / "worked").exists(), PATIENCE)
        assert first.terminate() == 0
        calls.join()
    assert calls.responses[1].status_code == 503
    (tmp_path / "end").touch()
    with stopping(tmp_path, *store, name="second") as second:
        async with Client(second.url) as client:
            # Its lease of 60 seconds has not ended: it was released.
            result = await client.task(task.id).drive(timeout=PATIENCE / 2)
            assert result.text == str(second.process.pid)


@pytest.mark.parametrize("options", [(), ("--workers", "2")], ids=["alone", "workers"])
def test_a_call_that_outlives_the_drain_gets_a_json_rpc_error(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    env = {"FOLDER": str(tmp_path), "DRAIN": "1", "ANTIPHON_SECRETS": "a secret of sixteen or more"}
    store = ("--store", f"sqlite:///{tmp_path / 'tasks.db'}")
    with running(SERVER, *options, *store, directory=tmp_path, env=env) as server:
        wait_until(lambda: status(server.url) == 200, PATIENCE)
        calls, session = Calls(server.url), session_of(server.url)
        calls.make(1, "hold", name="draft")
        calls.make(2, "hold", session, name="session")
        calls.make(3, "hold", session, name="stream", speaks=True)
        names = ("draft", "session", "stream")
        wait_until(lambda: all((tmp_path / name).exists() for name in names), PATIENCE)
        with httpx2.stream(
            "GET", server.url, headers={**session, "Accept": "text/event-stream"}, timeout=PATIENCE
        ) as listening:
            assert listening.status_code == 200
            assert server.terminate() == 0
            assert b"error" not in b"".join(listening.iter_raw())
        calls.join()
    for id in (1, 2):
        answer = calls.responses[id]
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "1"
        assert answer.json()["id"] == id
        assert answer.json()["error"]["code"] == -32603
        assert "The server shut down before it finished this request." in answer.json()["error"]["message"]
    streamed = calls.responses[3]
    assert streamed.status_code == 200
    assert '"id":3' in streamed.text
    assert "The server shut down before it finished this request." in streamed.text
    assert "Stopping" in server.log
    assert "Traceback" not in server.log


def test_a_server_that_is_asked_to_stop_again_and_again_exits_with_code_0(tmp_path: Path) -> None:
    with running(SERVER, directory=tmp_path, env={"FOLDER": str(tmp_path)}) as server:
        while server.process.poll() is None:
            server.process.terminate()
            os.sched_yield()
        assert server.process.returncode == 0
        assert "Traceback" not in server.log
