"""How `antiphon run` starts, and why it may fail to."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from antiphon import Limits, Server
from antiphon.cli.commands import app
from antiphon.cli.exit_codes import FAILED, UNREACHABLE, USAGE, CommandError
from antiphon.cli.run import serve
from antiphon.cli.run.settings import Settings
from tests.cli.command import antiphon, plain_environment, running
from tests.support.polling import until, wait_until

SOURCE = """
from antiphon import Limits, Server

server = Server("mine")


@server.tool(task="optional")
async def later() -> str:
    return "later"
"""


@pytest.fixture
def mine(monkeypatch: pytest.MonkeyPatch) -> Server:
    """The server that the file contains."""
    server = Server("mine")
    monkeypatch.setattr(serve, "load_server", lambda target, tasks, **options: server)
    monkeypatch.setattr(Settings, "configure_logging", lambda self: None)
    return server


@pytest.fixture
def handlers() -> Iterator[None]:
    """Restore the signal handlers after the test."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("host", ["::1%nowhere", ".."])
def test_an_unknown_host_is_an_error(host: str) -> None:
    with pytest.raises(CommandError) as raised:
        serve.listen(host, 0)
    assert raised.value.code == UNREACHABLE
    assert raised.value.message.startswith(f"Cannot listen on {host}: ")
    assert raised.value.message.endswith(".")


@pytest.mark.parametrize("how", ["--stdio", "--port=0"])
def test_a_store_that_cannot_be_opened_exits_with_code_3(tmp_path: Path, how: str) -> None:
    (tmp_path / "mine.py").write_text(SOURCE)
    done = antiphon("run", "mine.py", how, "--store", "sqlite:///no/where/tasks.db", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (3, "")
    place = tmp_path / "no" / "where" / "tasks.db"
    said = f"Cannot open the store: There is no directory for the store {place}: make it first."
    assert done.stderr.endswith(f"Error: {said}\n")


def test_several_workers_with_tasks_require_a_shared_store(mine: Server) -> None:
    @mine.tool(task="optional")
    async def later() -> str:
        return "later"

    with pytest.raises(CommandError, match="can run as a task, so 2 workers need a store") as raised:
        serve.serve_http(Settings("mine.py"), host="127.0.0.1", port=0, workers=2)
    assert raised.value.code == USAGE


@pytest.mark.usefixtures("mine")
@pytest.mark.parametrize(("codes", "fails"), [((0, -signal.SIGTERM), False), ((0, 3), True)])
def test_a_worker_process_that_failed_exits_with_code_1(
    codes: tuple[int, ...],
    fails: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Ended:
        """A supervisor whose worker processes have exited."""

        def __init__(self, config: Any, sockets: Any) -> None:
            assert config.workers == len(codes)
            self.processes = [SimpleNamespace(exitcode=code) for code in codes]

        def run(self) -> None:
            assert Settings.from_environment().target == "mine.py"

    monkeypatch.setattr("antiphon.cli.run.supervisor.WorkerSupervisor", Ended)
    monkeypatch.setattr("os.environ", {**os.environ, "ANTIPHON_SECRETS": "a secret of sixteen or more"})
    settings = Settings("mine.py")
    if fails:
        with pytest.raises(CommandError, match="A worker process failed to start or was killed") as raised:
            serve.serve_http(settings, host="127.0.0.1", port=0, workers=len(codes))
        assert raised.value.code == FAILED
    else:
        serve.serve_http(settings, host="127.0.0.1", port=0, workers=len(codes))
    assert "by 2 workers. Tools: none." in capsys.readouterr().out


@pytest.mark.usefixtures("handlers")
def test_notifies_the_app_before_other_signal_handlers() -> None:
    server, settings = Server("mine"), Settings("mine.py")
    app = serve.create_app(server, settings)
    begun: list[str] = []
    app.announce_shutdown = lambda: None  # type: ignore[method-assign]
    app.begin_shutdown = lambda: begun.append("shutdown")  # type: ignore[method-assign]
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, lambda number, frame: begun.append(signal.Signals(number).name))
    serve.notify_on_signals(app)
    signal.raise_signal(signal.SIGTERM)
    assert begun == ["shutdown"]
    signal.raise_signal(signal.SIGINT)
    assert begun == ["shutdown", "shutdown", "SIGINT"]


@pytest.mark.usefixtures("handlers")
async def test_sigterm_waits_for_the_delay_and_sigint_does_not() -> None:
    server, settings = Server("mine", limits=Limits(shutdown_delay=0.2)), Settings("mine.py")
    app = serve.create_app(server, settings)
    begun: list[str] = []
    app.announce_shutdown = lambda: begun.append("announced")  # type: ignore[method-assign]
    app.begin_shutdown = lambda: begun.append("begun")  # type: ignore[method-assign]
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: begun.append(signal.Signals(number).name))
    serve.notify_on_signals(app)
    signal.raise_signal(signal.SIGTERM)
    assert begun == ["announced"]
    await until(lambda: begun == ["announced", "begun", "SIGTERM"])
    begun.clear()
    signal.raise_signal(signal.SIGINT)
    assert begun == ["announced", "begun", "SIGINT"]


def test_a_path_without_a_slash_is_a_usage_error() -> None:
    done = CliRunner().invoke(app, ["run", "mine.py", "--path", "mcp"], env={"TERM": "dumb"})
    assert (done.exit_code, done.stdout) == (2, "")
    assert "--path: The path must start with a slash." in done.stderr


def test_importing_the_command_does_not_run_it() -> None:
    from antiphon import __main__, cli

    assert __main__.main is cli.main


def test_the_names_of_other_servers_cannot_control_the_terminal() -> None:
    server = Server("bad\x1b[2Jname")
    server.add_tool(lambda: None, name="too\x1b]0;l\nx")
    with serve.listen("127.0.0.1", 0) as listening:
        said = serve.announcement(server, listening, "/mcp")
    assert said.isprintable()
    assert said.endswith(" Tools: too]0;l x.")


OPEN = """
from antiphon import BearerTokens, Server
server = Server("weather")
private = Server("private", authenticate=BearerTokens({"t": "ann"}))
if __name__ == "__main__":
    server.run("http", host="0.0.0.0", port=0)
"""


@pytest.mark.parametrize(
    ("target", "options", "expected"),
    [
        (
            "open.py:server",
            ["--host", "0.0.0.0"],
            ["0.0.0.0 can call weather", "authenticate=", "--hosts NAME"],
        ),
        ("open.py:server", ["--host", "0.0.0.0", "--workers", "2"], ["can call weather", "--hosts NAME"]),
        (
            "open.py:server",
            ["--host", "0.0.0.0", "--hosts", "weather"],
            ["can call weather", "authenticate="],
        ),
        ("open.py:private", ["--host", "0.0.0.0"], []),
        ("open.py:server", ["--host", "127.0.0.1"], []),
        ("open.py:server", ["--host", "localhost"], []),
    ],
    ids=["open", "workers", "named", "authenticated", "loopback", "localhost"],
)
def test_a_server_that_strangers_can_call_says_so_and_names_the_options(
    tmp_path: Path, target: str, options: list[str], expected: list[str]
) -> None:
    (tmp_path / "open.py").write_text(OPEN)
    with running(target, *options, directory=tmp_path, cwd=tmp_path) as server:
        wait_until(lambda: not expected or "Everybody who reaches" in server.log)
    lines = [line for line in server.log.splitlines() if "Everybody who reaches" in line]
    assert "Any web page" not in server.log
    assert len(lines) == bool(expected), server.log
    for part in expected:
        assert part in lines[0]
    assert ("--hosts NAME" in server.log) == ("--hosts NAME" in expected)


@pytest.mark.parametrize("option", ["--hosts", "--origins"])
def test_a_server_that_every_web_page_can_call_says_so(tmp_path: Path, option: str) -> None:
    (tmp_path / "open.py").write_text(OPEN)
    said = "Warning: Any web page that is open where 127.0.0.1 can be reached can call weather, because it"
    with running("open.py:server", option, "*", directory=tmp_path, cwd=tmp_path) as server:
        wait_until(lambda: "does not authenticate" in server.log)
    (line,) = [line for line in server.log.splitlines() if line.startswith("Warning")]
    assert line.startswith(said)
    assert f"({option} *)" in line
    with running("open.py:private", option, "*", directory=tmp_path, cwd=tmp_path) as server:
        pass
    assert "Warning" not in server.log


@pytest.mark.parametrize("options", [[], ["--workers", "2"]], ids=["one", "workers"])
def test_what_is_not_an_origin_is_refused_before_anything_is_served(
    tmp_path: Path, options: list[str]
) -> None:
    (tmp_path / "open.py").write_text(OPEN)
    command = ["run", "open.py:server", "--port", "0", "--origins", "https://a.example/b", *options]
    done = subprocess.run(
        [sys.executable, "-m", "antiphon", *command],
        cwd=tmp_path,
        env=plain_environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("Error: --origins: The origin 'https://a.example/b' has more than a scheme")


def test_a_program_that_serves_itself_to_strangers_says_so(tmp_path: Path) -> None:
    (tmp_path / "open.py").write_text(OPEN)
    with subprocess.Popen(
        [sys.executable, "open.py"], cwd=tmp_path, env=plain_environment(), stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        try:
            line = process.stderr.readline()
        finally:
            process.kill()
    assert line.startswith("Everybody who reaches 0.0.0.0 can call weather")
