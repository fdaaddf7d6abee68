"""The server that other libraries' clients talk to: `tests/support/servers/everything.py`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.process import ServerProcess, started


@pytest.fixture(scope="session")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with one of everything, in a process of its own."""
    with started("everything.py", tmp_path_factory.mktemp("everything")) as server:
        yield server
        assert "Traceback" not in server.log
