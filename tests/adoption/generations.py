"""The generations of other libraries that are adopted, each with a server and a Python environment."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from antiphon import Client
from tests.cli import command
from tests.support.process import ROOT

SERVERS = Path(__file__).parent / "servers"
ENVIRONMENTS = Path(os.environ.get("ANTIPHON_TEST_ENVIRONMENTS", ROOT / ".venv"))
VERSIONS = ("2026-07-28", "2025-11-25", "2024-11-05")


class Generation(NamedTuple):
    """A server of one generation of a library."""

    file: str
    environment: str | None = None
    """The folder of its Python environment; `None` for the one of the tests."""
    is_program: bool = False
    """Whether the server is built in `main`, so that the file is run as a program."""
    newest: str = "2025-11-25"
    """The newest version that it speaks by itself."""

    @property
    def path(self) -> Path:
        """The file of the server."""
        return SERVERS / self.file

    @property
    def python(self) -> str:
        """The Python that has the library."""
        if self.environment is None:
            return sys.executable
        python = ENVIRONMENTS / self.environment / "bin" / "python"
        assert python.exists(), f"make .venv/{self.environment}/installed"
        return str(python)


GENERATIONS = {
    "mcp-1-fastmcp": Generation("official_orders.py", "mcp-1"),
    "mcp-1-lowlevel": Generation("lowlevel1_orders.py", "mcp-1", is_program=True),
    "mcp-2-mcpserver": Generation("official_orders.py", newest="2026-07-28"),
    "mcp-2-lowlevel": Generation("lowlevel2_orders.py", is_program=True, newest="2026-07-28"),
    "fastmcp-2": Generation("fastmcp_orders.py", "fastmcp-2"),
    "fastmcp-3": Generation("fastmcp_orders.py", "fastmcp-3"),
    "fastmcp-4": Generation("fastmcp_orders.py", newest="2026-07-28"),
}


class Adopted:
    """An adopted server in a process of its own."""

    def __init__(self, url: str, runs: Path) -> None:
        self.url = url
        self._runs = runs

    @property
    def runs(self) -> int:
        """How often the body of the tool `order` has begun since the last time."""
        if not self._runs.exists():
            return 0
        count = len(self._runs.read_text().splitlines())
        self._runs.unlink()
        return count

    def client(self, version: str, **options: Any) -> Client:
        """Return a client that speaks a version, and answers how large the order is."""
        return Client(self.url, protocol=version, elicit=lambda question: {"size": 3}, **options)


@contextmanager
def adopted(generation: Generation, directory: Path, *options: str) -> Iterator[Adopted]:
    """Serve a server as `antiphon run` does, until the block ends."""
    runs = directory / "runs.txt"
    program = ("--", "python") if generation.is_program else ()
    with command.running(
        "--task",
        "order_later",
        *options,
        *program,
        generation.path,
        directory=directory,
        env={"RUNS": str(runs)},
        python=generation.python,
    ) as served:
        yield Adopted(served.url, runs)


@asynccontextmanager
async def by_itself(generation: Generation, version: str | None = None) -> AsyncIterator[Client]:
    """Connect to a server that its own library serves, over stdio."""
    target = [generation.python, str(generation.path)]
    async with Client(target, protocol=version or generation.newest, env={"RUNS": os.devnull}) as client:
        yield client
