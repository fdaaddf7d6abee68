"""Two callers of one server, of whom one is greedy: the other one has what it had, and is served."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon import AntiphonError, Artifact, BearerTokens, Client, Context, InputRequired, Limits, Server
from tests.fuzz.strategies import near, target
from tests.support import http
from tests.support.polling import turns
from tests.support.serving import serving
from tests.support.speakers import CLIENT, LEGACY, Modern, Session

some = settings(max_examples=target.max_examples // 10)
"""Fewer examples: each has a server of its own, with real connections."""
DEADLINE = 30.0
"""How long anything may take before it counts as blocked by the other caller."""
IMPATIENT = 30.0
"""How long the greedy caller waits for anything before it does something else."""
WITHIN = 2
"""How many things of a kind are within the share of a caller, whatever else it has."""
LIMITS = Limits(
    max_sessions=12,
    max_listeners=12,
    max_calls=24,
    max_threads=8,
    max_held_runs=12,
    max_waiting_tasks=12,
    max_queued_tasks=12,
    max_running_tasks=8,
    max_running_tasks_per_principal=4,
    max_subscriptions=8,
    max_body_bytes=200_000,
    max_memory_bytes=4_000_000,
    max_artifact_bytes=20_000,
    max_stored_artifact_bytes=60_000,
    drain_timeout=0.2,
)
ASKED = {"elicitation": {"form": {}}}

Verify = Callable[[], Awaitable[None]]


class Person:
    """One caller: what it keeps on the server, and how to see that it is all there."""

    def __init__(self, name: str, where: Place, stack: AsyncExitStack) -> None:
        self.name = name
        self.where = where
        self.stack = stack
        self.headers = {"authorization": f"Bearer {name}"} if where.has_principals else {}
        self.source = http.LOOPBACK if name == "ada" else http.OTHER_LOOPBACK
        self.modern = Modern(where.port, headers=self.headers, source=self.source)
        self.client = where.client
        self.kept: list[Verify] = []
        self.counts: Counter[str] = Counter()
        self.names: dict[str, str] = {}
        """What others could name: the ids of its sessions, tasks, artifacts and questions."""

    async def begin(self) -> None:
        """Connect."""
        connector = aiohttp.TCPConnector(local_addr=(self.source, 0), limit=0)
        session = await self.stack.enter_async_context(aiohttp.ClientSession(connector=connector))
        self.client = await self.stack.enter_async_context(
            Client(
                f"http://127.0.0.1:{self.where.port}/mcp",
                http=session,
                headers=self.headers,
                protocol="2026-07-28",
                elicit=lambda question: {"value": self.name},
            )
        )

    async def do(self, what: str, number: int) -> None:
        """Do one thing, and note how to see that it is still there; raises whatever the server refuses."""
        self.counts[what] += 1
        await getattr(self, f"_{what}")(number)

    async def verify(self) -> None:
        """See that everything is there."""
        kept, self.kept = self.kept, []
        for each in kept:
            async with asyncio.timeout(DEADLINE):
                await each()
        self.counts.clear()

    async def _opened(self) -> Session:
        session = Session(self.where.port, headers=self.headers, source=self.source)
        params = {"protocolVersion": LEGACY, "capabilities": ASKED, "clientInfo": CLIENT}
        response = await session.ask("initialize", params, id="init")
        assert response.status == 200, response
        session.session_id = response.headers["mcp-session-id"]
        session.headers |= {"mcp-session-id": session.session_id, "mcp-protocol-version": LEGACY}
        return session

    async def _session(self, number: int) -> None:
        session = await self._opened()
        self.names["session"] = session.session_id

        async def still_open() -> None:
            assert (await session.call("echo", text=self.name)).text == self.name

        self.kept.append(still_open)

    async def _ended(self, number: int) -> None:
        session = await self._opened()
        assert (await session.end()).status in (200, 202, 204)

        async def still_ended() -> None:
            assert (await session.call("echo", text=self.name)).status == 404

        self.kept.append(still_ended)

    async def _question(self, number: int) -> None:
        """Have a question open on a stream."""
        session = await self._opened()
        connection = await self.stack.enter_async_context(
            session.asking("tools/call", session.tool_call("ask"))
        )
        assert (await connection.receive_head()).status == 200
        events = connection.events(DEADLINE)
        async for event in events:
            if event.data and event.frame.get("method") == "elicitation/create":
                break
        id = event.frame["id"]
        self.names |= {"session": session.session_id, "question": id}

        async def answered() -> None:
            result = {"action": "accept", "content": {"value": self.name}}
            body = json.dumps({"jsonrpc": "2.0", "id": id, "result": result}).encode()
            told = await http.request(self.where.port, "POST", session.headers, body, source=self.source)
            assert told.status == 202
            async for event in events:
                if event.data and "result" in event.frame:
                    assert event.frame["result"]["content"][0]["text"] == self.name
                    return
            raise AssertionError("the stream ended without a result")

        self.kept.append(answered)

    async def _task(self, number: int) -> None:
        handle = await self.client.submit("later")
        self.names["task"] = handle.id

        async def redeemed() -> None:
            assert (await handle.result(timeout=DEADLINE)).text == self.name

        self.kept.append(redeemed)

    async def _busy(self, number: int) -> None:
        """Have a task that runs for as long as the example."""
        await self.client.submit("busy")

    async def _artifact(self, number: int) -> None:
        text = self.name * (1000 if self.where.victim is self else 3000)
        id = str((await self.client.call("store", text=text)).data["artifact_id"])
        self.names["artifact"] = id

        async def loaded() -> None:
            assert (await self.client.call("load", artifact=id)).text == text

        self.kept.append(loaded)

    async def _listener(self, number: int) -> None:
        uri = f"note://{self.name}{number}"
        params = {"notifications": {"resourceSubscriptions": [uri]}}
        connection = await self.stack.enter_async_context(self.modern.asking("subscriptions/listen", params))
        head = await connection.receive_head()
        assert head.status == 200, head
        events = connection.events(DEADLINE)
        async for event in events:
            if event.data and event.frame["method"].endswith("acknowledged"):
                break

        async def told() -> None:
            self.where.server.notify_resource_updated(uri)
            async for event in events:
                if event.data and event.frame["method"] == "notifications/resources/updated":
                    assert event.frame["params"]["uri"] == uri
                    return
            raise AssertionError("the stream ended without the change")

        self.kept.append(told)

    async def _get_stream(self, number: int) -> None:
        session = await self._opened()
        connection = await self.stack.enter_async_context(session.listening())
        head = await connection.receive_head()
        assert head.status == 200, head

    async def _held(self, number: int) -> None:
        await self._returned("held")

    async def _round(self, number: int) -> None:
        await self._returned("ask")

    async def _returned(self, tool: str) -> None:
        stopped = await self.client.call_once(tool)
        assert isinstance(stopped, InputRequired)
        self.names["state"] = str(stopped.sealed)

        async def resumed() -> None:
            answers = {key: {"value": self.name} for key in stopped.questions}
            assert (await self.client.call(tool, resume=stopped, answers=answers)).text == self.name

        self.kept.append(resumed)

    async def _plain(self, number: int) -> None:
        assert (await self.client.call("echo", text=self.name)).text == self.name

    async def _thread(self, number: int) -> None:
        assert (await self.client.call("in_thread", text=self.name)).text == self.name

    async def _large(self, number: int) -> None:
        assert (await self.client.call("echo", text=self.name * 30_000)).text

    # What only the greedy one does

    async def _blocked(self, number: int) -> None:
        """Have a thread that does not end before the example."""
        self.where.background.append(asyncio.create_task(self.client.call("block")))
        await turns()

    async def _waiting(self, number: int) -> None:
        """Have a call that does not end before the example."""
        self.where.background.append(asyncio.create_task(self.client.call("wait")))
        await turns()

    async def _steal(self, number: int) -> None:
        """Use what is the other's. Without principals, whoever knows an id may use it."""
        other = self.where.victim
        if other is None or not self.where.has_principals:
            return
        names = other.names
        said: list[http.Response] = []
        if "session" in names:
            session = Session(self.where.port, headers=self.headers, source=self.source)
            session.headers |= {"mcp-session-id": names["session"], "mcp-protocol-version": LEGACY}
            said += [await session.call("echo", text="x"), await session.end()]
            frame = {"jsonrpc": "2.0", "id": names.get("question", 1), "result": {"action": "decline"}}
            body = json.dumps(frame).encode()
            said.append(
                await http.request(self.where.port, "POST", session.headers, body, source=self.source)
            )
        if "task" in names:
            id = {"taskId": names["task"]}
            said += [await self.modern.ask(f"tasks/{each}", id) for each in ("get", "cancel")]
            said.append(await self.modern.ask("tasks/update", {**id, "inputResponses": {}}))
        if "state" in names:
            params = {"name": "ask", "arguments": {}, "requestState": names["state"], "inputResponses": {}}
            said.append(await self.modern.ask("tools/call", params))
        assert all(each.status >= 400 or "error" in each.frame for each in said), said
        if "artifact" in names:
            loaded = await self.client.call("load", artifact=names["artifact"], check=False)
            assert loaded.is_error


class Place:
    """The server, and what is on it."""

    def __init__(self, has_principals: bool) -> None:
        self.has_principals = has_principals
        self.victim: Person | None = None
        self.background: list[asyncio.Task[Any]] = []
        self.over = asyncio.Event()
        self.threads_end = threading.Event()
        self.port = 0
        self.client: Any = None
        tokens = BearerTokens({"ada": "ada", "bob": "bob"}) if has_principals else None
        self.server = Server(
            "crowded", authenticate=tokens, limits=LIMITS, secrets=[bytes(range(32))], store="memory:",
            single_use_state=True,
        )  # fmt: skip
        self._register(self.server)

    def _register(self, server: Server) -> None:
        @server.tool
        async def echo(text: str) -> str:
            return text

        @server.tool
        def in_thread(text: str) -> str:
            return text

        @server.tool
        def block() -> str:
            self.threads_end.wait()
            return "free"

        @server.tool
        async def wait() -> str:
            await self.over.wait()
            return "free"

        @server.tool
        async def ask(ctx: Context) -> str:
            ctx.uuid()  # so that there is something to carry
            return await ctx.elicit("Who?", str)

        @server.tool(replay=False)
        async def held(ctx: Context) -> str:
            return await ctx.elicit("Who?", str)

        @server.tool(task="required")
        async def later(ctx: Context) -> str:
            return await ctx.elicit("Who?", str)

        @server.tool(task="required")
        async def busy() -> str:
            await self.over.wait()
            return "free"

        @server.tool
        async def store(text: str) -> Artifact[str]:
            return Artifact(text)

        @server.tool
        async def load(artifact: Artifact[str]) -> str:
            return artifact.value

        @server.resource("note://{name}")
        def note(name: str) -> str:
            return name


class Errors(logging.Handler):
    """Unexpected errors of the server."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Note a traceback."""
        if record.exc_info and record.exc_info[0] is not None:
            text = logging.Formatter().formatException(record.exc_info)
            self.found.append(f"{record.getMessage()}\n{text}")


KEEPS = near(
    *("session", "ended", "question", "task", "artifact", "listener", "held", "round", "plain", "thread"),
    "large",
)
GRABS = KEEPS | near("busy", "blocked", "waiting", "get_stream", "steal")
STEPS = st.tuples(st.just("own"), KEEPS, st.just(1)) | st.tuples(st.just("grab"), GRABS, near(3, 15, 40))
TOGETHER = {"artifact", "busy", "task"}
"""What has a share for principals alone: the store does not know the addresses of callers without one."""
CHECKS = st.just(("check", "", 0))


async def play(has_principals: bool, greedy: str, steps: Sequence[tuple[str, str, int]]) -> None:
    """Let one caller grab what it can, and see that the other one has what it had."""
    place, errors = Place(has_principals), Errors()
    log = logging.getLogger("antiphon")
    log.addHandler(errors)
    try:
        async with serving(place.server) as where, AsyncExitStack() as stack:
            place.port = where.port
            people = {name: Person(name, place, stack) for name in ("ada", "bob")}
            grabbing = people.pop(greedy)
            (place.victim,) = people.values()
            await grabbing.begin()
            await place.victim.begin()
            try:
                for kind, what, times in steps:
                    await take(kind, what, times, grabbing, place.victim)
                await place.victim.verify()
                for what in ("plain", "thread", "session"):
                    await place.victim.do(what, 0)
                await place.victim.verify()
            finally:
                place.over.set()
                place.threads_end.set()
                await asyncio.gather(*place.background, return_exceptions=True)
        assert not errors.found, errors.found
    finally:
        log.removeHandler(errors)


async def take(kind: str, what: str, times: int, grabbing: Person, victim: Person) -> None:
    """Take one step: what the greedy one is refused is its own affair."""
    if what in TOGETHER and not victim.where.has_principals:
        return
    if kind == "check":
        await victim.verify()
    elif kind == "own":
        if victim.counts[what] < WITHIN and victim.counts.total() < 2 * WITHIN:
            async with asyncio.timeout(DEADLINE):
                await victim.do(what, victim.counts.total())
    else:
        for number in range(times):
            try:
                async with asyncio.timeout(IMPATIENT):
                    await grabbing.do(what, number)
            except (AntiphonError, OSError, asyncio.IncompleteReadError):
                break
            except AssertionError:
                if what == "steal":
                    raise
                break  # it has used up its share


@some
@given(st.booleans(), near("ada", "bob"), st.lists(STEPS | STEPS | STEPS | CHECKS, max_size=10))
def test_a_greedy_caller_takes_nothing_of_another(
    has_principals: bool, greedy: str, steps: list[tuple[str, str, int]]
) -> None:
    asyncio.run(play(has_principals, greedy, steps))
