"""Two instances on each store that can be shared."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.instances.pair import Instance, pair


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store that instances can share."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/tasks.db"
    return str(request.getfixturevalue("database").url())


@pytest.fixture
async def both(place: str) -> AsyncIterator[tuple[Instance, Instance]]:
    """Yield an instance that serves and runs tasks, and one that only serves."""
    async with pair(place) as instances:
        yield instances
