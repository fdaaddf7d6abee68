"""What every test may use."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import hypothesis
import pytest

from tests.support.postgres import Postgres, postgres

hypothesis.settings.register_profile("antiphon", deadline=None, derandomize=True, print_blob=False)
hypothesis.settings.load_profile("antiphon")

# A shell lets what it starts in the background ignore Ctrl-C, and so would every command that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def database() -> Iterator[Postgres]:
    """A PostgreSQL that all tests share; each has a schema of its own in it."""
    with postgres() as server:
        yield server
