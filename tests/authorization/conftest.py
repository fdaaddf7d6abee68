"""The issuer of the tokens."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.issuer import TestIssuer, issuing


@pytest.fixture
async def issuer() -> AsyncIterator[TestIssuer]:
    async with issuing() as running:
        yield running
