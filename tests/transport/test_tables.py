"""One caller fills each table that callers can fill; another one is served, and keeps what it has."""

from __future__ import annotations

import asyncio
import dataclasses
import re
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from pydantic import BaseModel

from antiphon import BearerTokens, Context, Limits, Server
from antiphon.runtime.tables import TABLES, Table
from antiphon.transport.server.http import known_heads
from tests.asking.driving import Able, accept, once
from tests.diagrams import TABLES_PAGE, tables
from tests.support import http
from tests.support.http import Connection
from tests.support.polling import until
from tests.support.process import ROOT
from tests.support.serving import Address, serving
from tests.support.speakers import Modern, Session

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
ELSEWHERE = {
    "tasks that wait for a worker": "tests/promises/test_admission.py",
    "tasks that wait for an answer": "tests/promises/test_admission.py",
    "logs of tasks": "tests/promises/test_stored_bytes.py",
    "artifacts": "tests/patterns/test_artifacts.py",
    "connections of a gateway to a server": "tests/gateway/test_sessions.py",
}
"""Tables that are filled by the tests of another module, in the same way."""


def fills(
    name: str, *, kinds: tuple[str, ...] = (PRINCIPALS, ADDRESSES), **limits: Any
) -> Callable[[Filler], Filler]:
    def register(filler: Filler) -> Filler:
        FILLERS[name] = (filler, kinds, limits)
        return filler

    return register


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


SHARED = [table for table in TABLES if table.is_shared]


@pytest.mark.parametrize("kind", CALLERS)
@pytest.mark.parametrize("table", SHARED, ids=lambda table: table.name)
async def test_a_caller_fills_its_share_and_another_one_is_served_and_keeps_what_it_has(
    table: Table, kind: str
) -> None:
    if table.name in ELSEWHERE:
        assert (ROOT / ELSEWHERE[table.name]).is_file()
        return
    assert table.name in FILLERS, "a table with a share needs a filler"
    filler, kinds, limits = FILLERS[table.name]
    if kind in kinds:
        async with crowd_of(kind, limits) as crowd:
            await filler(crowd)


def test_every_filler_is_of_a_table_and_a_table_without_a_share_has_a_reason() -> None:
    assert {*FILLERS, *ELSEWHERE} == {table.name for table in SHARED}
    assert [table.name for table in TABLES if not table.share.startswith(("`", "none: "))] == []


def test_every_setting_that_bounds_a_table_exists() -> None:
    limits = {field.name for field in dataclasses.fields(Limits)}
    others = {"max_cached_tokens", "max_callers", "RateLimit", "max_stored_task_bytes"}
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
    found = crowd.where.app.endpoint._sessions._cached[kept.session_id]
    assert len(found.state.subscriptions) == 2


@fills("sessions", max_sessions=4)
async def fill_sessions(crowd: Crowd) -> None:
    kept = await crowd.session(crowd.other)
    await kept.ask("resources/subscribe", {"uri": "note://a"})
    for _ in range(20):
        await crowd.session(crowd.mine)
    found = crowd.where.app.endpoint._sessions._cached
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
