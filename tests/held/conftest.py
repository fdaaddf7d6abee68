"""A store that instances and processes can share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of each store that processes can share."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/tasks.db"
    return str(request.getfixturevalue("database").url())
