"""Files that run their server while they are imported: the command takes the server over."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from antiphon import Server
from antiphon.handover import HandedOver, taking_over
from tests.cli.command import antiphon, plain_environment, running

HEAD = """
from antiphon import Server

mcp = Server("mine")
other = Server("other")


@mcp.tool
async def add(a: int, b: int) -> int:
    \"\"\"Add two numbers.\"\"\"
    return a + b
"""
ENDINGS = {
    "run": "mcp.run()",
    "http": "mcp.run('http', port=1)",
    "stdio": "import asyncio\nasyncio.run(mcp.stdio())",
    "main": "def main():\n    try:\n        mcp.run()\n    except Exception:\n        pass\nmain()",
}
AFTER = "\nprint('this line runs after the server has ended')\n"


@pytest.fixture(params=ENDINGS.values(), ids=ENDINGS)
def file(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    file = tmp_path / "mine.py"
    file.write_text(f"{HEAD}\n{request.param}{AFTER}")
    return file


def test_the_tools_of_such_a_file_are_listed_and_called(file: Path) -> None:
    done = antiphon("tools", file)
    assert (done.returncode, done.stdout, done.stderr) == (
        0,
        "add(a: integer, b: integer)\n    Add two numbers.\n",
        "",
    )


def test_such_a_file_is_served_over_http(file: Path, tmp_path: Path) -> None:
    with running(file, directory=tmp_path) as server:
        assert server.log.startswith("mine is served at http://127.0.0.1:")
        assert antiphon("call", server.url, "add", "a=1", "b=2").stdout == "3\n"
        assert server.terminate() == 0
    assert "this line" not in server.log


def test_the_name_of_another_server_of_the_file_is_found(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(f"{HEAD}\nmcp.run(){AFTER}")
    for target in ("mine.py:other", "mine:other"):
        with running(target, directory=tmp_path, cwd=tmp_path) as server:
            assert server.log.startswith("other is served at ")
    done = antiphon("run", "mine.py:absent", cwd=tmp_path)
    assert "There is no Server 'absent' in mine.py" in done.stderr


def test_such_a_file_has_workers(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(f"{HEAD}\nmcp.run()\n")
    with running("mine.py", "--workers", "2", directory=tmp_path, cwd=tmp_path) as server:
        assert antiphon("call", server.url, "add", "a=1", "b=2").stdout == "3\n"
        assert server.terminate() == 0


def test_a_file_still_serves_itself(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(f"{HEAD}\nmcp.run()\n")
    path = f"PYTHONPATH={plain_environment()['PYTHONPATH']}"
    words = ("call", "add", "a=1", "b=2", "--env", path, "--", sys.executable, "mine.py")
    done = antiphon(*words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr


def test_a_server_is_handed_over_inside_of_the_block_only() -> None:
    server = Server("mine")
    for run in (server.run, lambda: asyncio.run(server.stdio())):
        with pytest.raises(HandedOver) as handed_over, taking_over():
            run()
        assert handed_over.value.server is server
    with pytest.raises(ValueError, match="Unknown transport 'carrier pigeon'"):
        server.run("carrier pigeon")  # type: ignore[arg-type]
