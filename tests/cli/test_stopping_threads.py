"""Stopping a process in which a function that is not async does not return."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
from pathlib import Path

import pytest

from antiphon import Client
from tests.cli.command import COMMAND, PATIENCE, plain_environment, running
from tests.cli.test_stopping import Calls
from tests.support.polling import wait_until
from tests.support.process import ROOT

SERVER = Path(__file__).parent / "stopping_server.py"
WARNING = "The process ends although functions still run in threads: 1."


def settings(folder: Path) -> dict[str, str]:
    return {"FOLDER": str(folder), "DRAIN": "0.2", "ANTIPHON_SECRETS": "a secret of sixteen or more"}


@pytest.mark.parametrize("options", [(), ("--workers", "2")], ids=["alone", "workers"])
def test_a_server_ends_although_a_function_runs_in_a_thread(tmp_path: Path, options: tuple[str, ...]) -> None:
    store = ("--store", f"sqlite:///{tmp_path / 'tasks.db'}")
    with running(SERVER, *options, *store, directory=tmp_path, env=settings(tmp_path)) as server:
        calls = Calls(server.url)
        calls.make(1, "block", name="blocked")
        wait_until(lambda: (tmp_path / "blocked").exists(), PATIENCE)
        server.process.send_signal(signal.SIGTERM)
        calls.join()
        assert calls.responses[1].status_code == 503
        assert server.process.wait(PATIENCE) == 0
    assert options or WARNING in server.log  # a worker process ends with its signal


def test_a_worker_ends_although_a_function_runs_in_a_thread(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'tasks.db'}"
    log = tmp_path / "worker.log"

    async def submit(url: str) -> None:
        async with Client(url) as client:
            await client.submit("block", name="blocked")

    with running(
        SERVER, "--no-worker", "--store", store, directory=tmp_path, env=settings(tmp_path)
    ) as server:
        asyncio.run(submit(server.url))
        with log.open("w") as sink:
            worker = subprocess.Popen(
                [*COMMAND, "worker", str(SERVER), "--store", store],
                cwd=ROOT,
                env=plain_environment(settings(tmp_path)),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
            )
        try:
            wait_until(lambda: (tmp_path / "blocked").exists(), PATIENCE)
            worker.terminate()
            assert worker.wait(PATIENCE) == 0
        finally:
            worker.kill()
            worker.wait()
    assert WARNING in log.read_text()


def test_a_server_on_stdio_ends_although_a_function_runs_in_a_thread(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    with log.open("w") as sink:
        server = subprocess.Popen(
            [*COMMAND, "run", str(SERVER), "--stdio", "--log-level", "warning"],
            cwd=ROOT,
            env=plain_environment(settings(tmp_path)),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=sink,
            encoding="utf-8",
        )
    try:
        assert server.stdin is not None
        call = {"name": "block", "arguments": {"name": "blocked"}}
        server.stdin.write(
            json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}) + "\n"
        )
        server.stdin.flush()
        wait_until(lambda: (tmp_path / "blocked").exists(), PATIENCE)
        server.stdin.close()
        assert server.wait(PATIENCE) == 0
    finally:
        server.kill()
        server.wait()
    assert WARNING in log.read_text()
