"""The benchmarks still work: their servers can be loaded, and planned requests are timed from their plan."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.polling import turns

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
SERVERS = sorted((BENCHMARKS / "servers").glob("antiphon_*.py"))
LOAD = "import runpy, sys; print(runpy.run_path(sys.argv[1])['server'].name)"


@pytest.mark.parametrize("path", SERVERS, ids=lambda path: path.stem)
def test_a_server_of_the_benchmarks_can_be_loaded(path: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "BENCH_STORE": f"sqlite:///{tmp_path / 'tasks.db'}", "TMPDIR": str(tmp_path)}
    environment["PYTHONPATH"] = os.pathsep.join([str(path.parent), environment.get("PYTHONPATH", "")])
    loaded = subprocess.run(
        [sys.executable, "-c", LOAD, str(path)], env=environment, capture_output=True, text=True, timeout=60
    )
    assert loaded.returncode == 0, loaded.stderr
    assert loaded.stdout.strip() == "bench"


@pytest.mark.parametrize("path", sorted(BENCHMARKS.glob("bench_*.py")), ids=lambda path: path.stem)
def test_a_benchmark_can_be_loaded(path: Path) -> None:
    shown = subprocess.run(
        [sys.executable, str(path), "--help"], capture_output=True, text=True, timeout=60, check=False
    )
    assert shown.returncode == 0, shown.stderr
    assert "--quick" in shown.stdout


class FakeConnection:
    """A connection of the load generator that only counts what it is told to send."""

    def __init__(self) -> None:
        self.number, self.closed, self.sent, self.sent_at = 0, False, 0, 0
        self.requests = iter([b"request"] * 10)

    def send(self, request: bytes) -> None:
        self.sent += 1


async def test_the_latency_of_a_planned_request_counts_from_its_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import phases  # type: ignore[import-not-found]

    clock = SimpleNamespace(seconds=0)
    monkeypatch.setattr(phases, "time", SimpleNamespace(perf_counter_ns=lambda: clock.seconds * 10**9))
    phase = phases.OpenPhase(3, lambda number: b"right", rate=1.0)
    phase.random_times = SimpleNamespace(expovariate=lambda rate: 1 / rate)
    connection: Any = FakeConnection()
    answer = SimpleNamespace(status=200, body=b"right")

    phase.start([connection])
    assert connection.sent == 1
    clock.seconds = 5  # the server stalls while two more requests become due
    await turns()
    assert (connection.sent, phase.left) == (1, 0)
    for sent in (2, 3, 3):
        phase.answered(connection, answer)
        assert connection.sent == sent

    assert [latency // 10**9 for latency in phase.latencies] == [5, 4, 3]
    assert phase.done.is_set()
    assert phase.errors == 0
