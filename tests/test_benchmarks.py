"""The servers that the benchmarks measure can be loaded: a rename must not break `make bench` unnoticed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SERVERS = sorted((Path(__file__).parent.parent / "benchmarks" / "servers").glob("antiphon_*.py"))
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
