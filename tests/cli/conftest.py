"""One server for all tests that only call it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import running
from tests.client.conftest import start_peer as start_peer

SERVED = Path(__file__).parent / "tools_server.py"
CURIOUS = Path(__file__).parent / "questions_server.py"


@pytest.fixture(scope="session")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the server in `served.py`."""
    with running(SERVED, directory=tmp_path_factory.mktemp("served")) as server:
        yield server.url


@pytest.fixture(scope="session")
def guarded_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the one in it that wants to know who is calling."""
    with running(f"{SERVED}:guarded", directory=tmp_path_factory.mktemp("guarded")) as server:
        yield server.url


@pytest.fixture(scope="session")
def curious(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server whose tools ask."""
    with running(CURIOUS, directory=tmp_path_factory.mktemp("curious")) as server:
        yield server.url
