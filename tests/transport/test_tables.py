"""One caller fills each table that callers can fill; another one is served, and keeps what it has."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import re
import threading
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import pytest
from pydantic import BaseModel

from antiphon import Artifact, BearerTokens, Context, Limits, Server
from antiphon.errors import BadOrigin, NoEndpoint, NotAcceptable
from antiphon.model.identity import Implementation
from antiphon.runtime.tables import TABLES
from antiphon.transport.server.http import known_heads
from antiphon.transport.server.http.connections import stranger_at
from antiphon.transport.server.http.guard import Guard, accepts
from antiphon.wire import jsonrpc
from antiphon.wire.server.v2026_07_28 import V2026
from tests.asking.driving import Able, accept, once
from tests.diagrams import TABLES_PAGE, tables
from tests.promises.speaking import Patient, begin, reach
from tests.support import http
from tests.support.http import Connection
from tests.support.polling import until
from tests.support.process import ROOT
from tests.support.serving import Address, serving
from tests.support.speakers import MODERN, Modern, Session

PRINCIPALS, ADDRESSES = "principals", "addresses"
CALLERS: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    PRINCIPALS: ({"headers": {"authorization": "Bearer ada"}}, {"headers": {"authorization": "Bearer bob"}}),
    ADDRESSES: ({"source": http.LOOPBACK}, {"source": http.OTHER_LOOPBACK}),
}
"""Two callers, as options of their speakers: the first one fills, the other one is served."""
KIB = 1024


class Name(BaseModel):
    name: str


class Crowd:
    """A server with small limits, and its two callers."""

    def __init__(self, kind: str, limits: Mapping[str, Any]) -> None:
        tokens = BearerTokens({"ada": "ada", "bob": "bob"}) if kind == PRINCIPALS else None
        self.mine, self.other = CALLERS[kind]
        self.server = Server("tests", authenticate=tokens, limits=Limits(**limits))
        self.where: Address
        self.stack = AsyncExitStack()
        self.release, self.unblock = asyncio.Event(), threading.Event()
        self.began = 0

        @self.server.tool
        async def wait() -> str:
            self.began += 1
            await self.release.wait()
            return "done"

        @self.server.tool
        def block() -> str:
            self.began += 1
            assert self.unblock.wait(60)
            return "done"

        @self.server.tool(replay=False)
        def block_apart(ctx: Context) -> str:
            self.began += 1
            assert self.unblock.wait(60)
            return "done"

        @self.server.tool
        def measure(text: str) -> int:
            return len(text)

        @self.server.tool
        async def tell(ctx: Context, text: str) -> str:
            await ctx.info(text)
            return "told"

        @self.server.tool(replay=False)
        async def greet(ctx: Context) -> str:
            return "Hello, " + (await ctx.elicit("Name?", Name)).name

        @self.server.resource("note://{name}")
        async def note(name: str) -> str:
            return name

        @self.server.route("/page")
        async def page(request: Any) -> str:
            if request.query:
                await wait()
            return "page"

    def speaker(self, kind: type[Any], options: Mapping[str, Any]) -> Any:
        """Return a client of one of the callers."""
        return kind(self.where.port, **options)

    async def session(self, options: Mapping[str, Any]) -> Session:
        """Open a session of one of the callers."""
        session: Session = self.speaker(Session, options)
        await session.open()
        return session

    async def listen(self, options: Mapping[str, Any]) -> int:
        """Open a stream of changes that stays open; return the status of its response."""
        asker: Modern = self.speaker(Modern, options)
        interests = {"notifications": {"resourceSubscriptions": ["note://a"]}}
        connection = await self.stack.enter_async_context(asker.asking("subscriptions/listen", interests))
        return (await connection.receive_head()).status

    def start(self, tool: str, options: Mapping[str, Any], **arguments: Any) -> asyncio.Task[http.Response]:
        """Call a tool, and do not wait for it."""
        return asyncio.create_task(self.speaker(Modern, options).call(tool, **arguments))


Filler = Callable[[Crowd], Awaitable[None]]
FILLERS: dict[str, tuple[Filler, tuple[str, ...], dict[str, Any]]] = {}
"""How each table is filled, by which kinds of callers, and with which limits."""
Bounder = Callable[[], None]
BOUNDED: dict[str, Bounder] = {}
"""What fills each table that nobody needs a share of, and checks its bound."""
ELSEWHERE = {
    "connections of a gateway to a server": (
        "gateway/test_sessions.py::test_one_principal_has_at_most_its_share"
    ),
    "resources of a server to which the callers of a gateway are subscribed": (
        "gateway/test_changing_lists.py::test_one_principal_has_at_most_its_share_of_the_subscriptions"
    ),
    "streams of a console": "console/test_shell.py::test_the_streams_of_one_person_are_bounded",
    "connections of a console's workbench to servers": (
        "console/workbench/test_workbench_api.py::test_the_least_used_connection_makes_room"
    ),
    "running tasks": "promises/test_bounds.py::test_only_so_many_run_at_once_and_the_others_wait",
    "requests that wait behind another one of their connection": (
        "hostile/test_http_shapes.py::test_a_connection_whose_client_sends_too_many_requests_at_once_is_closed"
    ),
    "answers in a session, without a store": (
        "transport/server/http/test_session_relay.py"
        "::test_answers_that_a_process_no_longer_remembers_are_refused"
    ),
    "records in the store of ended sessions, used request states, and answers in sessions": (
        "store/test_lists.py::test_expired_keys_can_be_used_again"
    ),
    "events in the store": "store/test_events.py::test_old_events_are_deleted_with_new_ones",
    "messages between processes, in the store": (
        "store/test_sqlite_messages.py::test_a_flood_of_messages_does_not_fill_the_file"
    ),
    "why held runs have ended": "held/test_bounds.py::test_so_many_ended_runs_are_remembered",
    "tasks that have ended": (
        "promises/test_looking.py::test_what_is_kept_of_ended_tasks_is_bounded_in_number_and_in_bytes"
    ),
    "content of tasks that have ended": (
        "runtime/tasks/test_finished_content.py::test_the_cache_of_content_is_bounded"
    ),
    "keys that have opened tokens": (
        "runtime/carriers/test_seal.py::test_invented_salts_do_not_fill_the_memory_or_evict_keys"
    ),
    "functions of other libraries that return their questions": (
        "gateway/test_upstreams.py::test_tools_that_return_their_questions_are_forgotten_and_found_again"
    ),
    "what each caller uses": "runtime/test_budget.py::test_principals_that_use_nothing_are_forgotten",
    "messages that wait to be sent to other processes": (
        "runtime/test_relay.py::test_no_more_is_on_its_way_than_may_be"
    ),
    "tokens that were verified": (
        "authorization/test_key_cache.py::test_the_cache_of_tokens_is_bounded_by_their_length_too"
    ),
    "tokens that are not active": (
        "authorization/test_introspection.py::test_so_many_inactive_tokens_are_remembered"
    ),
    "tokens that wait for their introspection": (
        "authorization/test_introspection.py::test_invented_tokens_delay_a_valid_one_and_do_not_stop_it"
    ),
    "buckets of `RateLimit`": "middleware/test_middleware.py::test_buckets_are_bounded",
    "sessions of an adopted server": "adoption/test_adopt.py::test_so_many_sessions_of_principals_are_kept",
}
"""Tables that the tests of another module fill, in the same way."""


def fills(
    name: str, *, kinds: tuple[str, ...] = (PRINCIPALS, ADDRESSES), **limits: Any
) -> Callable[[Filler], Filler]:
    def register(filler: Filler) -> Filler:
        FILLERS[name] = (filler, kinds, limits)
        return filler

    return register


def bounds(name: str) -> Callable[[Bounder], Bounder]:
    def register(bounder: Bounder) -> Bounder:
        BOUNDED[name] = bounder
        return bounder

    return register


def grown(work: Callable[[], Any]) -> int:
    """Return how many bytes more are in use after some work."""
    gc.collect()
    tracemalloc.start()
    try:
        work()
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


@asynccontextmanager
async def crowd_of(kind: str, limits: Mapping[str, Any]) -> AsyncIterator[Crowd]:
    crowd = Crowd(kind, limits)
    async with serving(crowd.server) as crowd.where:
        try:
            yield crowd
        finally:
            crowd.release.set()
            crowd.unblock.set()
            await crowd.stack.aclose()


@pytest.mark.parametrize("kind", CALLERS)
@pytest.mark.parametrize("name", FILLERS)
async def test_a_caller_fills_its_share_and_another_one_is_served_and_keeps_what_it_has(
    name: str, kind: str
) -> None:
    filler, kinds, limits = FILLERS[name]
    if kind in kinds:
        async with crowd_of(kind, limits) as crowd:
            await filler(crowd)


@pytest.mark.parametrize("name", BOUNDED)
def test_what_nobody_needs_a_share_of_has_a_bound(name: str) -> None:
    BOUNDED[name]()


def test_every_table_is_filled_by_a_test_and_one_without_a_share_has_a_reason() -> None:
    assert sorted([*FILLERS, *BOUNDED, *ELSEWHERE]) == sorted(table.name for table in TABLES)
    shared = {table.name for table in TABLES if table.is_shared}
    assert FILLERS.keys() <= shared
    assert BOUNDED.keys().isdisjoint(shared)
    assert [t.name for t in TABLES if not t.is_shared and not t.share.startswith("none: ")] == []
    for name, test in ELSEWHERE.items():
        path, _, function = test.partition("::")
        source = (ROOT / "tests" / path).read_text(encoding="utf-8")
        assert f"def {function}(" in source, f"no test fills the table of {name}: {test}"


def test_every_setting_that_bounds_a_table_exists() -> None:
    limits = {field.name for field in dataclasses.fields(Limits)}
    others = {"max_cached_tokens", "max_callers", "RateLimit"}
    named = {
        name
        for table in TABLES
        for text in (table.number, table.size, table.share)
        for name in re.findall(r"`(\w+)`", text)
    }
    assert named - limits - others == set()


def test_the_threat_model_prints_the_tables() -> None:
    page = TABLES_PAGE.read_text(encoding="utf-8")
    assert f"\n\n{tables()}\n\n" in page, "run: python -m tests.diagrams --write"


# How each table is filled


@fills("connections", kinds=(ADDRESSES,), max_connections=8, max_connections_per_address=4)
async def fill_connections(crowd: Crowd) -> None:
    async def connect() -> Connection:
        return await crowd.stack.enter_async_context(http.connect(crowd.where.port))

    kept = await crowd.stack.enter_async_context(http.connect(crowd.where.port, http.OTHER_LOOPBACK))
    for _ in range(4):
        await connect()
    for _ in range(8):
        refused = await (await connect()).receive()
        assert refused.status == 503
        assert "Your address is at its limit of connections" in refused.body.decode()
    headers, frame = crowd.speaker(Modern, crowd.other).build("tools/list")
    await kept.send("POST", "/mcp", headers, http.json.dumps(frame).encode())
    assert (await kept.receive()).status == 200
    assert (await crowd.speaker(Modern, crowd.other).ask("tools/list")).status == 200


@fills("running calls", max_calls=4)
async def fill_calls(crowd: Crowd) -> None:
    kept = crowd.start("wait", crowd.other)
    mine = [crowd.start("wait", crowd.mine) for _ in range(2)]
    await until(lambda: crowd.began == 3)
    for _ in range(4):
        refused = await crowd.speaker(Modern, crowd.mine).call("wait")
        assert refused.status == 503
        assert "2 of at most 2 running calls" in refused.error["message"]
    assert (await crowd.speaker(Modern, crowd.other).ask("tools/list")).status == 200
    crowd.release.set()
    assert [(await each).text for each in (kept, *mine)] == ["done"] * 3


@fills("bodies and answers of more than 8 KiB", max_memory_bytes=400_000)
async def fill_bodies(crowd: Crowd) -> None:
    asker: Modern = crowd.speaker(Modern, crowd.mine)
    lines, _ = asker.build("tools/call", asker.tool_call("measure"))
    for _ in range(3):
        connection = await crowd.stack.enter_async_context(http.connect(crowd.where.port, asker.source))
        await connection.write(http.head("POST", "/mcp", lines, 200_000) + b"x" * 80_000)
    await until(lambda: crowd.server.engine.budget.reserved == 160_000)
    refused = await asker.call("measure", text="x" * 50_000)
    assert refused.status == 503
    assert "You use 160000 of at most 200000 bytes" in refused.error["message"]
    assert (await crowd.speaker(Modern, crowd.other).call("measure", text="x" * 90_000)).text == "90000"


@fills("requests to an author's pages", kinds=(ADDRESSES,), max_calls=4)
async def fill_pages(crowd: Crowd) -> None:
    async def get(path: str, options: Mapping[str, Any]) -> http.Response:
        return await http.request(crowd.where.port, "GET", {}, path=path, **options)

    kept = asyncio.create_task(get("/page?wait=1", crowd.other))
    mine = [asyncio.create_task(get("/page?wait=1", crowd.mine)) for _ in range(2)]
    await until(lambda: crowd.began == 3)
    for _ in range(4):
        refused = await get("/page?wait=1", crowd.mine)
        assert refused.status == 503
        assert "Your address is at its limit" in refused.body.decode()
    assert (await get("/page", crowd.other)).status == 200
    crowd.release.set()
    assert [(await each).status for each in (kept, *mine)] == [200] * 3


@fills("threads", max_threads=4)
async def fill_threads(crowd: Crowd) -> None:
    mine = [crowd.start("block", crowd.mine) for _ in range(8)]
    await until(lambda: crowd.began == 2)
    for _ in range(3):
        assert (await crowd.speaker(Modern, crowd.other).call("measure", text="abc")).text == "3"
    assert crowd.began == 2
    crowd.unblock.set()
    assert [(await each).text for each in mine] == ["done"] * 8


@fills("threads of functions with `replay=False`, which are their own", max_calls=4)
async def fill_own_threads(crowd: Crowd) -> None:
    kept = crowd.start("block_apart", crowd.other)
    mine = [crowd.start("block_apart", crowd.mine) for _ in range(2)]
    await until(lambda: crowd.began == 3)
    for _ in range(4):
        assert (await crowd.speaker(Modern, crowd.mine).call("block_apart")).status == 503
    assert crowd.began == 3
    crowd.unblock.set()
    assert [(await each).text for each in (kept, *mine)] == ["done"] * 3


@fills("streams of changes", max_listeners=4)
async def fill_listeners(crowd: Crowd) -> None:
    assert [await crowd.listen(crowd.mine) for _ in range(6)] == [200] * 2 + [503] * 4
    assert [await crowd.listen(crowd.other) for _ in range(2)] == [200] * 2


@fills("subscriptions", max_memory_bytes=60_000)
async def fill_subscriptions(crowd: Crowd) -> None:
    async def subscribe(session: Session, number: int) -> int:
        return (await session.ask("resources/subscribe", {"uri": f"note://{number}" + "x" * 1000})).status

    kept, mine = await crowd.session(crowd.other), await crowd.session(crowd.mine)
    assert await subscribe(kept, 0) == 200
    statuses = [await subscribe(mine, number) for number in range(30)]
    assert (statuses[0], statuses[-1]) == (200, 503)
    assert await subscribe(kept, 1) == 200
    found = crowd.where.app.endpoint.sessions.cached[kept.session_id]
    assert len(found.state.subscriptions) == 2


@fills("sessions", max_sessions=4)
async def fill_sessions(crowd: Crowd) -> None:
    kept = await crowd.session(crowd.other)
    await kept.ask("resources/subscribe", {"uri": "note://a"})
    for _ in range(20):
        await crowd.session(crowd.mine)
    found = crowd.where.app.endpoint.sessions.cached
    assert len(found) == 3
    assert found[kept.session_id].state.subscriptions == {"note://a"}
    assert (await kept.ask("tools/list")).status == 200
    await crowd.session(crowd.other)


@fills("ended sessions", max_sessions=2)
async def fill_ended_sessions(crowd: Crowd) -> None:
    kept, ended = await crowd.session(crowd.other), await crowd.session(crowd.other)
    await ended.end()
    for _ in range(30):
        session = await crowd.session(crowd.mine)
        assert (await session.end()).status == 204
    for _ in range(2):
        await crowd.session(crowd.other)  # evicts the one that is kept, which its id restores
    assert (await kept.ask("tools/list")).status == 200
    assert (await ended.ask("tools/list")).status == 404
    assert (await session.ask("tools/list")).status == 404


@fills("events to replay", max_memory_bytes=200 * KIB)
async def fill_replay(crowd: Crowd) -> None:
    kept = await crowd.session(crowd.other)
    first = (await kept.call("tell", text="kept")).events[0]
    assert first.id is not None
    for _ in range(4):
        session = await crowd.session(crowd.mine)
        for _ in range(8):
            await session.call("tell", text="x" * 8 * KIB)
    assert crowd.server.engine.budget.reserved <= 150 * KIB
    async with kept.listening(first.id) as connection:
        assert (await connection.receive_head()).status == 200
        told = await anext(event.frame async for event in connection.events() if event.data)
    assert told["params"]["data"] == "kept"


@fills("held runs", max_held_runs=4)
async def fill_held_runs(crowd: Crowd) -> None:
    asker: Able = crowd.speaker(Able, crowd.other)
    asked = (await once(asker, "greet"))["result"]
    for _ in range(10):
        await once(crowd.speaker(Able, crowd.mine), "greet")
    assert crowd.server.engine.held_runs.bounds.waiting == 3
    answers = {key: accept(name="Bob") for key in asked["inputRequests"]}
    answered = await once(asker, "greet", answers=answers, state=asked["requestState"])
    assert answered["result"]["content"][0]["text"] == "Hello, Bob"


@fills("heads of requests that connections share", kinds=(ADDRESSES,))
async def fill_heads(crowd: Crowd) -> None:
    shared = crowd.where.runner.config.known_heads  # type: ignore[attr-defined]

    async def send(options: Mapping[str, Any], agents: range) -> None:
        asker = crowd.speaker(Modern, options)
        headers, frame = asker.build("tools/call", asker.tool_call("measure", text="abc"))
        body = http.json.dumps(frame).encode()
        async with http.connect(crowd.where.port, asker.source) as connection:
            for number in agents:
                await connection.send("POST", "/mcp", headers | {"user-agent": f"{number}"}, body)
                assert (await connection.receive()).status == 200

    await send(crowd.other, range(1))
    (kept,) = shared.kept
    each = known_heads.MAX_MISSES
    for start in range(1, known_heads.MAX_HEADS, each):
        await send(crowd.mine, range(start, start + each))
    assert len(shared) == known_heads.MAX_HEADS // 2 + 1
    assert kept in shared.kept


@asynccontextmanager
async def tasks_of(crowd: Crowd, **limits: Any) -> AsyncIterator[tuple[Patient, Patient]]:
    """Serve tools that run as tasks to the callers of a crowd; yield their clients."""
    tokens = BearerTokens({"ada": "ada", "bob": "bob"}) if "headers" in crowd.mine else None
    server = Server("tasks", store="memory:", authenticate=tokens, limits=Limits(drain_timeout=0.2, **limits))
    gate = asyncio.Event()

    @server.tool(task="optional", poll_interval=0.05)
    async def hold(text: str = "") -> str:
        await gate.wait()
        return "held"

    @server.tool(task="optional", poll_interval=0.05)
    async def ask(ctx: Context, text: str = "") -> str:
        return (await ctx.elicit("Name?", Name)).name

    @server.tool
    async def save(text: str) -> Artifact[str]:
        return Artifact(text, type="note")

    async with serving(server) as where:
        try:
            yield Patient(where.port, **crowd.mine), Patient(where.port, **crowd.other)
        finally:
            gate.set()


async def begin_many(asker: Patient, tool: str, status: str, **arguments: Any) -> list[str]:
    """Begin tasks until one is refused; return the ids of the others."""
    ids: list[str] = []
    while len(ids) < 100:
        response = await asker.call(tool, **arguments)
        if "error" in response.frame:
            assert response.status == 503
            break
        ids.append(response.result["taskId"])
        await reach(asker, ids[-1], status)
    return ids


@fills("tasks that wait for a worker")
async def fill_queue(crowd: Crowd) -> None:
    async with tasks_of(crowd, max_running_tasks=1, max_queued_tasks=6) as (mine, other):
        kept = (await begin(other, "hold"))["taskId"]
        assert 3 <= len(await begin_many(mine, "hold", "working")) <= 4
        assert (await reach(other, kept, "working"))["taskId"] == kept
        await begin(other, "hold")


@fills("tasks that wait for an answer")
async def fill_waiting(crowd: Crowd) -> None:
    async with tasks_of(crowd, max_waiting_tasks=6) as (mine, other):
        kept = (await begin(other, "ask"))["taskId"]
        await reach(other, kept, "input_required")
        assert len(await begin_many(mine, "ask", "input_required")) == 3
        assert len(await begin_many(other, "ask", "input_required")) == 2
        await reach(other, kept, "input_required")


@fills("logs of tasks")
async def fill_logs(crowd: Crowd) -> None:
    async with tasks_of(crowd, max_stored_task_bytes=60_000) as (mine, other):
        kept = (await begin(other, "ask", text="x" * 8_000))["taskId"]
        assert len(await begin_many(mine, "ask", "input_required", text="x" * 8_000)) == 3
        assert len(await begin_many(other, "ask", "input_required", text="x" * 8_000)) == 2
        await reach(other, kept, "input_required")


@fills("artifacts")
async def fill_artifacts(crowd: Crowd) -> None:
    async with tasks_of(crowd, max_stored_artifact_bytes=16_000) as (mine, other):

        async def save(asker: Patient, text: str) -> str:
            links = (await asker.call("save", text=text)).result["content"]
            return str(next(block["uri"] for block in links if block["type"] == "resource_link"))

        async def is_kept(asker: Patient, uri: str) -> bool:
            return "result" in (await asker.ask("resources/read", {"uri": uri})).frame

        kept = [await save(other, letter * 3_000) for letter in "ab"]
        flood = [await save(mine, f"{number:04}" * 500) for number in range(20)]
        assert [await is_kept(other, uri) for uri in kept] == [True, True]
        assert sum([await is_kept(mine, uri) for uri in flood]) <= 5
        assert await is_kept(mine, flood[-1])


# What nobody needs a share of


@bounds("paths and headers that were checked before")
def fill_checks() -> None:
    guard = Guard({"/mcp"}, None, None)

    def fill() -> None:
        for number in range(2000):
            long = f"{number}" + "x" * 32 * KIB
            for path, host in ((f"/{long}", b"127.0.0.1"), ("/mcp", long.encode()), (f"/{number}", b"x")):
                with suppress(BadOrigin, NoEndpoint):
                    guard.check({"path": path, "server": ("127.0.0.1", 1)}, {b"host": host})
            for header in (long, f"*/*;{number}"):
                with suppress(NotAcceptable):
                    accepts(header.encode())

    assert grown(fill) < 2 * KIB * KIB


@bounds("metadata of requests, read before")
def fill_metadata() -> None:
    dialect = V2026(MODERN, Implementation("tests", "1"), [MODERN])

    def fill() -> None:
        for number in range(2000):
            for text in (f"{number}", f"{number}" + "x" * 64 * KIB):
                _, frame = Modern(1).build("tools/list", {"_meta": {"x": text}})
                dialect.request_meta(jsonrpc.decode(http.json.dumps(frame).encode()), None)

    assert grown(fill) < 256 * 8 * KIB


@bounds("addresses of callers, read before")
def fill_addresses() -> None:
    def fill() -> None:
        for number in range(20_000):
            stranger_at((f"2001:db8:{number:x}::1", 1))

    assert grown(fill) < 1024 * KIB
