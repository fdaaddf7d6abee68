"""Fixtures of the tests of logins."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.oauth.hostile import Hostile
from tests.support.web import answering


@pytest.fixture
async def hostile() -> AsyncIterator[Hostile]:
    async with answering(Hostile) as server:
        yield server
