"""What every test may use."""

from __future__ import annotations

from collections.abc import Iterator

import hypothesis
import pytest

from tests.support.postgres import Postgres, postgres

hypothesis.settings.register_profile("antiphon", deadline=None, derandomize=True, print_blob=False)
hypothesis.settings.load_profile("antiphon")


@pytest.fixture(scope="session")
def database() -> Iterator[Postgres]:
    """A PostgreSQL that all tests share; each has a schema of its own in it."""
    with postgres() as server:
        yield server
