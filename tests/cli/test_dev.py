"""`antiphon dev`: the file is loaded again when it changes, and tasks, sessions and the socket survive."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import pty
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from antiphon import Client, InputRequired, Result
from antiphon.cli.dev.call_lines import CallLines
from antiphon.cli.dev.child import Report
from antiphon.cli.dev.outage import Outage
from antiphon.cli.dev.reloader import Reloader
from antiphon.cli.dev.watcher import FileWatcher
from antiphon.cli.run.settings import Settings
from antiphon.errors import AntiphonError
from tests.support.polling import DEADLINE, until, wait_until
from tests.support.process import end, environment

FILE = """
from pathlib import Path

from antiphon import Context, Server
from tests.support.polling import until

server = Server("developed")


@server.tool
async def word() -> str:
    return "WORD"


@server.tool(task="optional")
async def wait(started: str, gate: str) -> str:
    Path(started).touch()
    await until(Path(gate).exists)
    return "waited in WORD"


@server.tool(task="required")
async def greet(ctx: Context) -> str:
    return "Hello, " + await ctx.elicit("Who?", str)


@server.tool
async def rename(title: str, ctx: Context) -> str:
    return title + " " + await ctx.elicit("What name?", str, key="name")
"""
FORKING = """

@server.tool
async def crash(gate: str) -> None:
    import os

    from tests.support.polling import wait_until

    if os.fork():
        os._exit(3)
    os.closerange(0, 3)  # the test reads what the command prints until the end
    wait_until(Path(gate).exists)
    os._exit(0)
"""
OLD_VERSION = "2025-11-25"


class Developed:
    """A running `antiphon dev`."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self._log = log

    @property
    def log(self) -> str:
        """What the command printed."""
        return self._log.read_text(errors="replace")

    def printed(self, pattern: str) -> re.Match[str]:
        """Wait for a line, and return it."""

        def found() -> re.Match[str] | None:
            assert self.process.poll() is None, self.log
            return re.search(pattern, self.log)

        return wait_until(found, within=60.0)


@contextmanager
def developing(file: Path, *, in_terminal: bool = False) -> Iterator[Developed]:
    """Run `antiphon dev`, and write what it prints to a file, from a pseudo-terminal if asked to."""
    log = file.parent / "dev.log"
    arguments = ["dev", str(file), "--port", "0", "--console-port", "0", "--no-open"]
    with log.open("wb", buffering=0) as sink, ThreadPoolExecutor(1) as threads:
        ours, theirs = pty.openpty() if in_terminal else (-1, os.dup(sink.fileno()))
        process = subprocess.Popen(
            [sys.executable, "-m", "antiphon", *arguments],
            env={**environment(), "TERM": "xterm"},
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=subprocess.STDOUT,
        )
        os.close(theirs)
        if in_terminal:
            threads.submit(copy_terminal, ours, sink)
        try:
            yield Developed(process, log)
        finally:
            end(process)


def copy_terminal(terminal: int, sink: FileIO) -> None:
    """Copy what a terminal shows to a file, until no process has the terminal any more."""
    with os.fdopen(terminal, "rb", buffering=0) as screen, contextlib.suppress(OSError):
        while shown := screen.read(65536):
            sink.write(shown)


async def eventually(client: Client, text: str) -> None:
    """Call until the tool says a text. No call may fail meanwhile."""

    async def says() -> bool:
        return (await client.call("word")).text == text

    await until(says)


async def refused(client: Client) -> str:
    """Call until a call fails, and return why."""

    async def refusal() -> str:
        try:
            await client.call("word")
        except AntiphonError as error:
            return str(error)
        return ""

    return await until(refusal)


class RawSession:
    """A session of 2025-11-25 that is never opened again, whatever the server answers."""

    def __init__(self, url: str, http: aiohttp.ClientSession) -> None:
        self._url = url
        self._http = http
        self._headers = {"Accept": "application/json, text/event-stream"}

    async def open(self) -> None:
        """Initialize the session."""
        client = {"name": "raw", "version": "1"}
        await self.send(
            "initialize", {"protocolVersion": OLD_VERSION, "capabilities": {}, "clientInfo": client}
        )
        await self.send("notifications/initialized")

    async def send(self, method: str, params: dict[str, Any] | None = None) -> str:
        """Send a message in the session, and return the body of the response."""
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params or {}}
        if not method.startswith("notifications/"):
            message["id"] = 1
        async with self._http.post(self._url, json=message, headers=self._headers) as response:
            assert response.status in (200, 202), await response.text()
            if session := response.headers.get("Mcp-Session-Id"):
                self._headers |= {"Mcp-Session-Id": session, "MCP-Protocol-Version": OLD_VERSION}
            return await response.text()


async def test_a_changed_file_is_served_and_nothing_is_lost(tmp_path: Path) -> None:
    file = tmp_path / "server.py"
    file.write_text(FILE.replace("WORD", "one"))
    with developing(file) as dev:
        url = dev.printed(r"developed is served at (\S+)\.")[1]
        link = dev.printed(r"The console is at (\S+)")[1]
        async with (
            Client(url, elicit=lambda question: {"value": "never"}) as client,
            Client(url, protocol=OLD_VERSION) as session,
            aiohttp.ClientSession() as http,
        ):
            raw = RawSession(url, http)
            await raw.open()
            asked = await client.call_once("rename", title="Countess")
            assert isinstance(asked, InputRequired)
            task = (await client.submit("greet")).id
            await eventually(client, "one")
            await eventually(session, "one")

            gate, started = tmp_path / "gate", [tmp_path / "started0", tmp_path / "started1"]
            words = [{"started": str(path), "gate": str(gate)} for path in started]
            running_call = asyncio.create_task(client.call("wait", words[0]))
            running_task = await client.submit("wait", words[1])
            await until(lambda: all(path.exists() for path in started))

            file.write_text(FILE.replace("WORD", "two"))
            await asyncio.to_thread(dev.printed, r"Changed: \S*server\.py")
            gate.touch()
            assert (await running_call).text == "waited in one"
            assert (await running_task.result(timeout=60)).text in ("waited in one", "waited in two")
            await eventually(client, "two")
            await eventually(session, "two")

            file.write_text("def broken(:\n")
            reason = await refused(client)
            assert "cannot be served" in reason
            assert "SyntaxError" in reason
            assert "SyntaxError" in dev.log

            file.write_text(FILE.replace("WORD", "three"))
            dev.printed(r"(?s)broken.*is served at")
            await eventually(client, "three")
            await eventually(session, "three")

            # The session, the open question and the task are those of the first process.
            assert "three" in await raw.send("tools/call", {"name": "word", "arguments": {}})
            named = await client.call_once(
                "rename", title="Countess", resume=asked, answers={"name": {"value": "Ada"}}
            )
            assert isinstance(named, Result)
            assert named.text == "Countess Ada"
            assert task is not None
            handle = client.task(task)
            [key] = (await handle.status()).questions
            await handle.answer({key: {"value": "Ada"}})
            assert (await handle.result(timeout=60)).text == "Hello, Ada"

        # Each call has a line.
        assert re.search(
            r'^\d\d:\d\d:\d\d rename\(title="Countess"\) asks \d+\.\d ms$', dev.log, re.MULTILINE
        )
        assert re.search(r'^\S+ rename\(title="Countess"\) ok \d+\.\d ms$', dev.log, re.MULTILINE)
        assert re.search(rf"^\S+ greet\(\) ok as task {task} \d+\.\d ms$", dev.log, re.MULTILINE)

        # The console has outlived all of it, with the tasks and the server.
        jar = aiohttp.CookieJar(unsafe=True)
        async with aiohttp.ClientSession(cookie_jar=jar) as http:
            await http.get(link)
            async with http.get(link.partition("/sign-in")[0] + "/api/session") as response:
                session_view: dict[str, Any] = await response.json()
        assert [each["name"] for each in session_view["servers"]] == [url]
        assert len(session_view["stores"]) == 1
        assert (tmp_path / ".antiphon" / ".gitignore").read_text() == "*\n"

        dev.process.send_signal(signal.SIGTERM)
        assert dev.process.wait(30) == 0, dev.log


async def test_a_file_that_cannot_be_loaded_at_first_is_explained_until_it_is_mended(tmp_path: Path) -> None:
    file = tmp_path / "server.py"
    file.write_text("import nothing_of_that_name\n")
    with developing(file, in_terminal=True) as dev:
        dev.printed("The console is at")
        dev.printed("Requests get status 503")
        file.write_text(FILE.replace("WORD", "one"))
        async with Client(dev.printed(r"developed is served at (\S+)\.")[1]) as client:
            await eventually(client, "one")
        dev.printed(r"\x1b\[2m\d\d:\d\d:\d\d\x1b\[0m word\(\) \x1b\[32mok\x1b\[0m")


async def test_the_end_of_a_process_that_has_forked_another_one_is_seen(tmp_path: Path) -> None:
    file, gate = tmp_path / "server.py", tmp_path / "gate"
    file.write_text(FILE.replace("WORD", "one") + FORKING)
    try:
        with developing(file) as dev:
            async with Client(dev.printed(r"developed is served at (\S+)\.")[1]) as client:
                crashing = asyncio.create_task(client.call("crash", gate=str(gate)))
                await asyncio.to_thread(dev.printed, "has ended with exit code 3")
                crashing.cancel()  # the forked process keeps its connection open
    finally:
        gate.touch()


async def test_a_running_call_has_the_servers_drain_time_after_a_reload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Only the end of the command may cut calls short.
    monkeypatch.setattr("antiphon.cli.dev.reloader.STOP_SECONDS", 0.0)
    file, gate, started = tmp_path / "server.py", tmp_path / "gate", tmp_path / "started"
    text = FILE.replace('(task="optional")', "")
    file.write_text(text.replace("WORD", "one"))
    reports: asyncio.Queue[Report] = asyncio.Queue()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
        reloader = Reloader(Settings(str(file)), listening, tmp_path, reports.put_nowait)
        reloading = asyncio.create_task(reloader.run())
        async with asyncio.timeout(60):
            assert (await reports.get()).ready
            async with Client(url) as client:
                running = asyncio.create_task(client.call("wait", started=str(started), gate=str(gate)))
                await until(started.exists)
                file.write_text(text.replace("WORD", "two!"))
                assert (await reports.get()).ready
                gate.touch()
                assert (await running).text == "waited in one"
            reloading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reloading


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.py"], "There is no file missing.py"),
        ([__file__, "--host", "0.0.0.0"], "not a loopback address"),
    ],
)
def test_what_cannot_work_is_refused(arguments: list[str], message: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "antiphon", "dev", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
        env=environment(),
        check=False,
    )
    assert done.returncode == 2
    assert message in done.stderr


async def test_the_watcher_sees_changed_added_and_removed_files(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "venv").mkdir()
    kept, other = tmp_path / "package" / "kept.py", tmp_path / "other.py"
    kept.write_text("1")
    watcher = FileWatcher(tmp_path)
    (tmp_path / "venv" / "skipped.py").write_text("1")
    (tmp_path / "notes.txt").write_text("1")
    other.write_text("1")
    kept.write_text("12")
    async with asyncio.timeout(DEADLINE):
        assert await watcher.changed() == sorted([str(kept), str(other)])
        other.unlink()
        assert await watcher.changed() == [str(other)]


async def test_during_an_outage_requests_get_the_reason() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
        outage = Outage(listening)
        for reason in ("It broke.", "It broke again."):
            await outage.begin(reason)
            async with aiohttp.ClientSession() as http, http.post(url, data=b"x" * 100_000) as response:
                assert response.status == 503
                assert (await response.json())["error"]["message"] == reason
            await outage.end()


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (
            {"tool": "add", "outcome": "complete", "response": "answer", "seconds": 0.00123},
            "\x1b[2m12:00:00\x1b[0m add() \x1b[32mok\x1b[0m\x1b[2m 1.2 ms\x1b[0m",
        ),
        (
            {"tool": "\x1b[2J\nno", "outcome": "error", "error": "NotFound", "arguments": {"a": "\x07\n"}},
            '\x1b[2m12:00:00\x1b[0m [2J no(a=" ") \x1b[31merror\x1b[0m NotFound',
        ),
        (
            {"tool": "pay", "outcome": "open", "response": "promise", "task": "pay_1"},
            "\x1b[2m12:00:00\x1b[0m pay() \x1b[33mcontinues\x1b[0m as task pay_1",
        ),
    ],
)
def test_a_terminal_shows_calls_in_colours_and_nothing_of_a_caller_controls_it(
    call: dict[str, Any], line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr("antiphon.cli.dev.call_lines.time.strftime", lambda *_: "12:00:00")
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as terminal, os.fdopen(ours, "rb", buffering=0) as screen:
        CallLines(terminal).emit(logging.makeLogRecord({"call": call}))
        assert screen.read(1000).decode() == f"{line}\r\n"
