"""Clients that others wrote see tasks through that ask on the way, on both versions and transports.

Each client is a program of its own: `promising_*.py`, `promising*.mjs`. What one began, another finishes.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.interop import promising
from tests.interop.asking import ANSWERS, LOGIN, ROOT, Ending
from tests.interop.promising import ALL, AT_THE_SAME_TIME, ELICITING
from tests.support import process
from tests.support.leases import end_leases
from tests.support.node import Node, Printed
from tests.support.process import ServerProcess, environment, started

HERE = Path(__file__).parent
SERVER = Path(promising.__file__)
MODULES = process.ROOT / ".node"
MCP_1 = process.ROOT / ".venv" / "mcp-1" / "bin" / "python"


class Program(NamedTuple):
    """A client: how it is run, which version it speaks, and what it can be asked."""

    command: tuple[str, ...]
    """A Python and a file, or a file for the Node that the tests share."""
    version: str
    endings: dict[str, Ending] = ALL
    options: dict[str, Any] = {}


CLIENTS = {
    "mcp-1": Program((str(MCP_1), str(HERE / "promising_mcp1.py")), "2025-11-25"),
    "typescript-1": Program((str(HERE / "promising.mjs"),), "2025-11-25"),
    "ext-tasks-legacy": Program((str(HERE / "promising_ext.mjs"),), "2025-11-25", options={"mode": "legacy"}),
    "ext-tasks": Program((str(HERE / "promising_ext.mjs"),), "2026-07-28"),
    "fastmcp-tasks": Program(
        (sys.executable, str(HERE / "promising_fastmcp.py")), "2026-07-28", endings=ELICITING
    ),
}


def run(node: Node, client: Program, target: ServerProcess | None, **wanted: Any) -> dict[str, Any]:
    """Run a client on a server, or on one that it starts itself: what it printed."""
    assert MCP_1.exists(), "make .venv/mcp-1/installed"
    options: dict[str, Any] = {"modules": str(MODULES), "answers": ANSWERS, "login": LOGIN, "root": ROOT}
    if target is not None:
        options["url"] = target.url
    else:
        command = {"command": sys.executable, "args": [str(SERVER), "--stdio"]}
        options["process"] = {**command, "env": environment()}
    given = json.dumps({**options, **client.options, **wanted})
    if len(client.command) == 1:
        ran = node.run(Path(*client.command), given)
    else:
        done = subprocess.run([*client.command, given], capture_output=True, text=True, timeout=60)
        ran = Printed(done.returncode, done.stdout, done.stderr)
    assert ran.code == 0, ran.stderr
    told: dict[str, Any] = json.loads(ran.stdout)
    assert told["version"] == client.version
    return told


def check(told: dict[str, Any], ending: Ending) -> None:
    """A task ended as it should, and asked on the way what it should, in its own name."""
    given = told["given"]
    assert given["isError"] == ending.is_error
    assert ending.text in given["content"][0]["text"]
    assert sorted(told["asked"]) == sorted(ending.asked)
    assert "input_required" in told["statuses"]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """The server, over HTTP."""
    with started(SERVER, tmp_path_factory.mktemp("promising")) as server:
        yield server
        assert "Traceback" not in server.log


@pytest.fixture(scope="module", params=["http", "stdio"])
def way(request: pytest.FixtureRequest) -> str:
    """How the client reaches the server."""
    return str(request.param)


@pytest.fixture(scope="module", params=CLIENTS)
def client(request: pytest.FixtureRequest) -> Program:
    """Whose client it is."""
    return CLIENTS[request.param]


@pytest.fixture(scope="module")
def told(node: Node, client: Program, way: str, served: ServerProcess) -> dict[str, Any]:
    """What a client was given, in one run over everything."""
    return run(
        node,
        client,
        served if way == "http" else None,
        tools=list(client.endings),
        many=list(AT_THE_SAME_TIME),
        cancel="two_rounds",
    )


def test_a_task_asks_and_ends_as_its_call_would(
    client: Program, told: dict[str, Any], subtests: pytest.Subtests
) -> None:
    assert list(told["calls"]) == list(client.endings)
    for tool, ending in client.endings.items():
        with subtests.test(tool):
            check(told["calls"][tool], ending)


def test_how_a_task_ended_has_the_name_that_the_version_gives_it(
    client: Program, told: dict[str, Any]
) -> None:
    assert told["calls"]["one_round"]["statuses"][-1] == "completed"
    failed = "failed" if client.version == "2025-11-25" else "completed"
    assert told["calls"]["insist"]["statuses"][-1] == failed


def test_tasks_that_ask_at_the_same_time_are_kept_apart(told: dict[str, Any]) -> None:
    texts = [each["given"]["content"][0]["text"] for each in told["many"]]
    assert texts == [ending.text for ending in AT_THE_SAME_TIME.values()]


def test_a_task_that_is_cancelled_while_it_asks_is_not_asked_about(told: dict[str, Any]) -> None:
    assert told["cancelled"] == {"status": "cancelled", "asked": []}


@pytest.mark.parametrize("name", ["mcp-1", "typescript-1"])
def test_tasks_are_listed_for_the_process_that_started_the_server(node: Node, name: str) -> None:
    told = run(node, CLIENTS[name], None, tools=["insist"], cancel="one_round", list=True)
    assert told["listed"][told["calls"]["insist"]["id"]] == "failed"
    assert "cancelled" in told["listed"].values()


def test_what_one_client_began_another_finishes_after_the_server_was_killed(
    node: Node, tmp_path: Path
) -> None:
    effects = tmp_path / "effects"
    env = {"ANTIPHON_STORE": f"sqlite:///{tmp_path}/tasks.db", "ASKING_EFFECTS": str(effects)}
    with started(SERVER, tmp_path, env=env) as first:
        begun = [run(node, client, first, begin="two_rounds")["begun"] for client in CLIENTS.values()]
        first.process.kill()
        first.process.wait()
    asyncio.run(end_leases(env["ANTIPHON_STORE"]))
    head, *rest = CLIENTS.values()
    with started(SERVER, tmp_path, env=env) as second:
        for id, client in zip(begun, [*rest, head], strict=True):
            finished = run(node, client, second, finish=id)["finished"]
            assert finished["id"] == id
            check(finished, ALL["two_rounds"])
    done = effects.read_text().split()
    assert sorted(done) == sorted(["before", "between", "after"] * len(CLIENTS))
