"""A test that never ends, with a process of each kind that tests start. `test_killed_pytest.py` kills it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil

from antiphon.client import Client
from tests.apps.browser import launched
from tests.cli.command import running
from tests.support.authorization_server import AuthorizationServer
from tests.support.lifeline import hold
from tests.support.polling import forever
from tests.support.postgres import Postgres
from tests.support.process import SERVERS, environment

DEAF = """
import signal
for each in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(each, signal.SIG_IGN)
print("deaf", flush=True)
while True:
    signal.pause()
"""
"""A program that only SIGKILL ends."""


async def test_holds_processes(database: Postgres, oidc: AuthorizationServer, tmp_path: Path) -> None:
    few = {"PATH": os.environ["PATH"]}  # as a stdio server of a careful client gets
    with subprocess.Popen(
        [sys.executable, "-c", DEAF], env=few, stdout=subprocess.PIPE, start_new_session=True
    ) as deaf:
        assert deaf.stdout is not None
        assert deaf.stdout.readline() == b"deaf\n"
        server = [sys.executable, SERVERS / "everything.py", "--stdio"]
        async with Client(server, env={"PYTHONPATH": environment()["PYTHONPATH"]}), launched():
            with running(SERVERS / "everything.py", directory=tmp_path):
                held = {
                    "pid": os.getpid(),
                    "folder": str(hold()),
                    "processes": [
                        (each.pid, " ".join(each.cmdline()))
                        for each in psutil.Process().children(recursive=True)
                    ],
                }
                written = Path(os.environ["HOLDING"])
                written.with_suffix(".part").write_text(json.dumps(held), encoding="utf-8")
                written.with_suffix(".part").rename(written)
                await forever()
