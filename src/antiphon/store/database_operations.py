"""The steps that the SQLite store and the PostgreSQL store carry out in the same way.

Works on the futures of the stores' queues, and knows no database.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from antiphon.errors import StoreUnavailable
from antiphon.store.contract import Claim, Record

__all__ = ["MAX_BATCH_OPERATIONS", "expire_in_portions", "wait_for_claims"]

MAX_BATCH_OPERATIONS = 512
"""Operations in one transaction. More would only lengthen the wait of those that come next."""
_MAX_EXPIRED_TASKS = 100
"""Tasks deleted in one transaction, so that other operations do not wait long for their turn."""


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


async def expire_in_portions(
    expire: Callable[[int], Awaitable[Sequence[Record]]], limit: int
) -> tuple[Record, ...]:
    """Delete up to `limit` expired tasks, a bounded number in each transaction, and return them."""
    expired: tuple[Record, ...] = ()
    while len(expired) < limit:
        records = await expire(min(limit - len(expired), _MAX_EXPIRED_TASKS))
        if not records:
            break
        expired += tuple(records)
    return expired
