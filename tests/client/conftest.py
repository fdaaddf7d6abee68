"""Real servers of other libraries, each started once for all tests."""

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.polling import DEADLINE, wait_until

PEERS = Path(__file__).parent.parent / "peers"


def command(peer: str, how: str) -> list[str]:
    """What starts a peer."""
    return [sys.executable, "-W", "ignore", str(PEERS / f"{peer}_server.py"), how]


@pytest.fixture(scope="session")
def start_peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    """Starts a peer that serves HTTP, where it does not run yet, and gives its address."""
    running: dict[str, tuple[str, subprocess.Popen[bytes]]] = {}
    logs = tmp_path_factory.mktemp("peers")

    def start(peer: str) -> str:
        if peer not in running:
            port = _free_port()
            log = logs / f"{peer}.log"
            with log.open("wb") as output:
                process = subprocess.Popen(command(peer, str(port)), stdout=output, stderr=output)
            running[peer] = (f"http://127.0.0.1:{port}/mcp", process)
            _wait_for(port, process, log)
        return running[peer][0]

    yield start
    for _, process in running.values():
        process.terminate()
    for _, process in running.values():
        process.wait(DEADLINE)


@pytest.fixture(scope="module", params=["mcp-http", "mcp-stdio", "fastmcp-http", "fastmcp-stdio"])
def target(request: pytest.FixtureRequest, start_peer: Callable[[str], str]) -> str | list[str]:
    """Where a client finds a peer: an address or a command."""
    peer, how = request.param.split("-")
    return start_peer(peer) if how == "http" else command(peer, how)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _wait_for(port: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
    def serves() -> bool:
        assert process.poll() is None, f"The peer did not start: {log.read_text()}"
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), DEADLINE):
            return True
        return False

    wait_until(serves)
