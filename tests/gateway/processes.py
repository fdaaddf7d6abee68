"""`antiphon gateway` in a process of its own, on a free port."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.fork_server import start_process
from tests.support.process import ServerProcess, end, environment, free_port, wait_for


@contextmanager
def gateway(
    folder: Path, *words: str, after: Sequence[str] = (), env: Mapping[str, str] | None = None
) -> Iterator[ServerProcess]:
    """Run a gateway until the block ends; `after` is the command after two dashes."""
    port = free_port()
    command = [sys.executable, "-m", "antiphon", "gateway", *words, "--port", str(port)]
    with serving([*command, *(("--", *after) if after else ())], port, folder, env) as server:
        yield server


@contextmanager
def serving(
    command: Sequence[str], port: int, folder: Path, env: Mapping[str, str] | None = None
) -> Iterator[ServerProcess]:
    """Run a command that serves on a port, with its output in a file, until the block ends."""
    log = folder / f"server-{port}.log"
    with log.open("wb") as sink:
        process = start_process(
            command,
            cwd=Path.cwd(),
            env=environment(env),
            stdout=sink,
            stderr=sink,
        )
    server = ServerProcess(process, port, log)
    try:
        wait_for(server, 60)
        yield server
    finally:
        end(process)
