"""The pool of connections to a server that asks on the connection."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from antiphon import Principal
from antiphon.errors import ClientError
from antiphon.gateway.questions import UpstreamQuestions
from antiphon.gateway.sessions import Session, Sessions
from antiphon.testing import Clock
from tests.support.polling import DEADLINE, turns


class FakeClient:
    """A connection that counts how often it was closed."""

    def __init__(self) -> None:
        self.closed = 0
        self.settled = "ended"

    async def __aexit__(self, *raised: object) -> None:
        self.closed += 1

    async def settle(self) -> str:
        return self.settled


class Pool:
    """A pool of fake connections."""

    def __init__(self, most: int, share: float = 0.5) -> None:
        self.opened: list[FakeClient] = []
        self.sessions = Sessions(self.open, most=most, share=share, idle_seconds=0.0)

    async def open(self) -> Session:
        self.opened.append(FakeClient())
        await turns()
        return Session(self.opened[-1], UpstreamQuestions())  # type: ignore[arg-type]


async def quiet(seconds: float = 0.0) -> None:
    """Wait until nothing is left to do in the event loop, and move its time ahead."""
    with Clock() as clock:
        await clock.advance(seconds)


def caller(id: str = "") -> Any:
    return SimpleNamespace(principal=Principal(id))


async def test_a_call_that_may_be_asked_has_a_connection_for_itself() -> None:
    pool = Pool(3)
    async with (
        pool.sessions.exclusive(caller()) as first,
        pool.sessions.exclusive(caller()) as second,
        pool.sessions.shared() as third,
        pool.sessions.shared() as fourth,
    ):
        assert first is not second
        assert third is fourth
        assert third not in (first, second)
    async with pool.sessions.exclusive(caller()) as again:
        assert again is first, "calls one after the other find the same process"


async def test_a_call_waits_for_a_connection_if_all_are_used() -> None:
    pool = Pool(1)
    context = pool.sessions.exclusive(caller())
    await context.__aenter__()
    waiting = asyncio.create_task(pool.sessions.exclusive(caller()).__aenter__())
    await quiet()
    assert not waiting.done()
    await context.__aexit__(None, None, None)
    assert await waiting is pool.opened[0]  # type: ignore[comparison-overlap]


async def test_one_principal_has_at_most_its_share() -> None:
    pool = Pool(4, share=0.5)
    async with pool.sessions.exclusive(caller("ada")), pool.sessions.exclusive(caller("ada")):
        third = asyncio.create_task(pool.sessions.exclusive(caller("ada")).__aenter__())
        async with asyncio.timeout(DEADLINE), pool.sessions.exclusive(caller("bob")):
            assert not third.done()
    await asyncio.wait_for(third, DEADLINE)


async def test_idle_connections_are_closed_but_the_first() -> None:
    pool = Pool(3)
    async with pool.sessions.exclusive(caller()), pool.sessions.exclusive(caller()):
        pass
    await quiet(1.0)
    await pool.sessions.close_idle(keep=next(iter(pool.sessions)))
    assert [each.closed for each in pool.opened] == [0, 1]


async def test_a_closed_pool_closes_everything_and_refuses_calls() -> None:
    pool = Pool(1)
    context = pool.sessions.exclusive(caller())
    await context.__aenter__()
    waiting = asyncio.create_task(pool.sessions.exclusive(caller()).__aenter__())
    await quiet()
    await pool.sessions.close()
    with pytest.raises(ClientError, match="being closed"):
        await waiting
    await context.__aexit__(None, None, None)
    assert [each.closed for each in pool.opened] == [1]


async def test_a_connection_that_is_lost_while_no_call_uses_it_makes_room_for_another() -> None:
    pool = Pool(1)
    async with pool.sessions.exclusive(caller()):
        pass
    (session,) = pool.sessions
    session.lose()
    async with asyncio.timeout(DEADLINE), pool.sessions.exclusive(caller()) as second:
        assert second is pool.opened[1]  # type: ignore[comparison-overlap]
    assert pool.opened[0].closed == 1


async def test_calls_that_wait_for_a_connection_to_be_opened_count_for_the_share() -> None:
    pool = Pool(4, share=0.5)
    contexts = [pool.sessions.exclusive(caller("ada")) for _ in range(4)]
    calls = [asyncio.create_task(context.__aenter__()) for context in contexts]
    await quiet()
    assert sum(call.done() for call in calls) == 2
    async with asyncio.timeout(DEADLINE), pool.sessions.exclusive(caller("bob")):
        pass
    for call in calls:
        call.cancel()


async def test_a_connection_on_which_a_shared_call_failed_is_lost_unless_the_server_responds() -> None:
    pool = Pool(2)

    async def fail() -> None:
        async with pool.sessions.shared():
            raise ClientError("lost")

    async with pool.sessions.shared():
        pass
    for settled in ("ended", "silent"):
        pool.opened[0].settled = settled
        with pytest.raises(ClientError):
            await fail()
        await quiet()
        assert pool.opened[0].closed == (0 if settled == "ended" else 1)


async def test_retired_connections_are_closed_when_their_calls_have_ended() -> None:
    pool = Pool(2)
    async with pool.sessions.shared():
        await pool.sessions.retire()
        async with pool.sessions.shared() as second:
            assert second is pool.opened[1]  # type: ignore[comparison-overlap]
        assert pool.opened[0].closed == 0
    await quiet()
    assert [client.closed for client in pool.opened] == [1, 0]


@pytest.mark.parametrize(("settled", "is_kept"), [("ended", True), ("responds", False), ("silent", False)])
async def test_a_connection_is_held_again_only_if_the_call_that_was_given_up_has_ended(
    settled: str, is_kept: bool
) -> None:
    pool = Pool(3)

    async def give_up() -> None:
        async with pool.sessions.exclusive(caller()):
            raise asyncio.CancelledError

    async with pool.sessions.shared():
        pass
    pool.opened[0].settled = settled
    await asyncio.wait({asyncio.create_task(give_up())})
    await quiet()
    async with pool.sessions.exclusive(caller()) as client:
        assert (client is pool.opened[0]) == is_kept  # type: ignore[comparison-overlap]
    assert pool.opened[0].closed == (0 if is_kept else 1)


async def test_the_first_connection_stays_for_calls_that_share_it() -> None:
    pool = Pool(3)
    session = await pool.open()
    session.is_first = True
    await pool.sessions.add(session)
    pool.opened[0].settled = "responds"

    async def give_up() -> None:
        async with pool.sessions.shared():
            raise asyncio.CancelledError

    await asyncio.wait({asyncio.create_task(give_up())})
    await quiet()
    async with pool.sessions.shared() as shared, pool.sessions.exclusive(caller()) as held:
        assert shared is pool.opened[0]  # type: ignore[comparison-overlap]
        assert held is pool.opened[1]  # type: ignore[comparison-overlap]
