"""The supervisor of `--workers`: lost worker processes, and a store that cannot be opened."""

from __future__ import annotations

import os
import signal
from pathlib import Path

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
    """A worker process that runs when the supervisor looks at it, and is killed right afterwards."""

    pid, exitcode = 7, -signal.SIGKILL

    @property
    def process(self) -> FakeWorker:
        return self

    def is_alive(self) -> bool:
        return True


def test_a_process_that_is_killed_while_it_is_looked_at_did_respond(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    supervisor = WorkerSupervisor.__new__(WorkerSupervisor)
    supervisor.config = Config("app", timeout_worker_healthcheck=60)
    supervisor.processes = [FakeWorker()]  # type: ignore[list-item]
    monkeypatch.setattr(Multiprocess, "keep_subprocess_alive", lambda self: self.processes.clear())
    supervisor.keep_subprocess_alive()
    assert "Worker process 7 was ended by SIGKILL." in caplog.text


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
