"""A `Studio` on a real socket, with each kind of store; shared by a module and reset for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.promises.tooling import STORES
from tests.streaming.tooling import Studio, at_work
from tests.support.serving import Address


@pytest.fixture(scope="module", params=STORES)
def kind(request: pytest.FixtureRequest) -> str:
    """A kind of store."""
    return str(request.param)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(
    kind: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[Studio, Address]]:
    """A `Studio` and its address."""
    async with at_work(kind, tmp_path_factory.mktemp("studio")) as found:
        yield found


@pytest.fixture
def studio(served: tuple[Studio, Address]) -> Studio:
    """The `Studio` that is served, after a reset."""
    served[0].forget()
    return served[0]


@pytest.fixture
def port(served: tuple[Studio, Address]) -> int:
    """The port of the server."""
    return served[1].port
