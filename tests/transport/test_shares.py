"""One principal uses at most its share of the calls, the listeners and the memory of a server."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from antiphon import BearerTokens, Context, Limits, Server
from antiphon.model.identity import STRANGER
from tests.asking.driving import accept
from tests.support import http
from tests.support.http import Connection
from tests.support.polling import until
from tests.support.serving import WAYS, Address, PlainUvicorn, serving
from tests.support.speakers import CLIENT, DIALECTS, LEGACY, Modern, Session, Speaker, speaker

LOOPBACKS = (http.LOOPBACK, http.OTHER_LOOPBACK)
ADA, BOB = ({"authorization": f"Bearer {name}"} for name in ("ada", "bob"))


CALLERS: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "principals": ({"headers": ADA}, {"headers": BOB}),
    "addresses": tuple({"source": source} for source in LOOPBACKS),
}
"""Two callers with a share each: the options of their speakers."""


@dataclass
class Name:
    name: str


class Waiting:
    """A server whose tool waits."""

    def __init__(self, *, has_strangers: bool = False, **limits: Any) -> None:
        tokens = None if has_strangers else BearerTokens({"ada": "ada", "bob": "bob"})
        self.server = Server("tests", authenticate=tokens, limits=Limits(**limits))
        self.release = asyncio.Event()
        self.unblock = threading.Event()
        self.blocked = 0

        @self.server.tool
        async def wait() -> str:
            await self.release.wait()
            return "done"

        @self.server.tool
        def block() -> str:
            self.blocked += 1
            assert self.unblock.wait(60)
            return "done"

        @self.server.tool
        def quick() -> str:
            return "quick"

        @self.server.tool
        def nested(ctx: Context) -> str:
            return ctx.wait(ctx.step(block))

        @self.server.tool
        async def greet(ctx: Context) -> str:
            return "Hello, " + (await ctx.elicit("Name?", Name)).name

        @self.server.tool
        async def measure(text: str) -> int:
            return len(text)

        @self.server.tool
        async def large(size: int) -> str:
            return "x" * size

        @self.server.resource("note://{name}")
        async def note(name: str) -> str:
            return name


@asynccontextmanager
async def listening(asker: Speaker, uris: Sequence[str] = ("note://a",)) -> AsyncIterator[Connection]:
    interests = {"notifications": {"resourceSubscriptions": list(uris)}}
    async with asker.asking("subscriptions/listen", interests) as connection:
        yield connection


def usages(where: Address) -> Any:
    return where.app.engine.usages


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_principal_with_too_many_calls_is_refused_and_others_are_served(dialect: str) -> None:
    waiting = Waiting(max_calls=4)
    async with serving(waiting.server) as where:
        ada = await speaker(dialect, where.port, headers=ADA)
        bob = await speaker(dialect, where.port, headers=BOB)
        calls = [asyncio.create_task(ada.call("wait")) for _ in range(2)]
        await until(lambda: where.under_way == 2)
        refused = await ada.call("wait")
        assert (refused.status, refused.error["code"]) == (503, -32603)
        assert "You have 2 of at most 2 running calls" in refused.error["message"]
        assert int(refused.headers["retry-after"]) > 0
        assert refused.frame["id"] == 1
        calls.append(asyncio.create_task(bob.call("wait")))
        await until(lambda: where.under_way == 3)
        waiting.release.set()
        assert [(await call).text for call in calls] == ["done"] * 3
        assert (await ada.call("wait")).text == "done"
        await until(lambda: not where.under_way)
        assert usages(where).of("ada").calls == usages(where).of("bob").calls == 0


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_an_address_with_too_many_calls_is_refused_and_other_addresses_are_served(
    dialect: str, way: str
) -> None:
    waiting = Waiting(has_strangers=True, max_calls=4)
    async with WAYS[way](waiting.server) as where:
        here = await speaker(dialect, where.port)
        there = await speaker(dialect, where.port, source=http.OTHER_LOOPBACK)
        calls = [asyncio.create_task(here.call("wait")) for _ in range(2)]
        await until(lambda: where.under_way == 2)
        refused = await here.call("wait")
        assert (refused.status, refused.error["code"]) == (503, -32603)
        assert "2 of at most 2 running calls" in refused.error["message"]
        calls.append(asyncio.create_task(there.call("wait")))
        await until(lambda: where.under_way == 3)
        waiting.release.set()
        assert [(await call).text for call in calls] == ["done"] * 3
        assert (await here.call("wait")).text == "done"
        await until(lambda: not where.under_way)
        assert all(usage.is_idle or usage.reclaimable for usage in usages(where).known.values())


async def test_callers_over_a_unix_socket_are_one_caller(tmp_path: Path) -> None:
    waiting = Waiting(has_strangers=True, max_calls=4)
    app = waiting.server.asgi()
    config = uvicorn.Config(app, uds=str(tmp_path / "socket"), log_level="error")
    runner = PlainUvicorn(config)
    asker = Modern(0)
    headers, frame = asker.build("tools/call", asker.tool_call("wait"))
    async with AsyncExitStack() as stack:
        serving_here = asyncio.create_task(runner.serve())
        try:
            await until(lambda: runner.started or serving_here.done())

            async def call() -> Connection:
                connection = Connection(*await asyncio.open_unix_connection(tmp_path / "socket"))
                stack.push_async_callback(connection.close)
                await connection.send("POST", "/mcp", headers, json.dumps(frame).encode())
                return connection

            calls = [await call() for _ in range(2)]
            await until(lambda: len(app.endpoint.supervisor) == 2)
            refused = await (await call()).receive()
            assert refused.status == 503
            assert "2 of at most 2 running calls" in refused.error["message"]
            waiting.release.set()
            assert [(await each.receive()).text for each in calls] == ["done"] * 2
        finally:
            waiting.release.set()
            runner.should_exit = True
            await serving_here


async def test_one_principal_has_one_share_at_all_addresses() -> None:
    waiting = Waiting(max_calls=4)
    async with serving(waiting.server) as where:
        speakers = [Modern(where.port, headers=ADA, source=source) for source in LOOPBACKS]
        calls = [asyncio.create_task(each.call("wait")) for each in speakers]
        await until(lambda: where.under_way == 2)
        assert (await speakers[0].call("wait")).status == 503
        waiting.release.set()
        assert [(await call).text for call in calls] == ["done"] * 2


async def test_calls_that_fail_or_are_abandoned_are_not_counted_any_more() -> None:
    async with serving(Waiting(max_calls=4).server) as where:
        ada = Modern(where.port, headers=ADA)
        for _ in range(5):
            assert "error" in (await ada.ask("tools/call", {"name": "no such tool"})).frame
            async with ada.asking("tools/call", ada.tool_call("wait")) as connection:
                await until(lambda: where.under_way == 1)
                connection.vanish()
            await until(lambda: where.under_way == 0)
        assert usages(where).of("ada").is_idle


async def test_a_principal_with_too_many_listeners_is_refused_and_others_are_served() -> None:
    async with serving(Waiting(max_listeners=4, max_calls=2).server) as where, AsyncExitStack() as stack:
        ada, bob = Modern(where.port, headers=ADA), Modern(where.port, headers=BOB)
        for _ in range(2):
            connection = await stack.enter_async_context(listening(ada))
            assert (await connection.receive_head()).status == 200
        async with listening(ada) as connection:
            refused = await connection.receive()
        assert refused.status == 503
        assert "You have 2 of at most 2 listeners" in refused.error["message"]
        async with listening(bob) as connection:
            assert (await connection.receive_head()).status == 200
        await stack.aclose()
        await until(lambda: where.under_way == 0)
        assert usages(where).of("ada").is_idle
        assert usages(where).of("bob").is_idle


async def test_an_address_has_its_share_of_listeners_and_memory() -> None:
    waiting = Waiting(has_strangers=True, max_listeners=2, max_memory_bytes=400_000)
    async with serving(waiting.server) as where, AsyncExitStack() as stack:
        here, there = (Modern(where.port, source=source) for source in LOOPBACKS)
        connection = await stack.enter_async_context(listening(here))
        assert (await connection.receive_head()).status == 200
        async with listening(here) as connection:
            assert (await connection.receive()).status == 503
        connection = await stack.enter_async_context(listening(there))
        assert (await connection.receive_head()).status == 200
        large = await here.call("measure", text="x" * 300_000)
        assert large.status == 413
        assert "at most 200000" in large.error["message"]


async def test_streams_of_sessions_count_as_listeners() -> None:
    async with serving(Waiting(max_listeners=4).server) as where, AsyncExitStack() as stack:
        for number in range(3):
            session = Session(where.port, headers=ADA)
            await session.open()
            connection = await stack.enter_async_context(session.listening())
            head = await connection.receive_head()
            assert head.status == (200 if number < 2 else 503)


@pytest.mark.parametrize("callers", CALLERS)
async def test_a_caller_whose_functions_block_threads_leaves_some_to_others(callers: str) -> None:
    waiting = Waiting(has_strangers=callers == "addresses", max_threads=4)
    mine, others = CALLERS[callers]
    async with serving(waiting.server) as where:
        calls = [asyncio.create_task(Modern(where.port, **mine).call("block")) for _ in range(8)]
        try:
            await until(lambda: waiting.blocked == 2)
            assert (await Modern(where.port, **others).call("quick")).text == "quick"
            assert waiting.blocked == 2
        finally:
            waiting.unblock.set()
        assert [(await call).text for call in calls] == ["done"] * 8
        assert (await Modern(where.port, **mine).call("quick")).text == "quick"


async def test_a_function_that_waits_for_another_thread_does_not_wait_for_its_own_share() -> None:
    waiting = Waiting(max_threads=4)
    waiting.unblock.set()
    async with serving(waiting.server) as where:
        calls = [asyncio.create_task(Modern(where.port, headers=ADA).call("nested")) for _ in range(2)]
        assert [(await call).text for call in calls] == ["done"] * 2


async def test_functions_that_hold_all_threads_and_wait_for_others_do_not_wait_for_ever() -> None:
    server = Server(
        "tests", authenticate=BearerTokens({"ada": "ada", "bob": "bob"}), limits=Limits(max_threads=4)
    )
    together = threading.Barrier(4)

    def double(number: int) -> int:
        return 2 * number

    @server.tool
    def add_doubles(ctx: Context) -> int:
        together.wait(60)

        def again(number: int) -> int:
            return ctx.wait(ctx.step(double, number))

        return sum(ctx.wait(ctx.map(double, range(10)))) + ctx.wait(ctx.step(again, 5))

    async with serving(server) as where:
        callers = [Modern(where.port, headers=headers) for headers in (ADA, BOB, ADA, BOB)]
        calls = [asyncio.create_task(each.call("add_doubles")) for each in callers]
        assert [(await call).text for call in calls] == ["100"] * 4


async def test_calls_that_wait_for_a_thread_can_be_abandoned() -> None:
    waiting = Waiting(max_threads=2)
    async with serving(waiting.server) as where:
        ada = Modern(where.port, headers=ADA)
        try:
            async with ada.asking("tools/call", ada.tool_call("block")):
                await until(lambda: waiting.blocked == 1)
                async with ada.asking("tools/call", ada.tool_call("block")) as connection:
                    await until(lambda: where.under_way == 2)
                    connection.vanish()
                    await until(lambda: where.under_way == 1)
        finally:
            waiting.unblock.set()
        assert (await ada.call("quick")).text == "quick"
        assert waiting.blocked == 1


@pytest.mark.parametrize("callers", CALLERS)
async def test_a_crowd_of_sessions_leaves_the_question_of_another_caller(
    callers: str,
) -> None:
    waiting = Waiting(has_strangers=callers == "addresses", max_sessions=4)
    ada, bob = CALLERS[callers]
    async with serving(waiting.server) as where:
        asked, idle = Session(where.port, **bob), Session(where.port, **bob)
        await asked.open(capabilities={"elicitation": {}})
        async with asked.asking("tools/call", asked.tool_call("greet")) as connection:
            await connection.receive_head()
            events = connection.events()
            question = await anext(event.frame async for event in events if event.data)
            await idle.open()
            await idle.ask("logging/setLevel", {"level": "error"})
            for _ in range(20):
                await Session(where.port, **ada).open()
            assert (await say(asked, question["id"], accept(name="Bob"))).status == 202
            answer = await anext(event.frame async for event in events if event.data)
            assert answer["result"]["content"][0]["text"] == "Hello, Bob"
        assert len(where.app.endpoint.sessions) == 4
        assert (await idle.ask("tools/list")).status == 200


@pytest.mark.parametrize("callers", CALLERS)
async def test_the_sessions_that_one_caller_ends_do_not_end_those_of_another(callers: str) -> None:
    waiting = Waiting(has_strangers=callers == "addresses", max_sessions=2)
    ada, bob = CALLERS[callers]
    async with serving(waiting.server) as where:
        early = Session(where.port, **bob)
        await early.open()
        for _ in range(30):
            session = Session(where.port, **ada)
            await session.open()
            assert (await session.end()).status == 204
        for _ in range(2):
            await Session(where.port, **bob).open()  # evicts the first one, which its id restores
        assert (await early.ask("tools/list")).status == 200
        assert (await session.ask("tools/list")).status == 404


@pytest.mark.parametrize("callers", CALLERS)
async def test_a_caller_whose_sessions_are_all_in_use_gets_no_further_one(callers: str) -> None:
    waiting = Waiting(has_strangers=callers == "addresses", max_sessions=4)
    ada, bob = CALLERS[callers]
    async with serving(waiting.server) as where, AsyncExitStack() as stack:
        sessions = [Session(where.port, **ada) for _ in range(3)]
        for session in sessions[:2]:
            await session.open()
            connection = await stack.enter_async_context(session.listening())
            assert (await connection.receive_head()).status == 200
        params = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": CLIENT}
        refused = await sessions[2].ask("initialize", params)
        assert refused.status == 503
        assert int(refused.headers["retry-after"]) > 0
        assert "You have 2 of at most 2 sessions, and each is in use" in refused.error["message"]
        await Session(where.port, **bob).open()


async def test_a_full_server_evicts_an_idle_session_of_the_caller_who_has_most() -> None:
    waiting = Waiting(has_strangers=True, max_sessions=5, principal_share=0.8)
    async with serving(waiting.server) as where:
        few = [Session(where.port, source="127.0.0.3") for _ in range(1)]
        many = [Session(where.port) for _ in range(4)]
        for session in (*few, *many):
            await session.open()
            await session.ask("resources/subscribe", {"uri": "note://a"})
        await Session(where.port, source="127.0.0.4").open()
        sessions = where.app.endpoint.sessions
        kept = [sessions.find(each.session_id, STRANGER) is not None for each in (*few, *many)]
        assert kept == [True, False, True, True, True]


async def say(session: Session, id: Any, result: Any) -> http.Response:
    """Answer a question."""
    body = json.dumps({"jsonrpc": "2.0", "id": id, "result": result}).encode()
    return await http.request(session.port, "POST", session.headers, body, source=session.source)


async def test_bodies_that_need_too_much_memory_are_refused() -> None:
    waiting = Waiting(max_memory_bytes=400_000)
    async with serving(waiting.server) as where:
        ada, bob = Modern(where.port, headers=ADA), Modern(where.port, headers=BOB)
        budget = where.app.engine.budget
        assert (await ada.call("measure", text="x" * 100_000)).text == "100000"
        assert budget.reserved == 0
        refused = await ada.call("measure", text="x" * 300_000)
        assert refused.status == 413
        assert "at most 200000" in refused.error["message"]
        hollow = await ada.ask("tools/call", {"name": "wait", "arguments": {"x": [[]] * 10_000}})
        assert hollow.status == 413, "what counts is the memory of the decoded body"
        assert (await bob.call("measure", text="x" * 100_000)).text == "100000"
        assert budget.reserved == 0


async def test_a_body_is_counted_while_it_arrives_and_while_its_call_runs() -> None:
    async with serving(Waiting(max_memory_bytes=400_000).server) as where:
        budget = where.app.engine.budget
        ada = Modern(where.port, headers=ADA)
        lines, _ = ada.build("tools/call", ada.tool_call("wait"))
        async with AsyncExitStack() as stack:
            for _ in range(3):
                connection = await stack.enter_async_context(http.connect(where.port))
                await connection.write(http.head("POST", "/mcp", lines, 200_000) + b"x" * 80_000)
            await until(lambda: budget.reserved == 160_000)
            response = await ada.call("measure", text="x" * 50_000)
            assert response.status == 503
            assert "You use 160000 of at most 200000 bytes" in response.error["message"]
            assert (await Modern(where.port, headers=BOB).call("measure", text="x" * 90_000)).text == "90000"
        await until(lambda: budget.reserved == 0)


async def test_a_response_for_which_there_is_no_memory_is_refused() -> None:
    async with serving(Waiting(max_memory_bytes=400_000).server) as where:
        ada = Modern(where.port, headers=ADA)
        assert len((await ada.call("large", size=150_000)).text) == 150_000
        refused = await ada.call("large", size=250_000)
        assert refused.status == 413
        assert "memory for the response" in refused.error["message"]
        assert where.app.engine.budget.reserved == 0


async def test_subscriptions_have_a_length_a_number_and_a_size() -> None:
    async with serving(Waiting(max_subscriptions=100, max_memory_bytes=60_000).server) as where:
        budget = where.app.engine.budget
        session = Session(where.port, headers=ADA)
        await session.open()
        before = budget.reserved
        long = await session.ask("resources/subscribe", {"uri": "note://" + "x" * 2048})
        assert long.status == 413
        assert "2055 characters" in long.error["message"]
        statuses = []
        for number in range(30):
            uri = f"note://{number}" + "x" * 1000
            statuses.append((await session.ask("resources/subscribe", {"uri": uri})).status)
        assert statuses[:15] == [200] * 15
        assert statuses[-1] == 503
        uri = "note://0" + "x" * 1000
        await session.ask("resources/subscribe", {"uri": uri})  # repeated, and not counted again
        for number in range(30):
            await session.ask("resources/unsubscribe", {"uri": f"note://{number}" + "x" * 1000})
        assert budget.reserved == before


async def test_what_a_listener_names_has_a_length_a_number_and_a_size() -> None:
    async with serving(Waiting(max_subscriptions=100, max_memory_bytes=60_000).server) as where:
        budget = where.app.engine.budget
        ada = Modern(where.port, headers=ADA)
        for uris, status, words in (
            (["note://" + "x" * 3000], 413, "3007 characters"),
            ([f"note://{number}" for number in range(101)], 200, "at most 100"),
            ([f"note://{number}" for number in range(100)], 413, "memory for the subscriptions"),
        ):
            async with listening(ada, uris) as connection:
                refused = await connection.receive()
                assert words in refused.error["message"]
                assert refused.status == status
        async with listening(ada, [f"note://{number}" + "x" * 1000 for number in range(10)]) as connection:
            assert (await connection.receive_head()).status == 200
            assert budget.reserved > 10_000
            async with listening(ada, [f"note://{n}" + "x" * 1500 for n in range(13)]) as other:
                refused = await other.receive()
                assert refused.status == 503, refused.error
        await until(lambda: budget.reserved == 0)
