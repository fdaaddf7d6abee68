"""What every test may use."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest
import pytest_asyncio

from antiphon import wall_clock
from antiphon.runtime.tasks import worker
from tests.support import lifeline
from tests.support.lease_time import LeaseTime
from tests.support.postgres import Postgres, postgres
from tests.tiers import (
    pytest_addoption,
    pytest_collection_modifyitems,
    pytest_configure,
    pytest_terminal_summary,
)

__all__ = ["pytest_addoption", "pytest_collection_modifyitems", "pytest_configure", "pytest_terminal_summary"]

if TYPE_CHECKING:
    from tests.support.authorization_server import AuthorizationServer
    from tests.support.node import Node

hypothesis.settings.register_profile("antiphon", deadline=None, derandomize=True, print_blob=False)
hypothesis.settings.load_profile("antiphon")

# Before anything is started.
lifeline.hold()

# A shell lets what it starts in the background ignore Ctrl-C, and so would every command that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def database() -> Iterator[Postgres]:
    """A PostgreSQL that all tests share; each has a schema of its own in it."""
    with postgres() as server:
        yield server


@pytest.fixture(scope="session")
def oidc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AuthorizationServer]:
    """A real authorization server, which all tests of a process share."""
    from tests.support.authorization_server import authorization_server  # only some tests have Node

    with authorization_server(tmp_path_factory.mktemp("oidc")) as server:
        yield server


@pytest.fixture(scope="session")
def node() -> Iterator[Node]:
    """The Node in which all tests of a process run their programs."""
    from tests.support.node import running_node  # only some tests have Node

    with running_node() as running:
        yield running


@pytest.fixture
def quick_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the workers of this process look at once for tasks whose clock or lease a test has moved."""
    monkeypatch.setattr(worker, "CLAIM_INTERVAL_SECONDS", 0.02)


@pytest.fixture
def lease_time(monkeypatch: pytest.MonkeyPatch) -> LeaseTime:
    """The clock of leases, which is the real one again after the test."""
    monkeypatch.setattr(wall_clock, "leases_ahead", 0.0)
    return LeaseTime()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def chromium() -> AsyncIterator[Any]:
    """The Chromium that all tests of a process share. They run in the event loop of the session."""
    from tests.apps.browser import launched  # skips without a browser

    async with launched() as running:
        yield running


@pytest_asyncio.fixture(loop_scope="session")
async def browser(chromium: Any) -> AsyncIterator[Any]:
    """Chromium, for contexts and pages that end with the test.

    The module needs `pytestmark = pytest.mark.asyncio(loop_scope="session")`.
    """
    from tests.apps.browser import borrowed

    async with borrowed(chromium) as running:
        yield running
