"""`antiphon console` and `antiphon run --console`: what they print, show and refuse."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from urllib.request import url2pathname

import aiohttp
import pytest

from antiphon.cli.exit_codes import UNREACHABLE, USAGE
from antiphon.store import open_store
from tests.cli.command import COMMAND, PATIENCE, antiphon, plain_environment
from tests.support.polling import until

SOURCE = """
import sys
from antiphon import Server

server = Server("mine")

@server.tool(task="optional")
async def later() -> str:
    return "later"

@server.route("/loaded")
def loaded(request):
    return [name for name in sys.modules if name.startswith("antiphon.console")]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(SOURCE)
    return path


def test_a_console_shows_something() -> None:
    done = antiphon("console")
    assert done.returncode == USAGE
    assert "Name what the console shows: a store (--store sqlite:///tasks.db)" in done.stderr


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--store", "memory:"], "visible to that server only"),
        (["--store", "sqlite:///nowhere.db"], "There is no store at nowhere.db."),
        (["nowhere.py"], "There is no file nowhere.py."),
        (["--store", "nonsense:"], "nonsense"),
        (["http://localhost:1/mcp", "--host", "0.0.0.0"], "is not a loopback address"),
        (["http://localhost:1/mcp", "--host", "example.com"], "is not a loopback address"),
    ],
)
def test_a_console_that_cannot_be_shown_is_refused(words: list[str], reason: str, tmp_path: Path) -> None:
    done = antiphon("console", *words, cwd=tmp_path)
    assert done.returncode == USAGE
    assert reason in done.stderr


def test_a_store_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    (tmp_path / "tasks.db").write_text("not a database" * 100)
    done = antiphon(
        "console", "--no-open", "--port", "0", env={"ANTIPHON_STORE": f"sqlite:///{tmp_path}/tasks.db"}
    )
    assert done.returncode == UNREACHABLE
    assert "Cannot start the console: " in done.stderr
    assert "tasks.db" in done.stderr


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--stdio"], "The console needs HTTP: remove --stdio or --console."),
        (["--workers", "2", "--port", "0"], "run: antiphon console http://HOST:PORT/mcp"),
        (["--host", "0.0.0.0", "--port", "0"], "everybody could open the console"),
    ],
)
def test_run_refuses_a_console_that_anybody_could_open(words: list[str], reason: str, file: Path) -> None:
    done = antiphon("run", file, "--console", "--store", f"sqlite:///{file.parent}/t.db", *words)
    assert done.returncode == USAGE
    assert reason in done.stderr


@pytest.mark.parametrize(
    ("command", "option"),
    [("console", "--port"), ("console", "--sandbox-port"), ("dev", "--console-port"), ("dev", "--port")],
)
def test_a_port_in_use_names_the_option_that_chooses_another(command: str, option: str, file: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        others = {"console": ("--port",), "dev": ("--port", "--console-port")}[command]
        free = [word for other in others if other != option for word in (other, "0")]
        done = antiphon(command, file, "--no-open", option, str(port), *free)
        assert done.returncode == UNREACHABLE
        assert f"Choose another port: {option} {port + 1}." in done.stderr


@contextmanager
def started(
    *words: str | Path, directory: Path, env: Mapping[str, str] = MappingProxyType({})
) -> Iterator[Path]:
    """Run a command until the block ends; yield the file with its output."""
    log = directory / "log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [*COMMAND, *map(str, words)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**plain_environment(), **env},
        )
    try:
        yield log
    finally:
        process.terminate()
        assert process.wait(PATIENCE) in (0, -signal.SIGTERM), log.read_text()


async def printed(log: Path, pattern: str) -> str:
    """Wait until a command prints something, and return a part of it."""
    found = await until(lambda: re.search(pattern, log.read_text()), PATIENCE)
    assert found is not None
    return found[1]


@pytest.mark.parametrize("command", ["console", "run"])
async def test_the_printed_address_signs_in(command: str, file: Path, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/t.db"
    store = open_store(url)
    await store.open()
    await store.close()
    option = "--no-open" if command == "console" else "--console"
    with started(command, file, option, "--store", url, "--port", "0", directory=tmp_path) as log:
        link = await printed(log, r"The console is at (http://\S+)")
        async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as http:
            async with http.get(link) as response:
                assert response.status == 200
                page = response.url
            async with http.get(f"{page}api/session") as response:
                session = await response.json()
            # Apps are shown from a second port.
            console = str(page.origin())
            assert session["sandbox"] != console
            path = "/console" if command == "run" else "/"
            async with http.get(f"{session['sandbox']}{path}", params={"console": console}) as response:
                assert f"frame-ancestors {console};" in response.headers["content-security-policy"]
    names = [each["name"] for each in (*session["stores"], *session["servers"])]
    assert names == ([url, str(file)] if command == "console" else ["mine", "mine"])
    assert session["mayOperate"]


async def test_no_argument_of_the_browser_signs_anybody_in(file: Path, tmp_path: Path) -> None:
    given, browser = tmp_path / "given", tmp_path / "browser.sh"
    browser.write_text(f'#!/bin/sh\nprintf %s "$*" > {given}.new && mv {given}.new {given}\n')
    browser.chmod(0o700)
    env = {"BROWSER": str(browser)}
    with started("console", file, "--port", "0", directory=tmp_path, env=env) as log:
        printed_link = await printed(log, r"The console is at (http://\S+)")
        await until(given.exists, PATIENCE)
        page = Path(url2pathname(given.read_text().removeprefix("file://")))
        assert (page.stat().st_mode & 0o777, page.parent.stat().st_mode & 0o777) == (0o600, 0o700)
        found = re.search(r"url=(http://[^\"]+)", page.read_text())
        assert found is not None
        async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as http:
            async with http.get(found[1]) as response:
                assert response.status == 200
            assert not page.exists()
            async with http.get(printed_link) as response:  # for a browser that cannot read the file
                assert response.status == 200
    assert not page.parent.exists()


async def test_run_without_a_console_loads_none_of_it(file: Path, tmp_path: Path) -> None:
    with started("run", file, "--port", "0", directory=tmp_path) as log:
        origin = await printed(log, r"is served at (http://[^/]+)")
        async with aiohttp.ClientSession() as http, http.get(f"{origin}/loaded") as response:
            assert await response.json() == []
