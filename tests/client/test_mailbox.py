"""A mailbox gives its one reader items in order, and can wake, fail or end the reader."""

from __future__ import annotations

import asyncio

import pytest

from antiphon.client.mailbox import Mailbox
from tests.support.polling import turns


async def test_items_come_in_order_and_the_oldest_are_dropped() -> None:
    mailbox: Mailbox[int] = Mailbox(3)
    mailbox.put([1, 2])
    mailbox.put([3, 4])
    assert [await mailbox.next() for _ in range(3)] == [2, 3, 4]


async def test_a_reader_that_waits_gets_the_item_that_comes() -> None:
    mailbox: Mailbox[str] = Mailbox()
    waiting = asyncio.create_task(mailbox.next())
    await turns()
    assert not waiting.done()
    mailbox.put(["news"])
    assert await waiting == "news"


async def test_nothing_comes_after_a_timeout_and_after_a_wake_up() -> None:
    mailbox: Mailbox[str] = Mailbox()
    assert await mailbox.next(timeout=0.001) is None
    mailbox.wake()
    assert await mailbox.next() is None
    waiting = asyncio.create_task(mailbox.next())
    await turns()
    assert not waiting.done(), "one wake-up is for one wait"
    waiting.cancel()


async def test_a_closed_mailbox_gives_what_is_in_it() -> None:
    mailbox: Mailbox[int] = Mailbox()
    mailbox.put([1])
    mailbox.close()
    assert [await mailbox.next() for _ in range(3)] == [1, None, None]


async def test_an_error_goes_before_items_and_stays() -> None:
    mailbox: Mailbox[int] = Mailbox()
    waiting = asyncio.create_task(mailbox.next())
    await turns()
    mailbox.fail(ValueError("no"))
    mailbox.put([1])
    for reading in (waiting, mailbox.next()):
        with pytest.raises(ValueError, match="no"):
            await reading
