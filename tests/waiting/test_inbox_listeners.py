"""Those who listen to their inbox: what they hear, after an outage too, and when they stop."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from antiphon import AntiphonError, BearerTokens, Client, InvalidParams, Limits, Server
from antiphon.client import InboxChanges
from antiphon.client.inbox.changes import InboxStream
from antiphon.errors import ClientError
from antiphon.model.inbox import InboxNews, InboxQuestion
from antiphon.model.question import Elicit
from antiphon.model.request import ListenInbox
from antiphon.runtime.execution.call import Call, Caller
from antiphon.runtime.execution.supervisor import Supervised
from antiphon.runtime.tasks import inbox_handlers
from antiphon.store.contract import Store
from tests.support.polling import turns, until
from tests.support.serving import serving
from tests.waiting.people import PEOPLE, VERSIONS, WAYS, ask_finance, asked, expenses, people, read
from tests.waiting.support import Clock


@VERSIONS
@WAYS
async def test_a_listener_hears_of_questions(version: str, *, http: bool) -> None:
    server = expenses()
    async with people(server, "a-token", "b-token", version=version, http=http) as (ada, bob):
        await ada.submit("expense", amount=1)
        await asked(bob)
        async with bob.listen_inbox() as changes:
            assert await read(changes, 1) == [("asked", "Approve 1 €?")]
            second = await ada.submit("expense", amount=2)
            assert await read(changes, 1) == [("asked", "Approve 2 €?")]
            await second.cancel()
            assert await read(changes, 1) == [("gone", "Approve 2 €?")]
            (item,) = await bob.inbox()
            await item.answer(False)
            assert await read(changes, 1) == [("gone", "Approve 1 €?")]


async def test_one_who_leaves_the_group_hears_no_more_of_it_although_the_inbox_is_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(inbox_handlers, "LIST_AGAIN_SECONDS", 0.05)
    groups = {"bob": {"finance"}}
    server = Server("shop", store="memory:", audiences=lambda principal: groups.get(principal.id, set()))
    ask_finance(server)

    async def keep_busy() -> None:
        while True:
            server.engine.tasks.feed.deliver("another", ["finance"], [])
            await turns()

    async with (
        Client(server, principal=PEOPLE["a-token"]) as ada,
        Client(server, principal=PEOPLE["b-token"]) as bob,
        bob.listen_inbox() as changes,
        asyncio.timeout(60),
    ):
        await ada.submit("expense", amount=1)
        assert await read(changes, 1) == [("asked", "Approve 1 €?")]
        busy = asyncio.create_task(keep_busy())
        try:
            groups["bob"] = set()
            assert await read(changes, 1) == [("gone", "Approve 1 €?")]
        finally:
            busy.cancel()


async def expire(store: Store, id: str, *, is_overdue: bool) -> None:
    """Let the lifetime of a task end now. A worker only ends a task that is overdue."""
    record = await store.get(id)
    assert record is not None
    head = {**record.head, "ttl": 1}
    expires = record.created + 1 if is_overdue else None
    changes: dict[str, Any] = {"expires": expires, "tags": record.tags}
    await store.append(id, [], expect=record.version, phase="waiting", head=head, **changes)


async def test_a_listener_hears_that_a_task_has_expired(store: Store) -> None:
    async with people(expenses(store), "a-token", "b-token") as (ada, bob):
        async with bob.listen_inbox() as changes:
            handle = await ada.submit("expense", amount=1)
            assert await read(changes, 1) == [("asked", "Approve 1 €?")]
            await expire(store, handle.id, is_overdue=True)
            assert await read(changes, 1) == [("gone", "Approve 1 €?")]
        assert await bob.inbox() == []


async def test_a_question_of_a_task_that_has_expired_cannot_be_answered(store: Store) -> None:
    """Before a worker has ended the task, too."""
    async with people(expenses(store), "a-token", "b-token") as (ada, bob):
        handle = await ada.submit("expense", amount=1)
        (item,) = await asked(bob)
        await expire(store, handle.id, is_overdue=False)
        with pytest.raises(InvalidParams, match="Task not found"):
            await item.answer(True)
        assert await bob.inbox() == []


async def test_a_listener_answers(store: Store) -> None:
    async with people(expenses(store), "a-token", "b-token") as (ada, bob):
        handles = [await ada.submit("expense", amount=amount) for amount in range(5)]

        async def approve() -> None:
            async with bob.listen_inbox() as changes:
                async for change in changes:
                    if change.kind == "asked":
                        await change.item.answer(True)

        approving = asyncio.create_task(approve())
        try:
            for handle in handles:
                assert (await handle.result(timeout=60)).text == "True by bob"
        finally:
            approving.cancel()


async def test_a_listener_hears_of_reminders_and_of_the_answers_of_others(store: Store, clock: Clock) -> None:
    server = expenses(store, approvals=2, within=timedelta(days=3), remind=timedelta(days=1))
    async with people(server, "a-token", "b-token", "e-token") as (ada, bob, eve):
        await ada.submit("expense", amount=1)
        async with bob.listen_inbox() as changes:
            assert await read(changes, 1) == [("asked", "Approve 1 €?")]
            clock.forward(days=1)
            assert await read(changes, 1) == [("reminded", "Approve 1 €?")]
            (item,) = await asked(eve)
            assert item.reminded == 1
            assert item.deadline is not None
            assert item.asked_at is not None
            assert item.deadline - item.asked_at == timedelta(days=3)
            await item.answer(True)
            assert await read(changes, 1) == [("changed", "Approve 1 €?")]
            await eventually_gone(changes, clock)


async def eventually_gone(changes: InboxChanges, clock: Clock) -> None:
    """Let the deadline pass, and read up to the news that the question is gone."""
    clock.forward(days=2)
    while await read(changes, 1) != [("gone", "Approve 1 €?")]:
        pass


async def test_lost_messages_are_made_up_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("antiphon.runtime.tasks.inbox_handlers.LIST_AGAIN_SECONDS", 0.05)
    monkeypatch.setattr("antiphon.runtime.tasks.inbox_feed.InboxFeed.publish", lambda *_: None)
    async with people(expenses(), "a-token", "b-token") as (ada, bob), bob.listen_inbox() as changes:
        handle = await ada.submit("expense", amount=1)
        assert await read(changes, 1) == [("asked", "Approve 1 €?")]
        await handle.cancel()
        assert await read(changes, 1) == [("gone", "Approve 1 €?")]


async def test_a_listener_connects_again() -> None:
    server = expenses()
    async with people(server, "a-token", "b-token") as (ada, bob), bob.listen_inbox() as changes:
        first = await ada.submit("expense", amount=1)
        await ada.submit("expense", amount=2)
        assert {message for _, message in await read(changes, 2)} == {"Approve 1 €?", "Approve 2 €?"}
        feed = server.engine.tasks.feed
        feed.close()  # the streams end, as they do when an instance stops
        await first.cancel()
        await ada.submit("expense", amount=3)
        await asked(bob, 2)
        feed.reopen()
        assert set(await read(changes, 2)) == {("gone", "Approve 1 €?"), ("asked", "Approve 3 €?")}


async def test_a_listener_hears_of_tasks_of_another_instance(store_url: str) -> None:
    runs, serves = (Server("shop", store=store_url, authenticate=BearerTokens(PEOPLE)) for _ in range(2))
    for server in (runs, serves):
        ask_finance(server)
    serves.configure(run_tasks=False)
    async with (
        Client(runs, principal=PEOPLE["a-token"]) as ada,
        Client(serves, principal=PEOPLE["b-token"]) as bob,
        asyncio.timeout(60),
        bob.listen_inbox() as changes,
    ):
        handle = await ada.submit("expense", amount=1)
        change = await anext(changes)
        assert (change.kind, change.item.message) == ("asked", "Approve 1 €?")
        await change.item.answer(True)
        assert await read(changes, 1) == [("gone", "Approve 1 €?")]
        assert (await handle.result(timeout=60)).text == "True by bob"


async def test_a_listener_is_told_of_a_bounded_number_of_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("antiphon.runtime.tasks.inbox_handlers.MAX_SHOWN", 2)
    monkeypatch.setattr("antiphon.runtime.tasks.inbox_handlers.LIST_AGAIN_SECONDS", 0.05)
    async with people(expenses(), "a-token", "b-token") as (ada, bob):
        for amount in range(3):
            await ada.submit("expense", amount=amount)
        first, *_ = await asked(bob, 3)
        async with bob.listen_inbox() as changes:
            told = await read(changes, 2)
            await first.answer(True)
            more = await read(changes, 2)
        assert {kind for kind, _ in told} == {"asked"}
        assert more[0] == ("gone", first.message)  # and there is room for another one
        assert more[1][0] == "asked"
        assert more[1] not in told


async def test_listeners_count_towards_the_limit() -> None:
    server = expenses(limits=Limits(max_listeners=2, principal_share=0.5))
    async with people(server, "b-token", "e-token") as (bob, eve), bob.listen_inbox():
        with pytest.raises(AntiphonError, match="You have 1 of at most 1 listeners"):
            async with bob.listen_inbox():
                pass
        async with eve.listen_inbox():
            pass


async def test_listeners_end_with_the_server() -> None:
    async with AsyncExitStack() as stack:
        address = await stack.enter_async_context(serving(expenses()))
        bob = await stack.enter_async_context(Client(address.url, auth="b-token"))
        await stack.enter_async_context(bob.listen_inbox())
        assert address.under_way == 1
        address.app.begin_shutdown()
        await until(lambda: not address.under_way)


async def test_a_listener_ends_when_its_caller_must_authenticate_again() -> None:
    server = expenses()
    expired = replace(PEOPLE["b-token"], expires_at=time.time() + 0.2)
    async with Client(server, principal=expired) as bob, asyncio.timeout(60):
        caller = _Told()
        carrier = server.engine.client_carrier
        await server.engine.handle(Call(ListenInbox(), carrier, caller, Supervised.here(), principal=expired))
        assert bob.offers.inbox
        assert caller.told == [InboxNews("current")]


class _Told(Caller):
    """A caller that keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    async def notify(self, message: Any) -> None:
        self.told.append(message)


async def test_unread_news_of_a_question_is_merged() -> None:
    stream = InboxStream(None)  # type: ignore[arg-type]
    for kind, reminded in (("asked", 0), ("reminded", 1), ("changed", 1)):
        stream.take(InboxNews(kind, "t", "k", question("t", reminded)))  # type: ignore[arg-type]
    stream.take(InboxNews("asked", "u", "k", question("u", 0)))
    stream.take(InboxNews("gone", "u", "k"))
    stream.take(InboxNews("current"))
    change = await stream.next()
    assert (change.kind, change.item.task_id, change.item.reminded) == ("asked", "t", 1)
    await has_no_more(stream)


async def test_a_new_stream_tells_only_of_what_has_changed() -> None:
    stream = InboxStream(None)  # type: ignore[arg-type]
    for task_id in ("kept", "reminded", "lost"):
        stream.take(InboxNews("asked", task_id, "k", question(task_id, 0)))
        await stream.next()
    stream.take(InboxNews("current"))
    stream.begin()
    for task_id, reminded in (("kept", 0), ("reminded", 1), ("new", 0)):
        stream.take(InboxNews("asked", task_id, "k", question(task_id, reminded)))
    stream.take(InboxNews("current"))
    changes = [await stream.next() for _ in range(3)]
    assert [(change.kind, change.item.task_id) for change in changes] == [
        ("reminded", "reminded"),
        ("asked", "new"),
        ("gone", "lost"),
    ]
    await has_no_more(stream)


async def has_no_more(stream: InboxStream) -> None:
    """Check that all changes were read: the error comes after them."""
    stream.close(ClientError("It was the last one."))
    with pytest.raises(ClientError, match="last one"):
        await stream.next()


def question(task_id: str, reminded: int) -> InboxQuestion:
    asked = Elicit("Approve?", {})
    return InboxQuestion(task_id, "k", "expense", "ada", asked, ("finance",), 1, reminded=reminded)
