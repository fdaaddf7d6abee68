"""What a process loads: the names of `antiphon` come on first use, and a command loads only what it uses."""

from __future__ import annotations

import ast
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import antiphon

SOURCE = Path(antiphon.__file__)
SECONDS = 60

FRAMEWORKS = frozenset(
    {
        "aiohttp",
        "asyncpg",
        "cryptography",
        "httptools",
        "httpx2",
        "opentelemetry",
        "rich",
        "uvicorn",
        "uvloop",
    }
)
"""What neither a plain client nor a plain server over stdio uses."""

SERVER = """
from antiphon import Server

server = Server("small")

@server.tool
async def add(a: int, b: int) -> str:
    return str(a + b)

if __name__ == "__main__":
    server.run()
"""

CALL = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {
        "name": "add",
        "arguments": {"a": 1, "b": 2},
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        },
    },
}


@pytest.fixture
def server(tmp_path: Path) -> str:
    file = tmp_path / "small.py"
    file.write_text(SERVER)
    return str(file)


def loaded(*arguments: str, stdin: str = "") -> tuple[set[str], str]:
    """The modules that a fresh interpreter imports until it ends, and its output."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *arguments],
        input=stdin,
        capture_output=True,
        encoding="utf-8",
        timeout=SECONDS,
        env={name: value for name, value in os.environ.items() if not name.startswith("ANTIPHON_")},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip() for line in lines}, done.stdout


# Names of the package


def test_the_table_of_names_repeats_the_imports_that_type_checkers_read() -> None:
    checked = next(node for node in ast.parse(SOURCE.read_text()).body if isinstance(node, ast.If))
    imports = {
        node.module: tuple(alias.name for alias in node.names)
        for node in checked.body
        if isinstance(node, ast.ImportFrom)
    }
    for module, names in imports.items():
        for name in names:
            assert getattr(antiphon, name) is getattr(importlib.import_module(str(module)), name)
    assert sorted(name for names in imports.values() for name in names) == sorted(antiphon.__all__)


def test_every_name_can_be_imported_and_listed() -> None:
    found: dict[str, object] = {}
    exec("from antiphon import *", found)
    assert set(antiphon.__all__) <= set(found)
    assert set(antiphon.__all__) <= set(dir(antiphon))
    assert found["Server"] is antiphon.server.Server


def test_public_modules_are_attributes_of_the_package() -> None:
    code = "import antiphon; print(antiphon.errors.NotFound is antiphon.NotFound, antiphon.testing.rehearse)"
    assert loaded("-c", code)[1].startswith("True <function rehearse")


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'antiphon' has no attribute 'Sever'"):
        _ = antiphon.Sever
    with pytest.raises(ImportError, match="Sever"):
        from antiphon import Sever  # noqa: F401


# Modules that a process loads


def test_the_package_itself_loads_neither_server_nor_client() -> None:
    modules, _ = loaded("-c", "import antiphon")
    assert not modules & {"asyncio", "msgspec", "pydantic", "antiphon.server", "antiphon.client", *FRAMEWORKS}


def test_a_client_does_not_load_the_server() -> None:
    modules, _ = loaded("-c", "from antiphon import Client")
    assert not modules & {"antiphon.server", "antiphon.runtime.engine", "pydantic", "typer", *FRAMEWORKS}


def test_a_group_and_the_tools_of_a_model_load_the_client_alone() -> None:
    modules, _ = loaded("-c", "import antiphon; antiphon.ClientGroup; antiphon.agents.openai_tools")
    assert {"antiphon.client.lifetime", "antiphon.agents.openai"} <= modules
    others = {"anthropic", "openai", "pydantic_ai", "antiphon.server", "antiphon.runtime.engine", "pydantic"}
    assert not modules & {*others, "typer", *FRAMEWORKS}


def test_a_server_does_not_load_the_client() -> None:
    modules, _ = loaded("-c", "from antiphon import Server")
    assert not modules & {"antiphon.client", "antiphon.transport.client", "typer", "sqlite3", *FRAMEWORKS}
    assert {module for module in modules if module.startswith("antiphon.openapi.")} == {
        "antiphon.openapi.factories"
    }


@pytest.mark.parametrize(
    "words", [["--help"], ["--version"], ["call", "--help"], ["run", "--help"], ["tasks", "ls", "--help"]]
)
def test_help_loads_typer_alone(words: list[str]) -> None:
    modules, output = loaded("-m", "antiphon", *words)
    assert output
    assert not modules & {"asyncio", "json", "msgspec", "pydantic", "antiphon.errors", *FRAMEWORKS}


@pytest.mark.parametrize(
    "words", [["call", "FILE", "add", "a=1", "b=2"], ["tools", "FILE"], ["doctor", "FILE"]]
)
def test_a_command_that_calls_a_server_loads_the_client_alone(words: list[str], server: str) -> None:
    modules, output = loaded("-m", "antiphon", *(server if word == "FILE" else word for word in words))
    assert "add" in output or output == "3\n"
    assert not modules & {
        "antiphon.server",
        "antiphon.runtime.engine",
        "antiphon.store",
        "pydantic",
        *FRAMEWORKS,
    }


def test_a_server_over_stdio_loads_neither_client_nor_http(server: str) -> None:
    modules, output = loaded(server, stdin=json.dumps(CALL) + "\n")
    assert json.loads(output)["result"]["content"] == [{"type": "text", "text": "3"}]
    unused = {"antiphon.client", "antiphon.transport.server.http.app", "antiphon.cli", "sqlite3", "typer"}
    assert not modules & (unused | FRAMEWORKS)


def test_the_process_of_a_file_that_a_command_calls_does_not_load_typer(server: str) -> None:
    modules, output = loaded("-m", "antiphon.cli.run", server, stdin=json.dumps(CALL) + "\n")
    assert json.loads(output)["result"]["content"] == [{"type": "text", "text": "3"}]
    assert not modules & {"antiphon.client", "multiprocessing", "sqlite3", "typer", *FRAMEWORKS}


def test_run_over_stdio_loads_neither_client_nor_http(server: str) -> None:
    modules, output = loaded("-m", "antiphon", "run", server, "--stdio", stdin=json.dumps(CALL) + "\n")
    assert json.loads(output)["result"]["content"] == [{"type": "text", "text": "3"}]
    unused = {"antiphon.client", "antiphon.transport.server.http.app", "multiprocessing", "sqlite3"}
    assert not modules & (unused | FRAMEWORKS)


def test_maintaining_a_store_loads_neither_client_nor_server(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'tasks.db'}"
    code = (
        "import asyncio, sys\n"
        "from antiphon.store import open_store\n"
        "async def main():\n"
        "    store = open_store(sys.argv[1])\n"
        "    await store.open()\n"
        "    await store.close()\n"
        "asyncio.run(main())\n"
    )
    loaded("-c", code, store)
    modules, _ = loaded("-m", "antiphon", "store", "compact", store)
    assert not modules & {"antiphon.server", "antiphon.client", "pydantic", *FRAMEWORKS}
