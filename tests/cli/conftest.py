"""The servers that many tests call."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import running
from tests.client.conftest import start_peer as start_peer

TOOLS_SERVER = Path(__file__).parent / "tools_server.py"
CATALOG_SERVER = Path(__file__).parent / "catalog_server.py"
QUESTIONS_SERVER = Path(__file__).parent / "questions_server.py"


@pytest.fixture(scope="session")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of the server in `tools_server.py`."""
    with running(TOOLS_SERVER, directory=tmp_path_factory.mktemp("tools")) as server:
        yield server.url


@pytest.fixture(scope="session")
def guarded_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of the server in `tools_server.py` that requires authentication."""
    with running(f"{TOOLS_SERVER}:guarded", directory=tmp_path_factory.mktemp("guarded")) as server:
        yield server.url


@pytest.fixture(scope="session")
def questions_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of the server in `questions_server.py`."""
    with running(QUESTIONS_SERVER, directory=tmp_path_factory.mktemp("questions")) as server:
        yield server.url


@pytest.fixture(scope="session")
def catalog_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of the server in `catalog_server.py`."""
    with running(CATALOG_SERVER, directory=tmp_path_factory.mktemp("catalog")) as server:
        yield server.url
