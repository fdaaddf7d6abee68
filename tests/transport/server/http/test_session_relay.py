"""Session events between processes, and the sessions that a process caches."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from antiphon import Limits
from antiphon.errors import AlreadyAnswered, InvalidRequest, SessionLost, StoreUnavailable
from antiphon.model.identity import ANONYMOUS
from antiphon.model.request import SetLogLevel, Subscribe, Unsubscribe
from antiphon.runtime.budget import MemoryBudget, Usages
from antiphon.runtime.carriers.seal import Seal
from antiphon.runtime.execution.supervisor import Supervised
from antiphon.runtime.relay import Relay
from antiphon.store.memory import MemoryStore
from antiphon.transport.server.http.session_relay import SessionEvent, SessionRelay
from antiphon.transport.server.http.sessions import Sessions
from antiphon.wire.jsonrpc import Frame
from antiphon.wire.server.dialect import Negotiated
from tests.support.polling import until
from tests.support.speakers import LEGACY

SECRET = "a secret that is long enough"
NEGOTIATED = Negotiated(LEGACY, {}, None)


class Process:
    """The sessions and the relay of one process."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.relay = Relay("tests")
        limits = limits or Limits()
        self.budget = MemoryBudget(limits, Usages())
        self.store: MemoryStore | None = None
        self.is_cut_off = False
        self.sessions = Sessions(Seal([SECRET]), "tests", limits, self.budget, self.use_once)
        self.session_relay = SessionRelay(self.relay, self.sessions)

    async def use_once(self, key: str, *, until: int) -> bool:
        if self.is_cut_off:
            raise StoreUnavailable("The store cannot be reached.")
        return True if self.store is None else await self.store.use_once(key, until=until)


@asynccontextmanager
async def two_processes() -> AsyncIterator[tuple[Process, Process]]:
    """Yield two processes on one store."""
    store = MemoryStore()
    await store.open()
    processes = Process(), Process()
    for process in processes:
        process.store = store
        await process.relay.open(store)
    yield processes
    for process in processes:
        await process.relay.close()
    await store.close()


async def test_subscriptions_and_log_level_reach_the_other_process() -> None:
    async with two_processes() as (here, there):
        token = here.sessions.create(NEGOTIATED, ANONYMOUS)
        mine = await here.sessions.open(token, ANONYMOUS)
        theirs = await there.sessions.open(token, ANONYMOUS)
        await here.session_relay.forward_change(mine, Subscribe("note://one"))
        await here.session_relay.forward_change(mine, Subscribe("note://two"))
        await here.session_relay.forward_change(mine, Unsubscribe("note://one"))
        await here.session_relay.forward_change(mine, SetLogLevel("warning"))
        await until(lambda: theirs.state.log_level)
        assert theirs.state.log_level == "warning"
        assert theirs.state.subscriptions == {"note://two"}


async def test_a_process_that_begins_to_listen_gets_the_state_from_the_others() -> None:
    async with two_processes() as (here, there):
        token = here.sessions.create(NEGOTIATED, ANONYMOUS)
        knows = await here.sessions.open(token, ANONYMOUS)
        knows.state.log_level = "error"
        knows.state.subscribe("note://one")
        asks = await there.sessions.open(token, ANONYMOUS)
        await there.session_relay.request_state(asks)
        await until(lambda: asks.state.log_level)
        assert (asks.state.log_level, asks.state.subscriptions) == ("error", {"note://one"})


async def test_a_session_that_another_process_ended_is_refused() -> None:
    async with two_processes() as (here, there):
        known = here.sessions.create(NEGOTIATED, ANONYMOUS)
        call = (await there.sessions.open(known, ANONYMOUS)).calls[1] = Supervised()
        unknown = here.sessions.create(NEGOTIATED, ANONYMOUS)
        for token in (unknown, known):
            await here.session_relay.forward_end(await here.sessions.end(token, ANONYMOUS))
        await until(lambda: call.stop_reason)
        for token in (unknown, known):
            with pytest.raises(SessionLost, match="initialize again"):
                await there.sessions.open(token, ANONYMOUS)


async def test_the_record_of_ended_sessions_has_a_bound_and_none_of_them_comes_back() -> None:
    sessions = Process(Limits(max_sessions=3)).sessions
    tokens = []
    for _ in range(100):
        tokens.append(sessions.create(NEGOTIATED, ANONYMOUS))
        await sessions.end(tokens[-1], ANONYMOUS)
    assert len(sessions.ended) == 30
    for token in tokens:
        with pytest.raises(SessionLost):
            await sessions.open(token, ANONYMOUS)


async def test_sessions_that_others_cannot_evict_from_the_record_are_still_served() -> None:
    sessions = Process(Limits(max_sessions=2)).sessions
    early = sessions.create(NEGOTIATED, ANONYMOUS)
    for _ in range(10):
        await sessions.end(sessions.create(NEGOTIATED, ANONYMOUS), ANONYMOUS)
    assert (await sessions.open(early, ANONYMOUS)).negotiated == NEGOTIATED


async def test_an_ended_session_is_refused_by_a_process_that_starts_later() -> None:
    async with two_processes() as (here, _):
        token = here.sessions.create(NEGOTIATED, ANONYMOUS)
        other, third = (here.sessions.create(NEGOTIATED, ANONYMOUS) for _ in range(2))
        await here.sessions.end(token, ANONYMOUS)
        later = Process(Limits(max_sessions=1))
        later.store = here.store
        with pytest.raises(SessionLost):
            await later.sessions.open(token, ANONYMOUS)
        for _ in range(3):  # asking does not end a session
            assert (await later.sessions.open(other, ANONYMOUS)).negotiated == NEGOTIATED
            await later.sessions.open(third, ANONYMOUS)
            assert later.sessions.find(other, ANONYMOUS) is None, "it is no longer cached"


async def test_a_cached_session_ends_with_its_lifetime(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process(Limits(session_lifetime=60))
    sessions = process.sessions
    token = sessions.create(NEGOTIATED, ANONYMOUS)
    call = (await sessions.open(token, ANONYMOUS)).calls[1] = Supervised()
    now = time.time()
    monkeypatch.setattr("time.time", lambda: now + 61)
    with pytest.raises(SessionLost):
        await sessions.open(token, ANONYMOUS)
    assert call.stop_reason == "cancelled"
    assert process.budget.reserved == 0


def answer_to(id: str, action: str = "accept") -> Frame:
    return Frame("2.0", id=id, result={"action": action})


async def test_only_the_first_answer_to_a_question_of_another_process_is_sent_to_it() -> None:
    async with two_processes() as (here, there):
        token = here.sessions.create(NEGOTIATED, ANONYMOUS)
        mine = await here.sessions.open(token, ANONYMOUS)
        theirs = await there.sessions.open(token, ANONYMOUS)
        other = await there.sessions.open(there.sessions.create(NEGOTIATED, ANONYMOUS), ANONYMOUS)
        published: list[Any] = []
        assert here.store is not None
        publish = here.store.publish

        async def count(topic: str, data: Any) -> None:
            published.append(data)
            await publish(topic, data)

        here.store.publish = count  # type: ignore[method-assign]
        genuine = theirs.questions.new_id()
        for id in ("ask-0123456789abcdef", "x", other.questions.new_id()):
            with pytest.raises(InvalidRequest, match="No question of this session"):
                await here.session_relay.take_answer(mine, answer_to(id))
        await here.session_relay.take_answer(mine, answer_to(mine.questions.new_id()))  # it was withdrawn
        assert not published
        for _ in range(3):
            await here.session_relay.take_answer(mine, answer_to(genuine))
        assert len(published) == 1


async def test_of_different_answers_at_once_in_two_processes_one_is_accepted() -> None:
    async with two_processes() as (here, there):
        token = here.sessions.create(NEGOTIATED, ANONYMOUS)
        sessions = [await process.sessions.open(token, ANONYMOUS) for process in (here, there)]

        async def answer(number: int, action: str) -> bool:
            process, session = (here, there)[number % 2], sessions[number % 2]
            try:
                await process.session_relay.take_answer(session, answer_to(question, action))
            except AlreadyAnswered:
                return False
            return True

        for _ in range(5):
            question = sessions[1].questions.new_id()
            accepted = await asyncio.gather(*(answer(number, f"action {number}") for number in range(4)))
            assert accepted.count(True) == 1
            first = accepted.index(True)
            assert [await answer(number, f"action {first}") for number in range(2)] == [True, True]


async def test_an_answer_for_another_process_is_refused_while_the_store_cannot_be_reached() -> None:
    async with two_processes() as (here, there):
        token = here.sessions.create(NEGOTIATED, ANONYMOUS)
        mine = await here.sessions.open(token, ANONYMOUS)
        theirs = await there.sessions.open(token, ANONYMOUS)

        here.is_cut_off = True
        with pytest.raises(StoreUnavailable):
            await here.session_relay.take_answer(mine, answer_to(theirs.questions.new_id()))
        own = mine.questions.new_id()
        await here.session_relay.take_answer(mine, answer_to(own))
        with pytest.raises(AlreadyAnswered):
            await here.session_relay.take_answer(mine, answer_to(own, "decline"))


async def test_answers_that_a_process_no_longer_remembers_are_refused() -> None:
    process = Process()
    token = process.sessions.create(NEGOTIATED, ANONYMOUS)
    session = await process.sessions.open(token, ANONYMOUS)
    before = process.budget.reserved
    questions = [session.questions.new_id() for _ in range(1001)]
    for question in questions:
        await process.session_relay.take_answer(session, answer_to(question))
    assert process.budget.reserved - before <= 1000 * 256
    await process.session_relay.take_answer(session, answer_to(questions[-1]))
    with pytest.raises(InvalidRequest, match="not remembered"):
        await process.session_relay.take_answer(session, answer_to(questions[0], "decline"))


async def test_the_cancellation_of_a_call_with_a_huge_id_does_not_reach_the_store() -> None:
    async with two_processes() as (here, there):
        token = here.sessions.create(NEGOTIATED, ANONYMOUS)
        theirs = (await there.sessions.open(token, ANONYMOUS)).calls
        huge, plain = theirs["x" * 1000], theirs["y"] = Supervised(), Supervised()
        mine = await here.sessions.open(token, ANONYMOUS)
        await here.session_relay.forward_cancellation(mine, "x" * 1000)
        await here.session_relay.forward_cancellation(mine, "y")
        await until(lambda: plain.stop_reason)
        assert huge.stop_reason is None


def test_the_encoded_names_of_session_events_never_change() -> None:
    """During a rollout, processes of the version before send and receive these names."""
    event = SessionEvent(
        "s",
        {"id": 1},
        cancel=1,
        subscribe=["a"],
        unsubscribe=["b"],
        level="info",
        asks_for_state=True,
        ended=True,
        expires=1,
        share="ada",
    )
    names = "session answer cancel subscribe unsubscribe level who ended expires share"
    assert list(msgspec.to_builtins(event)) == names.split()
