"""Fixtures of the tests of logins."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.oauth.hostile import Hostile, serving


@pytest.fixture
async def hostile() -> AsyncIterator[Hostile]:
    async with serving() as server:
        yield server
