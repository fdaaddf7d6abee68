"""The contract of heads: a writer may replace the head of a task without an entry in its log."""

from __future__ import annotations

import asyncio

import pytest

from antiphon.errors import LeaseLost, Stale
from antiphon.store.contract import Entry, Store

from .support import START, Clock, task

SOON = 60.0
"""Seconds in which a watch must fire, on a slow machine."""


async def test_an_append_without_entries_replaces_the_head_only(store: Store, clock: Clock) -> None:
    await store.create(task(), [("begun", 1)])
    clock.forward(1)
    async with store.watch("a") as watch:
        waiting = asyncio.create_task(watch.wait(SOON))
        assert await store.append("a", [], expect=1, phase="ready", head={"message": "x"}) == 1
        assert await waiting
    assert await store.get("a") == task(version=1, updated=START + 1000, head={"message": "x"})
    assert await store.read("a") == [Entry(1, "begun", START, 1)]
    assert await store.append("a", [("next", 2)], expect=1, phase="ready", head=None) == 2


async def test_an_append_without_entries_keeps_the_claim_and_is_fenced(store: Store) -> None:
    claim = await store.create(task(), [("begun", 1)], worker="w", lease=60)
    assert claim is not None
    await store.append("a", [], expect=1, phase="ready", head=None, token=claim.token)
    assert await store.renew([("a", claim.token)], lease=60) == {"a"}
    with pytest.raises(Stale):
        await store.append("a", [], expect=0, phase="ready", head=None, token=claim.token)
    with pytest.raises(LeaseLost):
        await store.append("a", [], expect=1, phase="ready", head=None, token=claim.token + 1)
