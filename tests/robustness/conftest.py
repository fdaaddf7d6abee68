"""A server under load, in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.process import ServerProcess, started


@pytest.fixture
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """`tests/support/servers/load.py`, under uvicorn."""
    with started("load.py", tmp_path_factory.mktemp("load")) as server:
        yield server


@pytest.fixture
def commanded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """The same, under `antiphon run`."""
    with started("load.py", tmp_path_factory.mktemp("run"), command=True) as server:
        yield server
