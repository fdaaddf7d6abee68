"""A hostile crowd at once: another principal is served, and the memory is bounded and comes back.

`python -m tests.hostile.crowd_ratio` measures by how much the crowd delays the other principal.
"""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.hostile.crowd import ADA, ANSWER_BYTES, LISTENERS, SLOW_BODIES, SLOW_HEADS, UNREAD, crowd
from tests.support.polling import until
from tests.support.process import SERVERS, started
from tests.support.speakers import Modern
from tests.test_threat_model import memory_at_worst

CALLS = 50
CAME_BACK_BYTES = 25_000_000
"""How much more memory than before the crowd a server may use after it."""


def _limits() -> Any:
    spec = importlib.util.spec_from_file_location("crowded", SERVERS / "crowded.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.LIMITS


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("command", [True, False], ids=["antiphon run", "uvicorn"])
async def test_a_crowd_leaves_others_served_and_the_memory_bounded(command: bool, tmp_path: Path) -> None:
    limits = _limits()
    with started("crowded.py", tmp_path, command=command) as server:
        ada = Modern(server.port, headers=ADA)
        before = await _measure(ada)
        loop = asyncio.get_running_loop()
        arriving = crowd(server.port)
        counts = await loop.run_in_executor(None, arriving.__enter__)
        try:
            assert counts["slow heads"] == SLOW_HEADS, counts
            assert counts["slow bodies"] == SLOW_BODIES, counts
            assert counts["unread"] == UNREAD, counts
            assert counts["listeners"] == LISTENERS == limits.max_listeners * limits.principal_share, counts
            await _be_served(ada)
            during = await _measure(ada)
            assert during["reserved"] <= limits.max_memory_bytes
        finally:
            await loop.run_in_executor(None, arriving.__exit__, None, None, None)
        assert counts["flood"] > 0
        # Without a budget, the answers that nobody reads would be more than the memory of the limits.
        assert server.peak <= memory_at_worst(limits) < counts["unread"] * ANSWER_BYTES, server.peak
        await _comes_back(ada, before)
        assert "Traceback" not in server.log, server.log


async def _be_served(ada: Modern) -> None:
    """Call tools, and listen, as if there were no crowd."""
    async with asyncio.timeout(60):
        for number in range(CALLS):
            assert (await ada.call("add", a=number, b=1)).text == str(number + 1)
        async with ada.asking("subscriptions/listen", {"notifications": {}}) as connection:
            assert (await connection.receive_head()).status == 200


async def _measure(ada: Modern) -> dict[str, int]:
    return dict((await ada.call("measure")).result["structuredContent"])


async def _comes_back(ada: Modern, before: dict[str, int]) -> None:
    """Wait until the crowd's memory is free."""

    async def is_free() -> bool:
        after = await _measure(ada)
        return not after["reserved"] and after["memory"] <= before["memory"] + CAME_BACK_BYTES

    await until(is_free)
