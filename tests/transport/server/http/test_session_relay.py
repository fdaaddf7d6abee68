"""Session events between processes, and the sessions that a process caches."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from antiphon import Limits
from antiphon.errors import SessionLost
from antiphon.model.identity import ANONYMOUS
from antiphon.model.request import SetLogLevel, Subscribe, Unsubscribe
from antiphon.runtime.carriers.seal import Seal
from antiphon.runtime.execution.supervisor import Supervised
from antiphon.runtime.relay import Relay
from antiphon.store.memory import MemoryStore
from antiphon.transport.server.http.session_relay import SessionRelay, _SessionEvent
from antiphon.transport.server.http.sessions import Sessions
from antiphon.wire.server.dialect import Negotiated
from tests.support.polling import until
from tests.support.speakers import LEGACY

SECRET = "a secret that is long enough"
NEGOTIATED = Negotiated(LEGACY, {}, None)


class Process:
    """The sessions and the relay of one process."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.relay = Relay("tests")
        self.sessions = Sessions(Seal([SECRET]), "tests", limits or Limits())
        self.session_relay = SessionRelay(self.relay, self.sessions)


@asynccontextmanager
async def two_processes() -> AsyncIterator[tuple[Process, Process]]:
    """Yield two processes on one store."""
    store = MemoryStore()
    await store.open()
    processes = Process(), Process()
    for process in processes:
        await process.relay.open(store)
    yield processes
    for process in processes:
        await process.relay.close()
    await store.close()


async def test_subscriptions_and_log_level_reach_the_other_process() -> None:
    async with two_processes() as (here, there):
        token = here.sessions.create(NEGOTIATED, ANONYMOUS)
        mine = here.sessions.open(token, ANONYMOUS)
        theirs = there.sessions.open(token, ANONYMOUS)
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
        knows = here.sessions.open(token, ANONYMOUS)
        knows.state.log_level = "error"
        knows.state.subscriptions.add("note://one")
        asks = there.sessions.open(token, ANONYMOUS)
        await there.session_relay.request_state(asks)
        await until(lambda: asks.state.log_level)
        assert (asks.state.log_level, asks.state.subscriptions) == ("error", {"note://one"})


async def test_a_session_that_another_process_ended_is_refused() -> None:
    async with two_processes() as (here, there):
        known = here.sessions.create(NEGOTIATED, ANONYMOUS)
        there.sessions.open(known, ANONYMOUS)
        call = there.sessions.open(known, ANONYMOUS).calls[1] = Supervised()
        unknown = here.sessions.create(NEGOTIATED, ANONYMOUS)
        for token in (unknown, known):
            await here.session_relay.forward_end(here.sessions.end(token, ANONYMOUS))
        await until(lambda: call.stop_reason)
        for token in (unknown, known):
            with pytest.raises(SessionLost, match="initialize again"):
                there.sessions.open(token, ANONYMOUS)


def test_the_list_of_ended_sessions_has_a_bound() -> None:
    sessions = Process(Limits(max_sessions=3)).sessions
    tokens = [sessions.create(NEGOTIATED, ANONYMOUS) for _ in range(5)]
    for token in tokens:
        sessions.end(token, ANONYMOUS)
    assert len(sessions._ended) == 3
    for token in tokens[2:]:
        with pytest.raises(SessionLost):
            sessions.open(token, ANONYMOUS)
    assert sessions.open(tokens[0], ANONYMOUS).negotiated == NEGOTIATED


def test_the_encoded_names_of_session_events_never_change() -> None:
    """During a rollout, processes of the version before send and receive these names."""
    event = _SessionEvent(
        "s",
        {"id": 1},
        cancel=1,
        subscribe=["a"],
        unsubscribe=["b"],
        level="info",
        asks_for_state=True,
        ended=True,
    )
    names = ["session", "answer", "cancel", "subscribe", "unsubscribe", "level", "who", "ended"]
    assert list(msgspec.to_builtins(event)) == names
