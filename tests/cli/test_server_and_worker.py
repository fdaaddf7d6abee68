"""Serving and running tasks in separate processes, and the probes and metrics of each."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest

from antiphon import Server
from antiphon.runtime.tasks import lifecycle
from tests.cli.command import antiphon, running
from tests.cli.test_worker import shop, working
from tests.promises.speaking import Patient, begin, look, reach
from tests.support.polling import until
from tests.support.process import free_port
from tests.support.serving import serving

__all__ = ["shop"]

STORE = "--store", "sqlite:///tasks.db"
SAMPLE = re.compile(r'[a-z_]+(\{([a-z_]+="[^"\n]*",?)+\})? -?[0-9.e+-]+')


def port_of(url: str) -> int:
    port = urlsplit(url).port
    assert port is not None
    return port


async def test_a_server_with_no_worker_leaves_tasks_to_a_worker(shop: Path) -> None:
    with running(shop, *STORE, "--no-worker", directory=shop.parent, cwd=shop.parent) as server:
        client = Patient(port_of(server.url))
        ids = [(await begin(client, "slow"))["taskId"] for _ in range(5)]
        assert "plain" in (await client.call("plain")).text
        with working(shop, *STORE) as worker:
            for id in ids:
                task = await reach(client, id, "completed")
                assert task["result"]["content"][0]["text"] == f"done in {worker.pid}"
            effects = (shop.parent / "effects").read_text().splitlines()
            assert effects == [f"began in {worker.pid}"] * len(ids)


def test_no_worker_requires_a_shared_store(shop: Path) -> None:
    for options in ([], ["--store", "memory:"]):
        refused = antiphon("run", shop, "--no-worker", *options)
        assert refused.returncode == 2
        assert "--store postgresql://" in refused.stderr


async def test_a_worker_runs_only_the_tasks_of_its_tools(shop: Path) -> None:
    with running(shop, *STORE, "--no-worker", directory=shop.parent, cwd=shop.parent) as server:
        client = Patient(port_of(server.url))
        slow = (await begin(client, "slow"))["taskId"]
        ask = (await begin(client, "ask"))["taskId"]
        with working(shop, *STORE, "--tools", "ask"):
            await reach(client, ask, "input_required")
            assert (await look(client, slow))["status"] == "working"


def test_a_worker_refuses_a_tool_that_cannot_run_as_a_task(shop: Path) -> None:
    refused = antiphon("worker", shop, *STORE, "--tools", "slow,plain", cwd=shop.parent)
    assert refused.returncode == 2
    assert "No tool 'plain' can run as a task. These can: slow, ask." in refused.stderr


async def test_concurrency_limits_the_running_tasks_of_a_worker(shop: Path) -> None:
    with running(shop, *STORE, "--no-worker", directory=shop.parent, cwd=shop.parent) as server:
        client = Patient(port_of(server.url))
        gates = [shop.parent / name for name in ("first", "second", "third")]
        ids = [(await begin(client, "slow", gate=str(gate)))["taskId"] for gate in gates]
        port = free_port()
        effects = shop.parent / "effects"
        with working(shop, *STORE, "--concurrency", "1", "--port", str(port)):
            for number, (id, gate) in enumerate(zip(ids, gates, strict=True), 1):
                await until(lambda: effects.exists())
                await until(lambda number=number: len(effects.read_text().splitlines()) >= number)
                assert metrics(port)["antiphon_tasks_running"] == 1
                assert len(effects.read_text().splitlines()) == number
                gate.touch()
                await reach(client, id, "completed")
            said = metrics(port)
            assert said['antiphon_tasks_total{tool="slow",status="done"}'] == 3
            assert said['antiphon_tasks{phase="ended"}'] == 3
            assert said["antiphon_leases_lost_total"] == 0
            assert said["antiphon_store_up"] == 1
            assert said["antiphon_commit_operations_count"] > 0
            assert httpx2.get(f"http://127.0.0.1:{port}/healthz").text == "ok\n"
            assert httpx2.get(f"http://127.0.0.1:{port}/readyz").json() == {"ready": True, "store": "up"}
            assert httpx2.get(f"http://127.0.0.1:{port}/mcp").status_code == 404


def test_a_worker_does_not_print_the_password_of_its_store(shop: Path) -> None:
    refused = antiphon("worker", shop, "--store", "postgresql://ann:secret@127.0.0.1:1/none")
    assert refused.returncode != 0
    assert "cannot be reached" in refused.stderr
    assert "secret" not in refused.stderr + refused.stdout


def metrics(port: int) -> dict[str, float]:
    """Return the metrics of a process. Every line must be valid for Prometheus."""
    answer = httpx2.get(f"http://127.0.0.1:{port}/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    found = {}
    for line in answer.text.splitlines():
        if not line.startswith("#"):
            assert SAMPLE.fullmatch(line), line
            name, _, value = line.rpartition(" ")
            found[name] = float(value)
    return found


async def test_a_server_counts_its_calls_in_metrics(shop: Path) -> None:
    with running(shop, *STORE, directory=shop.parent, cwd=shop.parent) as server:
        port = port_of(server.url)
        metrics(port)  # calls are timed from the first look on
        client = Patient(port)
        for _ in range(3):
            await client.call("plain")
        id = (await begin(client, "slow"))["taskId"]
        await reach(client, id, "completed")
        said = metrics(port)
        assert said['antiphon_calls_total{tool="plain",response="answer",outcome="complete"}'] == 3
        assert said['antiphon_call_seconds_count{tool="plain"}'] == 3
        assert said['antiphon_call_seconds_bucket{tool="plain",le="+Inf"}'] == 3
        assert said['antiphon_calls_total{tool="slow",response="promise",outcome="complete"}'] == 1
        assert said["antiphon_queue_age_seconds"] == 0


async def test_a_stopping_server_is_not_ready() -> None:
    app = Server("leaving", store="memory:").asgi(probes=True)
    async with serving(app) as address, httpx2.AsyncClient() as http:
        place = f"http://127.0.0.1:{address.port}"
        assert (await http.get(f"{place}/readyz")).json() == {"ready": True, "store": "up"}
        app.begin_shutdown()
        leaving = await http.get(f"{place}/readyz")
        assert (leaving.status_code, leaving.json()["ready"]) == (503, False)
        assert (await http.get(f"{place}/healthz")).status_code == 200
        assert (await http.post(f"{place}/healthz")).status_code == 405


async def test_readiness_says_that_the_file_of_the_store_was_deleted(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    app = Server("lost", store=f"sqlite:///{path}").asgi(probes=True)
    async with serving(app) as address, httpx2.AsyncClient() as http:
        place = f"http://127.0.0.1:{address.port}"
        assert (await http.get(f"{place}/readyz")).json() == {"ready": True, "store": "up"}
        path.unlink()
        found = await http.get(f"{place}/readyz")
        assert (found.status_code, found.json()) == (200, {"ready": True, "store": "away"})
        assert not path.exists()


async def test_readiness_says_that_the_store_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "STORE_PROBE_SECONDS", 0.1)
    path = tmp_path / "tasks.db"
    app = Server("stuck", store=f"sqlite:///{path}").asgi(probes=True)
    async with serving(app) as address, httpx2.AsyncClient() as http:
        place = f"http://127.0.0.1:{address.port}"
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")  # a writer that does not come back, like a frozen disk
        assert (await http.get(f"{place}/readyz")).json() == {"ready": True, "store": "away"}
        other.execute("ROLLBACK")
        other.close()
        monkeypatch.setattr(lifecycle, "STORE_PROBE_SECONDS", 30)
        assert (await http.get(f"{place}/readyz", timeout=30)).json() == {"ready": True, "store": "up"}


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
async def test_probes_are_opt_in(path: str) -> None:
    async with serving(Server("plain")) as address, httpx2.AsyncClient() as http:
        assert (await http.get(f"http://127.0.0.1:{address.port}{path}")).status_code == 404
