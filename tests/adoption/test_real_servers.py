"""Servers from PyPI, one for each generation, unmodified: their lists, a call, and a tool as a task.

`make test-adopt` has many more. Those here are small, and need neither a key nor the network.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from antiphon import Client
from antiphon.model.catalog import ToolDefinition
from tests.adoption.generations import ENVIRONMENTS, VERSIONS
from tests.adoption.real_servers import basics, filled
from tests.cli.command import running

PANDOC = """#!/bin/sh
case "$1" in
    --version) echo "pandoc 3.6" ;;
    --list-*-formats) printf 'markdown\\nhtml\\n' ;;
    *) cat ;;
esac
"""
"""Stands in for the program that the server mcp-pandoc calls."""


class RealServer(NamedTuple):
    """A server on PyPI, and a call."""

    script: str
    environment: str | None
    call: tuple[str, Mapping[str, Any]]
    answer: str
    arguments: tuple[str, ...] = ()

    @property
    def programs(self) -> Path:
        """The folder with the programs of its environment; the one of the tests if it has none of its own."""
        if self.environment is None:
            return Path(sys.executable).parent
        return ENVIRONMENTS / self.environment / "bin"


DOCUMENT = ("create_document", {"filename": "FOLDER/a.docx"})
SERVERS = {
    "mcp 1.30, FastMCP": RealServer(
        "mcp-server-calculator", "mcp-1", ("calculate", {"expression": "2 * 3"}), "6"
    ),
    "mcp 1.30, low-level": RealServer(
        "mcp-server-sqlite", "mcp-1", ("list_tables", {}), "[]", ("--db-path", "FOLDER/test.db")
    ),
    "mcp 2.3, MCPServer": RealServer(
        "mcp-server-time", None, ("get_current_time", {"timezone": "UTC"}), '"timezone": "UTC"'
    ),
    "mcp 2.3, low-level": RealServer(
        "mcp-pandoc",
        None,
        ("convert-contents", {"contents": "# Tea", "input_format": "markdown", "output_format": "html"}),
        "# Tea",
    ),
    "fastmcp 2.14": RealServer("word_mcp_server", "fastmcp-2", DOCUMENT, "created successfully"),
    "fastmcp 3.4": RealServer("word_mcp_server", "fastmcp-3", DOCUMENT, "created successfully"),
    "fastmcp 4.1": RealServer("word_mcp_server", None, DOCUMENT, "created successfully"),
}


@pytest.mark.parametrize("name", SERVERS)
async def test_its_tools_are_its_own_and_one_of_them_is_called_and_runs_as_a_task(
    name: str, tmp_path: Path
) -> None:
    server = SERVERS[name]
    tool, given = server.call
    arguments = {key: filled(value, tmp_path) for key, value in given.items()}
    command = [server.script, *(filled(word, tmp_path) for word in server.arguments)]
    env = _environment(tmp_path)
    async with _by_itself(server, command, env, tmp_path) as own:
        expected = [_without_tasks(each) for each in await own.tools()]
    with running(
        "--task",
        tool,
        "--store",
        f"sqlite:///{tmp_path / 'tasks.db'}",
        "--",
        *command,
        directory=tmp_path,
        cwd=tmp_path,
        env=env,
        python=str(server.programs / "python"),
    ) as served:
        for version in VERSIONS:
            async with Client(served.url, protocol=version, timeout=60) as client:
                tools = [_without_tasks(each) for each in await client.tools()]
                if version == "2024-11-05":  # its tools have no more than these, and it has no tasks
                    assert [basics(each) for each in tools] == [basics(each) for each in expected]
                    result = await client.call(tool, arguments)
                else:
                    assert tools == expected
                    promise = await client.submit(tool, arguments)
                    assert promise.id
                    result = await promise.result(timeout=60)
                assert server.answer in result.text


def _environment(folder: Path) -> dict[str, str]:
    pandoc = folder / "pandoc"
    pandoc.write_text(PANDOC)
    pandoc.chmod(0o755)
    return {
        "HOME": str(folder),
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
        "FASTMCP_CHECK_FOR_UPDATES": "off",
        "PYTHONHASHSEED": "0",  # some lists contain the order of a set
    }


@asynccontextmanager
async def _by_itself(
    server: RealServer, command: list[str], env: Mapping[str, str], folder: Path
) -> AsyncIterator[Client]:
    script, *arguments = command
    program = server.programs / script
    assert program.exists(), "the requirements have changed: make test"
    words = [str(program), *arguments]
    async with Client(words, env=env, cwd=folder, protocol="2025-11-25", connect_timeout=60) as client:
        yield client


def _without_tasks(tool: ToolDefinition) -> ToolDefinition:
    """Return a tool as its server defines it: which tools can be tasks is up to `--task`."""
    return msgspec.structs.replace(tool, execution=None)
