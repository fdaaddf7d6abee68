"""A `Workshop` on a real socket, with each kind of store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.promises.tooling import STORES, Ahead, Workshop, at_work
from tests.support.serving import Address


@pytest.fixture(params=STORES)
def kind(request: pytest.FixtureRequest) -> str:
    """A kind of store."""
    return str(request.param)


@pytest.fixture
async def served(kind: str, tmp_path: Path) -> AsyncIterator[tuple[Workshop, Address]]:
    """A `Workshop` and its address."""
    async with at_work(kind, tmp_path) as found:
        yield found


@pytest.fixture
def ahead(monkeypatch: pytest.MonkeyPatch) -> Ahead:
    """Moves the time of day."""
    return Ahead(monkeypatch)


@pytest.fixture
def workshop(served: tuple[Workshop, Address]) -> Workshop:
    """The `Workshop` that is served."""
    return served[0]


@pytest.fixture
def port(served: tuple[Workshop, Address]) -> int:
    """The port of the server."""
    return served[1].port
