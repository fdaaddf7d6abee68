"""The supervisor of `--workers`: lost worker processes, and a store that cannot be opened."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest
from uvicorn import Config
from uvicorn.supervisors import Multiprocess

from antiphon.cli.run.supervisor import WorkerSupervisor, exit_reason
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


class FakeWorker:
    """A worker process that runs when the supervisor looks at it, and does not answer."""

    pid, exitcode = 7, -signal.SIGKILL

    def __init__(self) -> None:
        self.is_running = True

    @property
    def process(self) -> Any:
        return SimpleNamespace(is_alive=lambda: self.is_running, kill=lambda: None)

    parent_conn = child_conn = SimpleNamespace(close=lambda: None)

    def kill(self) -> None:
        raise AssertionError("the supervisor notes which processes it kills")


@pytest.mark.parametrize(
    ("dies", "says"),
    [(True, "was ended by SIGKILL"), (False, "did not respond for 30 s and was killed")],
)
def test_a_process_that_dies_while_the_supervisor_waits_for_it_was_not_killed_by_it(
    dies: bool, says: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    worker = FakeWorker()

    def replace(supervisor: Multiprocess) -> None:
        worker.is_running = not dies
        worker.kill()
        supervisor.processes.clear()

    monkeypatch.setattr(signal, "signal", lambda *handler: None)
    monkeypatch.setattr(Multiprocess, "keep_subprocess_alive", replace)
    supervisor = WorkerSupervisor(Config("app", workers=1), [])
    supervisor.processes = [worker]  # type: ignore[list-item]
    supervisor.keep_subprocess_alive()
    assert f"Worker process 7 {says}." in caplog.text


def test_a_process_on_a_busy_machine_has_time_to_respond(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(FakeWorker):
        def is_alive(self, timeout: float) -> bool:
            return timeout >= 20

    monkeypatch.setattr(signal, "signal", lambda *handler: None)
    supervisor, worker = WorkerSupervisor(Config("app", workers=1), []), Slow()
    supervisor.processes = [worker]  # type: ignore[list-item]
    supervisor.keep_subprocess_alive()
    assert supervisor.processes == [worker]


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (1, "has ended with exit code 1"),
        (-signal.SIGSEGV, "was ended by SIGSEGV"),
        (-250, "was ended by signal 250"),
    ],
)
def test_how_a_process_has_ended(code: int, says: str) -> None:
    assert exit_reason(code) == says


def test_a_store_that_cannot_be_opened_is_reported_once(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/no/where/tasks.db"
    done = antiphon("run", SERVER, "--port", "0", "--workers", "4", "--store", store, env=settings(tmp_path))
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == (
        f"Error: Cannot open the store: There is no directory for the store {tmp_path}/no/where/tasks.db: "
        "make it first.\n"
    )
