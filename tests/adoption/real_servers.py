"""Real servers from PyPI, unmodified, adopted: `python -m tests.adoption.real_servers [NAME…]`.

Each is installed from the files in `requirements/adopt`, run by itself to see its tools, and run by
`antiphon run -- …`: on each version, its list has to be the same, and a call has to be answered. Prints a
table. None of them needs a key or, for the calls here, the network.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from antiphon import AntiphonError, Client
from antiphon.model.catalog import ToolDefinition
from tests.cli.command import running
from tests.support.process import ROOT

VERSIONS = ("2026-07-28", "2025-11-25", "2024-11-05")
REQUIREMENTS = ROOT / "requirements" / "adopt"
ENVIRONMENTS = Path(os.environ.get("ANTIPHON_REAL_SERVERS", ROOT / ".venv" / "adopt"))
SECONDS = 120.0


@dataclass(frozen=True)
class RealServer:
    """A server on PyPI: its environment, its command, and a call."""

    script: str
    environment: str
    arguments: tuple[str, ...] = ()
    call: tuple[str, Mapping[str, Any]] | None = None
    """The tool to call with its arguments; `None` if each of its tools needs the network or a key."""
    env: Mapping[str, str] = field(default_factory=dict)


SERVERS = (
    RealServer("mcp-server-time", "mcp-2", call=("get_current_time", {"timezone": "UTC"})),
    RealServer("mcp-server-git", "mcp-2", call=("git_status", {"repo_path": "REPOSITORY"})),
    RealServer("mcp-server-fetch", "mcp-2"),
    RealServer("duckduckgo-mcp-server", "mcp-2"),
    RealServer("awslabs.aws-documentation-mcp-server", "mcp-2"),
    RealServer(
        "excel-mcp-server",
        "mcp-2",
        ("stdio",),
        ("create_workbook", {"path": "FOLDER/a.xlsx", "overwrite": True}),
    ),
    RealServer("markitdown-mcp", "mcp-2", call=("convert_to_markdown", {"uri": "data:text/plain,hello"})),
    RealServer("mcp-server-sqlite", "mcp-1", ("--db-path", "FOLDER/test.db"), ("list_tables", {})),
    RealServer(
        "mcp-shell-server",
        "mcp-1",
        call=("shell_execute", {"command": ["ls"], "directory": "FOLDER"}),
        env={"ALLOW_COMMANDS": "ls"},
    ),
    RealServer("arxiv-mcp-server", "mcp-1", ("--storage-path", "FOLDER/papers"), ("list_papers", {})),
    RealServer("mcp-server-calculator", "mcp-1", call=("calculate", {"expression": "2 * 3"})),
    RealServer("code-index-mcp", "mcp-1", call=("get_settings_info", {})),
    RealServer("mcp-simple-arxiv", "fastmcp-2"),
    RealServer(
        "mcp-atlassian",
        "fastmcp-3",
        env={
            "JIRA_URL": "https://jira.invalid",
            "JIRA_PERSONAL_TOKEN": "x",
            "CONFLUENCE_URL": "https://confluence.invalid",
            "CONFLUENCE_PERSONAL_TOKEN": "x",
        },
    ),
    RealServer("wikipedia-mcp", "fastmcp-4"),
    RealServer("mcp-nixos", "fastmcp-4"),
    RealServer(
        "mcp-server-motherduck",
        "fastmcp-4",
        ("--db-path", ":memory:", "--read-write"),
        ("execute_query", {"sql": "select 2 * 3 as six"}),
    ),
    RealServer("word_mcp_server", "fastmcp-4", call=("create_document", {"filename": "FOLDER/a.docx"})),
)


def prepare(name: str) -> Path:
    """Return the folder with the programs of an environment, which is made if its pins have changed."""
    wanted = (REQUIREMENTS / f"{name}.txt").read_text()
    home = ENVIRONMENTS / name
    stamp = home / "stamp.txt"
    if not stamp.exists() or stamp.read_text() != wanted:
        print(f"installing {name} …", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", home], check=True, timeout=SECONDS)
        pip = [home / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run(
            [*pip, "--editable", ROOT, "--requirement", REQUIREMENTS / f"{name}.txt"],
            check=True,
            timeout=1800,
        )
        stamp.write_text(wanted)
    return home / "bin"


async def check(server: RealServer, folder: Path) -> list[str]:
    """Run a server by itself and adopted: how many tools it has, and how each version went."""
    programs = prepare(server.environment)
    arguments = [filled(word, folder) for word in server.arguments]
    # Some lists contain the order of a set.
    env = {**server.env, "HOME": str(folder), "FASTMCP_CHECK_FOR_UPDATES": "off", "PYTHONHASHSEED": "0"}
    command = [str(programs / server.script), *arguments]
    async with Client(command, env=env, cwd=folder, protocol="2025-11-25", connect_timeout=SECONDS) as own:
        expected = await own.tools()
    with running(
        "--",
        server.script,
        *arguments,
        directory=folder,
        cwd=folder,
        env=env,
        python=str(programs / "python"),
    ) as served:
        went = [await _try(server, served.url, version, expected, folder) for version in VERSIONS]
    return [str(len(expected)), *went]


async def _try(
    server: RealServer, url: str, version: str, expected: list[ToolDefinition], folder: Path
) -> str:
    async with Client(url, protocol=version, timeout=SECONDS) as client:
        tools = await client.tools()
        same = (
            [basics(tool) for tool in tools] == [basics(tool) for tool in expected]
            if version == "2024-11-05"
            else tools == expected
        )
        if not same:
            return "another list"
        if server.call is None:
            return "list"
        name, given = server.call
        arguments = {key: filled(value, folder) for key, value in given.items()}
        try:
            result = await client.call(name, arguments, check=False)
        except AntiphonError as error:
            return f"failed: {error}"
        return f"failed: {result.text[:60]}" if result.is_error else "call"


def filled(value: Any, folder: Path) -> Any:
    """Return an argument with the folder and the repository of the test in it."""
    if not isinstance(value, str):
        return value
    return value.replace("FOLDER", str(folder)).replace("REPOSITORY", str(folder / "repository"))


def basics(tool: ToolDefinition) -> tuple[str, str | None, dict[str, Any]]:
    """Return what every version says about a tool."""
    return tool.name, tool.description, tool.input_schema


def main() -> int:
    """Check the servers asked for; the number that failed is the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.adoption.real_servers", description=__doc__)
    parser.add_argument("names", nargs="*", help="check only these")
    names = parser.parse_args().names
    rows, failed = [], 0
    for server in SERVERS:
        if names and server.script not in names:
            continue
        folder = Path(tempfile.mkdtemp(prefix="antiphon-adopt-"))
        try:
            subprocess.run(["git", "init", "--quiet", folder / "repository"], check=True, timeout=SECONDS)
            cells = asyncio.run(check(server, folder))
        except Exception as error:
            cells = ["?", f"failed: {type(error).__name__}: {error}", "", ""]
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        failed += any(cell not in ("list", "call") for cell in cells[1:])
        rows.append([server.script, server.environment, *cells])
        print(" | ".join(rows[-1]), flush=True)
    header = ["server", "library", "tools", *VERSIONS]
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    print()
    for row in [header, ["-" * width for width in widths], *rows]:
        print(f"| {' | '.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))} |")
    return failed


if __name__ == "__main__":
    sys.exit(main())
