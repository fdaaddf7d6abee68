"""`antiphon run`: finds the server in a file, listens, and shuts down gracefully."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import threading
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest

from tests.cli.command import (
    COMMAND,
    PATIENCE,
    antiphon,
    listens,
    plain_environment,
    running,
    worker_processes,
)
from tests.cli.conftest import TOOLS_SERVER
from tests.support.polling import wait_until

ONE = 'from antiphon import Server\n{name} = Server("{name}")\n'


@pytest.mark.parametrize(
    ("source", "suffix", "found"),
    [
        (ONE.format(name="anything"), "", "anything"),
        (ONE.format(name="first") + ONE.format(name="app"), "", "app"),
        (ONE.format(name="mcp") + ONE.format(name="server"), "", "server"),
        (ONE.format(name="first") + ONE.format(name="second"), ":second", "second"),
        (ONE.format(name="first") + "also = first\n", "", "first"),
        ("from neighbour import there as server\n", "", "there"),
    ],
)
def test_finds_the_server_in_a_file(tmp_path: Path, source: str, suffix: str, found: str) -> None:
    (tmp_path / "neighbour.py").write_text(ONE.format(name="there"))
    (tmp_path / "mine.py").write_text(source)
    with running(tmp_path / f"mine.py{suffix}", directory=tmp_path) as server:
        assert server.log.startswith(f"{found} is served at http://127.0.0.1:")


def test_finds_the_server_in_a_module(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "module.py").write_text(ONE.format(name="server"))
    with running("package.module", directory=tmp_path, cwd=tmp_path) as server:
        assert server.log.startswith("server is served at")


@pytest.mark.parametrize(
    ("source", "target", "code", "message"),
    [
        (None, "missing.py", 2, "Error: There is no file missing.py.\n"),
        (
            None,
            "no.such.module",
            2,
            "Error: There is no module no.such.module. To name a file, write its extension",
        ),
        ("x = 1\n", "mine.py", 2, "Error: There is no Server in mine.py. Create one:"),
        (
            ONE.format(name="one") + ONE.format(name="two"),
            "mine.py",
            2,
            "Error: mine.py has several servers: one, two. Name one: mine.py:one.\n",
        ),
        (
            "x = 1\n",
            "mine.py:x",
            2,
            "Error: 'x' in mine.py is not a Server: its type is int.",
        ),
        (
            "x = 1\n",
            "mine.py:y",
            2,
            "Error: There is no Server 'y' in mine.py: the file does not define this name.\n",
        ),
        ("raise SystemExit(5)\n", "mine.py", 1, "exited with code 5 while it was imported.\n"),
        ("import not_installed\n", "mine", 1, "No module named 'not_installed'"),
    ],
)
def test_reports_what_is_wrong_with_a_file(
    tmp_path: Path, source: str | None, target: str, code: int, message: str
) -> None:
    if source is not None:
        (tmp_path / "mine.py").write_text(source)
    done = antiphon("run", target, "--port", "0", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (code, "")
    assert message in done.stderr


def test_shows_only_the_authors_part_of_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def wrong():\n    return 1 / 0\n\nwrong()\n")
    done = antiphon("run", "mine.py", cwd=tmp_path)
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stderr
    assert done.stderr.count("  File ") == 2
    assert done.stderr.endswith(f"Error: Cannot import {tmp_path / 'mine.py'}.\n")


def test_a_port_in_use_exits_with_code_3() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = antiphon("run", TOOLS_SERVER, "--port", str(port))
    assert done.returncode == 3
    assert done.stderr.startswith(f"Error: Cannot listen on 127.0.0.1:{port}: Address already in use.")


def test_a_failing_lifespan_exits_with_code_1(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from contextlib import asynccontextmanager\nfrom antiphon import Server\n"
        "@asynccontextmanager\nasync def life(server):\n    raise OSError('no database')\n    yield\n"
        'server = Server("mine", lifespan=life)\n'
    )
    done = antiphon("run", "mine.py", "--port", "0", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "no database" in done.stderr
    assert done.stderr.endswith("Error: The server's lifespan failed to start. The log above says why.\n")


def test_settings_come_from_the_environment(tmp_path: Path) -> None:
    settings = {"ANTIPHON_HOST": "localhost", "ANTIPHON_HOSTS": "mine.example, localhost"}
    with running(TOOLS_SERVER, "--path", "/here", directory=tmp_path, env=settings) as server:
        assert server.url.endswith("/here")
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        for host, status in (("mine.example", 200), ("localhost", 200), ("127.0.0.1", 403)):
            assert httpx2.post(server.url, json=ping, headers={"Host": host}).status_code == status


def test_logs_requests_only_with_access_log(tmp_path: Path) -> None:
    for options, logged in (((), False), (("--access-log",), True)):
        with running(TOOLS_SERVER, *options, directory=tmp_path) as server:
            httpx2.post(server.url, json={"jsonrpc": "2.0", "id": 1, "method": "ping"})
            assert server.terminate() == 0
            assert ("POST /mcp" in server.log) is logged


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_running_calls_finish_before_the_process_exits(tmp_path: Path, number: int) -> None:
    gate = tmp_path / "gate"
    with running(TOOLS_SERVER, directory=tmp_path) as server:
        answers: list[str] = []
        call = threading.Thread(
            target=lambda: answers.append(antiphon("call", server.url, "slow", f"gate={gate}").stdout)
        )
        call.start()
        wait_until(lambda: "slow has begun" in server.log, PATIENCE)
        server.process.send_signal(number)
        wait_until(lambda: not listens(urlsplit(server.url).port or 0), PATIENCE)
        gate.touch()
        assert server.process.wait(PATIENCE) == 0
        call.join(PATIENCE)
    assert answers == ["done at last\n"]
    assert "Traceback" not in server.log


def test_a_signal_closes_open_streams_immediately(tmp_path: Path) -> None:
    with running(TOOLS_SERVER, directory=tmp_path) as server, httpx2.Client(timeout=PATIENCE) as http:
        session = _initialize(http, server.url)
        headers = {"Mcp-Session-Id": session, "Accept": "text/event-stream"}
        with http.stream("GET", server.url, headers=headers) as stream:
            assert stream.status_code == 200
            server.process.terminate()
            assert list(stream.iter_raw())[1:] == []
        assert server.process.wait(PATIENCE) == 0


def test_worker_processes_share_sessions(tmp_path: Path) -> None:
    with running(TOOLS_SERVER, "--workers", "2", directory=tmp_path) as server:
        assert "by 2 workers" in server.log
        assert "Warning: ANTIPHON_SECRETS is not set." in server.log
        with httpx2.Client(timeout=PATIENCE) as http:
            session = _initialize(http, server.url)
        seen: set[int] = set()
        wait_until(lambda: _served_by_two(server.url, session, seen), PATIENCE)
        assert server.terminate() == 0
    assert "Traceback" not in server.log


def test_worker_processes_let_running_calls_finish(tmp_path: Path) -> None:
    secrets = {"ANTIPHON_SECRETS": "an old secret of sixteen, and a new one of sixteen"}
    gate = tmp_path / "gate"
    with running(TOOLS_SERVER, "--workers", "2", directory=tmp_path, env=secrets) as server:
        answers: list[str] = []
        call = threading.Thread(
            target=lambda: answers.append(antiphon("call", server.url, "slow", f"gate={gate}").stdout)
        )
        call.start()
        wait_until(lambda: "slow has begun" in server.log, PATIENCE)
        workers = worker_processes(server.process.pid)
        server.process.terminate()
        wait_until(lambda: len(worker_processes(server.process.pid)) < len(workers), PATIENCE)  # the idle one
        gate.touch()
        assert server.process.wait(PATIENCE) == 0
        call.join(PATIENCE)
    assert answers == ["done at last\n"]
    assert "Warning" not in server.log


def test_stdio_writes_only_frames_to_standard_output() -> None:
    frames = [
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": "slow", "arguments": {}},
        },
        {"jsonrpc": "2.0", "id": 2, "method": "ping"},
    ]
    done = subprocess.run(
        [*COMMAND, "run", str(TOOLS_SERVER), "--stdio"],
        input="".join(json.dumps(frame) + "\n" for frame in frames),
        env=plain_environment(),
        capture_output=True,
        encoding="utf-8",
        timeout=PATIENCE,
        check=False,
    )
    answers = {answer["id"]: answer for answer in map(json.loads, done.stdout.splitlines())}
    assert answers[1]["result"]["content"] == [{"type": "text", "text": "done at last"}]
    assert set(answers) == {1, 2}
    assert done.stderr.splitlines() == ["printed while the file is loaded", "slow has begun"]
    assert done.returncode == 0


def test_the_version_is_printed() -> None:
    done = antiphon("--version")
    assert (done.returncode, done.stdout.split()[0]) == (0, "antiphon")


def test_help_documents_the_exit_codes() -> None:
    for command in ((), ("run",), ("call",), ("tools",)):
        assert "Exit codes" in antiphon(*command, "--help").stdout


def _initialize(http: httpx2.Client, url: str) -> str:
    params = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    }
    frame = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
    answer = http.post(url, json=frame)
    assert answer.json()["result"]["protocolVersion"] == "2025-11-25"
    return str(answer.headers["mcp-session-id"])


def _served_by_two(url: str, session: str, seen: set[int]) -> bool:
    """Make a call on a new connection. Return whether two processes have served this session."""
    frame = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "process"}}
    with httpx2.Client(timeout=PATIENCE) as http:
        answer = http.post(url, json=frame, headers={"Mcp-Session-Id": session})
    assert answer.status_code == 200, answer.text
    seen.add(answer.json()["result"]["structuredContent"]["result"])
    return len(seen) == 2
