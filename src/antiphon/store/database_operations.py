"""The steps that the SQLite store and the PostgreSQL store carry out in the same way.

Works on the futures of the stores' queues, and knows no database.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from antiphon.errors import StoreUnavailable
from antiphon.store.contract import Claim

__all__ = [
    "MAX_BATCH_OPERATIONS",
    "MAX_EXPIRED_TASKS",
    "MAX_WOKEN_TASKS",
    "run_in_portions",
    "wait_for_claims",
]

Found = TypeVar("Found")

MAX_BATCH_OPERATIONS = 512
"""Operations in one transaction. More would only lengthen the wait of those that come next."""
MAX_EXPIRED_TASKS = 100
"""Tasks deleted in one transaction, so that other operations do not wait long for their turn."""
MAX_WOKEN_TASKS = 500
"""Tasks woken in one transaction. A task takes less time to wake than to delete."""


async def wait_for_claims(
    claiming: asyncio.Future[Any], release: Callable[[Claim], asyncio.Future[Any]]
) -> Sequence[Claim]:
    """Wait for the claims of an operation; if the caller is cancelled meanwhile, release them again."""

    def release_all(done: asyncio.Future[Any]) -> None:
        if done.cancelled() or done.exception():
            return
        for claim in done.result():
            try:
                released = release(claim)
            except StoreUnavailable:
                return  # the lease ends by itself
            released.add_done_callback(lambda future: future.cancelled() or future.exception())

    try:
        claims: Sequence[Claim] = await asyncio.shield(claiming)
    except asyncio.CancelledError:
        claiming.add_done_callback(release_all)
        raise
    return claims


async def run_in_portions(
    run: Callable[[int], Awaitable[Sequence[Found]]], limit: int, max_portion: int
) -> Sequence[Found]:
    """Change up to `limit` tasks, up to `max_portion` in each transaction, and return the results of all."""
    found: list[Found] = []
    while len(found) < limit:
        portion = await run(min(limit - len(found), max_portion))
        if not portion:
            break
        found += portion
    return found
