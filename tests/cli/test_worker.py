"""`antiphon run --store` and `antiphon worker`: real processes that share a store."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.cli.command import COMMAND, PATIENCE, antiphon, plain_environment, running
from tests.promises.speaking import Patient, answer, begin, look, reach
from tests.support import http
from tests.support.polling import wait_until
from tests.support.process import ROOT, free_port

SOURCE = """
import os
from pathlib import Path
from pydantic import BaseModel
from antiphon import Context, Limits, Server
from tests.support.polling import until

SHORT = os.environ.get("SHORT")
ROOM = int(os.environ.get("ROOM", "100"))
server = Server("shop", limits=Limits(max_running_tasks=ROOM, lease_seconds=3600, drain_timeout=1))

class Name(BaseModel):
    name: str

def note(what: str) -> str:
    with open("effects", "a") as file:
        file.write(what + "\\n")
    return what

def begin() -> str:
    return note(f"began in {os.getpid()}")

@server.tool(task="optional", poll_interval=0.05)
async def slow(ctx: Context, gate: str = "") -> str:
    await ctx.step(begin)
    if gate and not SHORT:
        await until(Path(gate).exists, within=3600)
    return f"done in {os.getpid()}"

@server.tool(task="optional", poll_interval=0.05)
async def ask(ctx: Context) -> str:
    return (await ctx.elicit("Who?", Name, key="who")).name

@server.tool
async def plain() -> str:
    return "plain"
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A Python file with a server."""
    file = tmp_path / "shop.py"
    file.write_text(SOURCE)
    return file


@contextmanager
def working(
    shop: Path, *options: str, env: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """Run `antiphon worker FILE` until the block ends."""
    log = shop.parent / f"worker{len(list(shop.parent.iterdir()))}.log"
    with log.open("w") as sink:
        process = subprocess.Popen(
            [*COMMAND, "worker", str(shop), *options],
            cwd=shop.parent,
            env=plain_environment(env),
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            text=True,
        )
    try:
        wait_until(lambda: "is running tasks" in log.read_text() or process.poll() is not None, PATIENCE)
        assert process.poll() is None, log.read_text()
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        assert process.wait(PATIENCE) == 0, log.read_text()
        assert "Traceback" not in log.read_text()


@contextmanager
def served(shop: Path, *options: str, env: Mapping[str, str] | None = None) -> Iterator[tuple[Patient, str]]:
    logs = shop.parent / f"logs{len(list(shop.parent.iterdir()))}"
    logs.mkdir()
    with running(shop, *options, directory=logs, cwd=shop.parent, env=env) as server:
        port = urlsplit(server.url).port
        assert port is not None
        yield Patient(port), server.url
        assert "Traceback" not in server.log


STORE = ("--store", "sqlite:///tasks.db")


@pytest.mark.parametrize("by", ["option", "variable", "several workers"])
async def test_run_keeps_tasks_in_the_configured_store(shop: Path, by: str) -> None:
    options = () if by == "variable" else STORE if by == "option" else (*STORE, "--workers", "2")
    env = {"ANTIPHON_STORE": STORE[1]} if by == "variable" else {}
    with served(shop, *options, env=env) as (client, _):
        id = (await begin(client, "ask"))["taskId"]
        await reach(client, id, "input_required")
    assert (shop.parent / "tasks.db").exists()
    with served(shop, *options, env=env) as (client, _):
        assert (await look(client, id))["status"] == "input_required"
        await answer(client, id, who="Ada")
        assert (await reach(client, id, "completed"))["result"]["content"][0]["text"] == "Ada"


async def test_the_store_option_overrides_the_file(shop: Path) -> None:
    shop.write_text(SOURCE.replace('Server("shop",', 'Server("shop", store="sqlite:///own.db",'))
    with served(shop, *STORE) as (client, _):
        await begin(client, "ask")
    assert (shop.parent / "tasks.db").exists()
    assert not (shop.parent / "own.db").exists()


async def test_a_worker_runs_tasks_beyond_the_limit_of_the_server(shop: Path) -> None:
    with served(shop, *STORE, env={"ROOM": "1"}) as (client, _), working(shop, *STORE) as worker:
        first = (await begin(client, "slow", gate="first"))["taskId"]
        second = (await begin(client, "slow"))["taskId"]
        task = await reach(client, second, "completed")
        assert task["result"]["content"][0]["text"] == f"done in {worker.pid}"
        assert (await look(client, first))["status"] == "working"


def test_a_worker_that_is_asked_to_stop_again_and_again_exits_with_code_0(shop: Path) -> None:
    with working(shop, *STORE) as worker:
        while worker.poll() is None:
            worker.terminate()
            os.sched_yield()
    assert worker.returncode == 0


async def test_a_stopping_worker_releases_its_tasks_immediately(shop: Path) -> None:
    with ExitStack() as stack:
        client, _ = stack.enter_context(served(shop, *STORE, env={"ROOM": "1"}))
        worker = stack.enter_context(working(shop, *STORE))
        await begin(client, "slow", gate="end")
        id = (await begin(client, "slow", gate="end"))["taskId"]
        effects = shop.parent / "effects"
        await asyncio.to_thread(wait_until, lambda: f"began in {worker.pid}" in effects.read_text(), PATIENCE)
        stack.enter_context(working(shop, *STORE, env={"SHORT": "1"}))
        worker.terminate()
        # The lease lasts an hour: a worker that waited for its end would be too late.
        task = await reach(client, id, "completed")
        assert str(worker.pid) not in task["result"]["content"][0]["text"]
        assert effects.read_text().count("began") == 2


@pytest.mark.parametrize(
    ("source", "options", "code", "message"),
    [
        (SOURCE, (), 2, "A worker needs a store that it shares with a server"),
        (SOURCE, ("--store", "memory:"), 2, "A worker needs a store that it shares with a server"),
        (SOURCE, ("--store", "redis://there"), 2, "Unknown store URL 'redis://there'."),
        (
            'from antiphon import Server\nserver = Server("idle")\n',
            STORE,
            2,
            "No tool of 'idle' can run as a task",
        ),
        (SOURCE, ("--store", "sqlite:////no/such/folder/tasks.db"), 3, "Cannot open the store:"),
        ("x = 1\n", STORE, 2, "There is no Server in"),
    ],
)
def test_a_worker_reports_why_it_cannot_start(
    tmp_path: Path, source: str, options: tuple[str, ...], code: int, message: str
) -> None:
    (tmp_path / "shop.py").write_text(source)
    done = antiphon("worker", "shop.py", *options, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert f"Error: {message}" in done.stderr
    assert "Traceback" not in done.stderr


async def test_the_probes_of_a_worker_answer_to_the_names_that_it_is_given(shop: Path) -> None:
    """Monitoring reaches a worker by the name of its service."""
    port = free_port()
    with working(shop, *STORE, "--port", str(port), "--hosts", "worker-1"):
        for host, status in [("worker-1:8001", 200), ("10.1.2.3", 200), ("evil.example", 403)]:
            response = await http.request(port, "GET", {"host": host}, path="/metrics")
            assert (host, response.status) == (host, status)
        refused = await http.request(port, "GET", {"host": "worker-2"}, path="/metrics")
        assert b"--hosts worker-2 " in refused.body


def test_run_refuses_an_unknown_kind_of_store(shop: Path) -> None:
    done = antiphon("run", shop, "--store", "redis://there", cwd=ROOT)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Unknown store URL 'redis://there'." in done.stderr
