"""A studio behind a real socket, on each store; one for all tests of a module, made new for each of them."""

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
    """A studio, and where it is."""
    async with at_work(kind, tmp_path_factory.mktemp("studio")) as found:
        yield found


@pytest.fixture
def studio(served: tuple[Studio, Address]) -> Studio:
    """What is served, and has done nothing yet."""
    served[0].forget()
    return served[0]


@pytest.fixture
def port(served: tuple[Studio, Address]) -> int:
    """Where it is served."""
    return served[1].port
