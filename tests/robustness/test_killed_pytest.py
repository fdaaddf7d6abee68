"""A pytest that is killed leaves nothing behind: no process of its tests, and no temporary file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

import tests.apps.browser  # noqa: F401 # skips without a browser
from tests.support.polling import wait_until
from tests.support.process import ROOT

KINDS = ("chromium", "everything.py", "fork_server", "lifeline.py", "node", "postgres", "signal.pause")


def is_running(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize("killed", ["worker", "pytest"])
def test_all_that_a_killed_pytest_has_started_is_gone(killed: str, tmp_path: Path) -> None:
    written, log = tmp_path / "held", tmp_path / "log"
    with log.open("wb") as sink:
        pytest_ = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "pytest",
                "-p",
                "no:cacheprovider",
                "-n",
                "1",
                "tests/robustness/holding.py",
            ],
            cwd=ROOT,
            env={**os.environ, "HOLDING": str(written)},
            stdout=sink,
            stderr=sink,
        )
    try:
        wait_until(lambda: written.exists() or pytest_.poll() is not None, 120)
        assert pytest_.poll() is None, log.read_text()
        held = json.loads(written.read_text(encoding="utf-8"))
        processes = dict(held["processes"])
        assert [kind for kind in KINDS if not any(kind in words for words in processes.values())] == []
        assert Path(held["folder"]).is_dir()
        if killed == "worker":
            os.kill(held["pid"], signal.SIGKILL)
        else:
            pytest_.kill()
        wait_until(lambda: not any(map(is_running, [held["pid"], *processes])), 120)
        wait_until(lambda: not Path(held["folder"]).exists())
        pytest_.wait(120)
    finally:
        pytest_.kill()
        pytest_.wait()
