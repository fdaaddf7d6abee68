"""The browser that the tests of one module share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Any]:
    """Chromium. The module needs `pytestmark = pytest.mark.asyncio(loop_scope="module")`."""
    from tests.console.browser import browsing  # skips without a browser

    async with browsing() as started:
        yield started
