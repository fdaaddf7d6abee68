"""Files and programs that `antiphon run` and other commands take: where their server is found."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest

from antiphon import Client
from tests.cli.command import COMMAND, antiphon, plain_environment, running

FILE = """
from mcp.server.mcpserver import MCPServer

mcp = MCPServer("greetings", log_level="ERROR")

@mcp.tool()
def greet(name: str) -> str:
    return f"Hello {name}"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "greetings.py"
    path.write_text(FILE)
    return path


def test_commands_that_take_a_file_adopt_its_server(file: Path) -> None:
    assert "greet" in antiphon("tools", file).stdout
    assert antiphon("call", file, "greet", "name=Ada").stdout == "Hello Ada\n"


@pytest.mark.parametrize("end", ["mcp.run()", "mcp.run('streamable-http', port=1)"])
def test_a_file_that_runs_its_server_when_it_is_imported_is_served(file: Path, end: str) -> None:
    file.write_text(f"{FILE}\n{end}\n")
    called = antiphon("call", file, "greet", "name=Ada")
    assert (called.stdout, called.returncode) == ("Hello Ada\n", 0), called.stderr


def test_a_server_with_a_preferred_name_is_found_among_several(file: Path) -> None:
    file.write_text(f"{FILE}\nother = MCPServer('other')\n")
    assert antiphon("call", file, "greet", "name=Ada").stdout == "Hello Ada\n"


def test_a_server_of_a_subclass_is_adopted(file: Path) -> None:
    file.write_text(FILE.replace("mcp = MCPServer(", "class Own(MCPServer): ...\nmcp = Own("))
    assert antiphon("call", file, "greet", "name=Ada").stdout == "Hello Ada\n"


def test_a_program_is_run_with_its_arguments(file: Path) -> None:
    file.write_text(
        f"""{FILE}
import sys

def main():
    print("starting", *sys.argv[1:])
    mcp.run()

if __name__ == "__main__":
    main()
"""
    )
    with running("--", "python", file, "--loud", "x", directory=file.parent) as served:
        assert antiphon("call", served.url, "greet", "name=Ada").stdout == "Hello Ada\n"
        assert "starting --loud x" in served.log
        assert served.terminate() == 0


async def test_a_program_can_be_served_over_stdio(file: Path) -> None:
    file.write_text(f"{FILE}\nprint('not for the client')\nif __name__ == '__main__':\n    mcp.run()\n")
    command = [*COMMAND, "run", "--stdio", "--", "python", str(file)]
    async with Client(command, env=plain_environment(), protocol="2026-07-28", timeout=60) as client:
        assert (await client.call("greet", {"name": "Ada"})).text == "Hello Ada"


@pytest.mark.parametrize("library", ["mcp", "fastmcp"])
async def test_a_program_that_runs_its_app_with_uvicorn_is_served(file: Path, library: str) -> None:
    theirs, make = FILE, "mcp.streamable_http_app()"
    if library == "fastmcp":
        theirs = FILE.replace("mcp.server.mcpserver", "fastmcp").replace("MCPServer", "FastMCP")
        theirs = theirs.replace(', log_level="ERROR"', "")
        make = "mcp.http_app()"
    file.write_text(f"{theirs}\nimport uvicorn\nuvicorn.run({make}, port=1)\n")
    with running("--", "python", file, directory=file.parent) as served:
        async with Client(served.url, protocol="2026-07-28") as client:
            assert (await client.call("greet", {"name": "Ada"})).text == "Hello Ada"
        assert served.terminate() == 0


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (
            "import uvicorn\nfrom starlette.applications import Starlette\n"
            "from starlette.routing import Mount\n"
            "uvicorn.run(Starlette(routes=[Mount('/', mcp.streamable_http_app())]), port=1)",
            "serves MCP inside an ASGI app of its own",
        ),
        (
            "import threading; thread = threading.Thread(target=mcp.run); thread.start(); thread.join()",
            "runs its server in a thread",
        ),
        (
            "from fastmcp import FastMCP\nfrom starlette.middleware import Middleware\n"
            "FastMCP('x').run('http', middleware=[Middleware(object)])",
            "runs its server with ASGI middleware",
        ),
        (
            "try:\n    mcp.run()\nexcept BaseException:\n    pass",
            "There is no tool 'nosuch' to run as a task",
        ),
    ],
)
def test_a_program_that_cannot_be_served_fails_and_says_why(file: Path, end: str, reason: str) -> None:
    file.write_text(f"{FILE}\n{end}\n")
    ran = antiphon("run", "--port", "0", "--task", "nosuch", "--", "python", file)
    assert ran.returncode == 1
    assert reason in ran.stderr


def test_a_process_that_a_program_forks_does_not_keep_the_port(file: Path) -> None:
    pid = file.with_name("pid.txt")
    fork = """
import os, pathlib, signal
def fork():
    if (child := os.fork()) == 0:
        signal.pause()
        os._exit(0)
    with open({pid!r}, "a") as noted:
        print(child, file=noted)
    return str(child)
mcp.add_tool(fork)
fork()
mcp.run()
""".replace("{pid!r}", repr(str(pid)))
    file.write_text(f"{FILE}\n{fork}")
    try:
        with running("--", "python", file, directory=file.parent) as served:
            assert antiphon("call", served.url, "fork").returncode == 0  # another one, while it serves
            port = int(served.url.split(":")[2].split("/")[0])
            assert served.terminate() == 0
        with socket.socket() as again:
            again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            again.bind(("127.0.0.1", port))
            again.listen()
    finally:
        for each in pid.read_text().split():
            os.kill(int(each), signal.SIGKILL)


def test_a_program_that_runs_no_server_is_reported(file: Path) -> None:
    ran = antiphon("run", "--port", "0", "--", "python", file)
    assert ran.returncode == 1
    assert "ended without running a server of mcp or fastmcp" in ran.stderr


def test_a_program_of_another_environment_is_reported() -> None:
    ran = antiphon("run", "--port", "0", "--", "no-such-program", "x")
    assert ran.returncode == 2
    assert "There is no console script 'no-such-program' in the Python environment of Antiphon" in ran.stderr
    assert "antiphon gateway -- no-such-program x" in ran.stderr


@pytest.mark.parametrize("words", [["x.py", "--", "python", "x.py"], []])
def test_either_a_file_or_a_program_is_run(words: list[str]) -> None:
    ran = antiphon("run", *words)
    assert ran.returncode == 2
    assert "Name one thing to run" in ran.stderr


def test_workers_do_not_run_programs(file: Path) -> None:
    assert "remove --workers" in antiphon("run", "--workers", "2", "--", "python", file).stderr


def test_a_task_that_is_no_tool_is_reported(file: Path) -> None:
    ran = antiphon("run", file, "--port", "0", "--task", "nosuch")
    assert ran.returncode == 1
    assert "There is no tool 'nosuch' to run as a task. The tools are: greet." in ran.stderr


def test_tasks_are_for_adopted_servers(tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text("from antiphon import Server\nserver = Server('own')\n")
    assert "--task is for servers of other libraries" in antiphon("run", own, "--task", "x").stderr
