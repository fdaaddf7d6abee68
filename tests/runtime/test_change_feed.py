"""Delivery of changes to listeners."""

from __future__ import annotations

import asyncio
import threading

import pytest

from antiphon.model.notification import Change, ListChanged, ResourceUpdated
from antiphon.model.request import SubscriptionFilter
from antiphon.runtime.change_feed import ChangeFeed, Listener, change_filter
from antiphon.runtime.execution.call import SessionState

TOOLS, PROMPTS, RESOURCES = ListChanged("tools"), ListChanged("prompts"), ListChanged("resources")
ALL: list[Change] = [TOOLS, PROMPTS, RESOURCES, ResourceUpdated("u:1"), ResourceUpdated("u:2")]


def everything(change: Change) -> bool:
    return True


async def taken(listener: Listener, count: int) -> list[Change]:
    found: list[Change] = []
    async with asyncio.timeout(30):
        async for change in listener:
            found.append(change)
            if len(found) == count:
                return found
    return found


@pytest.mark.parametrize(
    ("interests", "expected"),
    [
        (SubscriptionFilter(), []),
        (SubscriptionFilter(tools_list_changed=True), [TOOLS]),
        (SubscriptionFilter(prompts_list_changed=True), [PROMPTS]),
        (SubscriptionFilter(resources_list_changed=True), [RESOURCES]),
        (SubscriptionFilter(resource_subscriptions=("u:2", "u:3")), [ResourceUpdated("u:2")]),
        (SubscriptionFilter(True, True, True, ("u:1", "u:2")), ALL),
    ],
)
def test_a_filter_selects_changes(interests: SubscriptionFilter, expected: list[Change]) -> None:
    assert [change for change in ALL if change_filter(interests)(change)] == expected


def test_a_session_gets_list_changes_and_its_subscriptions() -> None:
    peer = SessionState()
    peer.subscriptions.add("u:1")
    assert [change for change in ALL if peer.is_subscribed_to(change)] == ALL[:4]


async def test_every_listener_gets_its_changes_in_order() -> None:
    changes = ChangeFeed()
    with changes.listen(everything) as one, changes.listen(lambda change: change == PROMPTS) as other:
        for change in ALL:
            changes.publish(change)
        assert await taken(one, 5) == ALL
        assert await taken(other, 1) == [PROMPTS]


async def test_a_change_that_happens_often_is_kept_once() -> None:
    changes = ChangeFeed()
    with changes.listen(everything) as listener:
        for _ in range(10_000):
            changes.publish(TOOLS)
        changes.publish(PROMPTS)
        changes.close()
        assert await taken(listener, 99) == [TOOLS, PROMPTS]


async def test_changes_may_come_from_any_thread() -> None:
    changes = ChangeFeed()
    with changes.listen(everything) as listener:
        thread = threading.Thread(target=changes.publish, args=(TOOLS,))
        thread.start()
        assert await taken(listener, 1) == [TOOLS]
        thread.join()


async def test_closing_ends_iteration_after_pending_changes() -> None:
    changes = ChangeFeed()
    with changes.listen(everything) as listener:
        changes.publish(TOOLS)
        changes.close()
        assert await taken(listener, 99) == [TOOLS]
    with changes.listen(everything) as late:
        assert await taken(late, 99) == []
    changes.reopen()
    with changes.listen(everything) as again:
        changes.publish(TOOLS)
        assert await taken(again, 1) == [TOOLS]


async def test_a_closed_listener_is_removed() -> None:
    changes = ChangeFeed()
    with changes.listen(everything):
        assert len(changes) == 1
    assert len(changes) == 0
