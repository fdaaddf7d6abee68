"""The supervisor of `--workers`: lost worker processes, and a store that cannot be opened."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import httpx2
import pytest

from antiphon.cli.run.supervisor import _end
from tests.cli.command import PATIENCE, antiphon, running
from tests.cli.test_stopping import tool_call
from tests.support.polling import wait_until

SERVER = Path(__file__).parent / "stopping_server.py"


def settings(folder: Path) -> dict[str, str]:
    return {"FOLDER": str(folder), "ANTIPHON_SECRETS": "a secret of sixteen or more"}


def test_a_worker_process_that_is_lost_is_named_in_a_warning(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'tasks.db'}"
    options = ("--workers", "2", "--store", store)
    with running(SERVER, *options, directory=tmp_path, env=settings(tmp_path)) as server:
        answer = httpx2.post(server.url, json=tool_call(1, "process"), timeout=PATIENCE).json()
        pid = int(answer["result"]["content"][0]["text"])
        os.kill(pid, signal.SIGKILL)
        said = f"Worker process {pid} was ended by SIGKILL. Another one has been started in its place."
        wait_until(lambda: said in server.log, PATIENCE)
        assert server.terminate() == 0


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (1, "has ended with exit code 1"),
        (-signal.SIGSEGV, "was ended by SIGSEGV"),
        (-250, "was ended by signal 250"),
    ],
)
def test_how_a_process_has_ended(code: int, says: str) -> None:
    assert _end(code) == says


def test_a_store_that_cannot_be_opened_is_reported_once(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/no/where/tasks.db"
    done = antiphon("run", SERVER, "--port", "0", "--workers", "4", "--store", store, env=settings(tmp_path))
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == (
        f"Error: Cannot open the store: There is no directory for the store {tmp_path}/no/where/tasks.db: "
        "make it first.\n"
    )
