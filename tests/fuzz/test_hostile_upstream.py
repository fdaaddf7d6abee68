"""A gateway with a server behind it that does anything: others behind it, and its callers, do not notice."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon import AntiphonError, Client, Context, DefinitionError, Result, Server
from antiphon.gateway import provider, sessions, upstream, upstream_client
from tests.fuzz.strategies import ANY_TEXT, JSON_VALUES, near, target
from tests.fuzz.upstreams import COPIES, KINDS, Act, Upstream
from tests.support.polling import turns, until
from tests.support.serving import serving

some = settings(max_examples=target.max_examples // 10)
"""Fewer examples: each has a gateway, three servers behind it, and two callers."""
DEADLINE = 30.0
"""How long anything may take before it counts as hanging."""
SHORTER = {
    upstream: {"FIRST_RETRY_SECONDS": 0.01, "LONGEST_RETRY_SECONDS": 0.05, "MAX_MESSAGE_BYTES": 100_000},
    upstream_client: {"SETTLE_SECONDS": 0.2},
    sessions: {"EVICT_SECONDS": 0.5},
    provider: {
        "LONGEST_CHANGES_SECONDS": 0.2,
        "START_SECONDS": 0.2,
        "PROCESS_START_SECONDS": 0.2,
        "REFRESH_SECONDS": 0.2,
    },
}
"""The times after which the gateway acts, so that an example does not wait for them."""

NAMES = near(
    *("calm", "echo", "good_echo", "far_echo", "fine", "b_delete", "_b_delete", "x" * 70, "", "a\nb"),
    *("\x1b[2J", "\u202edlofgib", "a\0b", "two words", "b_" * 40),
) | ANY_TEXT  # fmt: skip
URIS = near(
    *("good://item", "good://{name}", "far://item", "far://{name}", "bad://a", "bad://{x}", "{+x}", "a\nb"),
    "x",
) | ANY_TEXT  # fmt: skip
QUESTIONS = near("elicitation/create", "sampling/createMessage", "roots/list", "ping", "nothing/known")
METHODS = near(
    *("tools/call", "tools/call", "tools/list", "resources/read", "prompts/get", "resources/list", "ping"),
    *("initialize", "server/discover", "completion/complete", "subscriptions/listen", "resources/subscribe"),
)
OFFERS = st.sampled_from(KINDS).flatmap(
    lambda kind: st.tuples(
        st.just("offer"),
        st.just(kind),
        st.lists(NAMES if kind in ("tools", "prompts") else URIS, max_size=4),
    )
)
ANNOUNCES = st.tuples(st.just("announce"), st.sampled_from(KINDS), near(1, 2, 50))
IDS = near(0, 1, 2, 3, "q1", None) | JSON_VALUES
FRAMES = (
    st.fixed_dictionaries(
        {"jsonrpc": near("2.0", "1.0")},
        optional={
            "id": IDS,
            "method": QUESTIONS
            | near(
                *("notifications/resources/updated", "notifications/cancelled", "notifications/progress"),
                *("notifications/message", "notifications/tools/list_changed", "notifications/tasks"),
            ),
            "params": JSON_VALUES
            | st.fixed_dictionaries(
                {},
                optional={
                    "uri": URIS,
                    "requestId": IDS,
                    "progressToken": IDS,
                    "message": near("bad for anybody"),
                    "data": near("bad for anybody"),
                },
            ),
            "result": JSON_VALUES,
            "error": JSON_VALUES,
        },
    )
    | JSON_VALUES
)
ACTS = st.one_of(
    OFFERS,
    ANNOUNCES,
    st.tuples(st.just("ask"), QUESTIONS),
    st.tuples(st.just("return"), QUESTIONS),
    st.tuples(st.just("tell"), near(1, 0.5, -1) | JSON_VALUES, IDS),
    st.tuples(st.just("frame"), FRAMES),
    st.tuples(st.just("other id"), IDS),
    st.tuples(st.just("result"), JSON_VALUES),
    st.tuples(st.just("error"), near(-32603, -32042, 0, 2**70) | JSON_VALUES, ANY_TEXT | JSON_VALUES),
    st.tuples(st.just("garbage"), st.binary(max_size=20)),
    st.tuples(st.just("huge"), near(1000, 200_000)),
    st.tuples(st.just("status"), near(200, 202, 204, 302, 401, 404, 500), near("text/event-stream", "a/b")),
    near(("hang",), ("drop",), ("honest",)),
)
STEPS = st.one_of(
    OFFERS,
    ANNOUNCES,
    st.tuples(st.just("behave"), METHODS, st.lists(ACTS, min_size=1, max_size=4)),
    st.tuples(
        st.just("call"), near("ada", "bob"), near("tools", "tools", "resources", "prompts"), st.integers(0, 3)
    ),
    st.tuples(st.just("emit"), FRAMES),
    st.tuples(st.just("check"), near("ada", "bob")),
    near(("cancel",), ("drop",), ("wait",)),
)
PROTOCOLS = near("2026-07-28", "2025-11-25")


class Caller:
    """A caller of the gateway. A question, a message or a change of others is a failure."""

    def __init__(self, name: str, protocol: str, asks: bool) -> None:
        self.name = name
        self.calls: set[asyncio.Task[Any]] = set()
        """The calls of the hostile server's items that are under way."""
        self.wrong: list[str] = []
        self.handing: set[asyncio.Task[None]] = set()
        self.reads: Sequence[str] = ()
        """The servers that were mounted before the hostile one: a URI is the first server's that has it."""
        answering = {"elicit": self._elicit, "sample": self._sample} if asks else {}
        self.options: dict[str, Any] = {
            "principal": name,
            "protocol": protocol,
            "on_log": lambda log: self._hear(log.data),
            "log_level": "debug",
            **answering,
        }

    def _elicit(self, question: Any) -> dict[str, Any]:
        self._hear(question.message)
        return {"value": self.name}

    def _sample(self, question: Any) -> str:
        self._hear(str(question))
        return self.name

    def _hear(self, words: Any) -> None:
        """Note what the hostile server says, if it is not for a call of this caller."""
        text = str(words)
        if "bad for" in text and not self.calls:
            self.wrong.append(f"{self.name} hears {text!r} without a call")
        other = "bob" if self.name == "ada" else "ada"
        if f"bad for {other}" in text:
            self.wrong.append(f"{self.name} hears {text!r}")

    def start(self, client: Client, kind: str, name: str) -> None:
        """Call the hostile server in the background."""
        arguments = {"who": self.name}
        on_progress = lambda progress: self._hear(progress.message)  # noqa: E731

        async def call() -> None:
            try:
                if kind == "tools":
                    assert isinstance(
                        await client.call(name, arguments, on_progress=on_progress, check=False), Result
                    )
                elif kind == "resources":
                    await client.read(name)
                else:
                    await client.prompt(name)
            except AntiphonError:
                pass

        task = asyncio.create_task(call())
        self.calls.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, call: asyncio.Task[None]) -> None:
        """Forget a call. What comes with its answer belongs to it, until the loop has handed it over."""
        handing = asyncio.create_task(turns(100))
        handing.add_done_callback(lambda _: self.calls.discard(call))
        self.handing.add(handing)
        handing.add_done_callback(self.handing.discard)


class Problems(logging.Handler):
    """What must not happen in the gateway: an unexpected error, or a line that others can forge."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Note a traceback, and a control character of the hostile server."""
        text = record.getMessage()
        if record.exc_info and record.exc_info[0] is not None and record.levelno >= logging.WARNING:
            self.found.append(f"{text}\n{logging.Formatter().formatException(record.exc_info)}")
        if any(not character.isprintable() for character in text.replace("\n  ", "")):
            self.found.append(f"control characters in the log: {text!r}")


def honest(name: str) -> Server:
    """A server whose answers say that they are its own."""
    server = Server(name, secrets=[b"a secret of the honest servers"])

    @server.tool(description=f"of {name}")
    async def echo(text: str) -> str:
        return f"{name} {text}"

    @server.tool(description=f"of {name}")
    async def ask(ctx: Context) -> str:
        return await ctx.elicit(f"{name} asks", str)

    @server.tool(description=f"of {name}")
    async def delete() -> str:
        return f"{name} deletes"

    @server.resource(f"{name}://{{item}}", description=f"of {name}")
    def read(item: str) -> str:
        return f"{name} {item}"

    @server.prompt(description=f"of {name}")
    def greet() -> str:
        return f"{name} greets"

    return server


async def check(client: Client, caller: Caller, victims: Sequence[str]) -> None:
    """Use every other server as a caller, whatever the hostile one does."""
    async with asyncio.timeout(DEADLINE):
        assert (await client.call("fine")).text == "fine"
        for name in victims:
            assert (await client.call(f"{name}_echo", text=caller.name)).text == f"{name} {caller.name}"
            assert (await client.call(f"{name}_delete")).text == f"{name} deletes"
            if name in caller.reads:
                read = await client.read(f"{name}://item")
                assert read.contents[0].text == f"{name} item"  # type: ignore[union-attr]
            greeting = (await client.prompt(f"{name}_greet")).messages[0].content
            assert greeting.text == f"{name} greets"  # type: ignore[union-attr]
            if "elicit" in caller.options:
                assert (await client.call(f"{name}_ask")).text == caller.name
        own = {"fine"} | {f"{name}_{tool}" for name in victims for tool in ("echo", "ask", "delete")}
        listed = {tool.name: tool.description for tool in await client.tools()}
        assert own <= set(listed)
        assert all(listed[tool] == f"of {tool.rpartition('_')[0]}" for tool in own - {"fine"})
        assert all(tool.startswith("bad_") for tool in set(listed) - own)
        assert all(tool.isprintable() for tool in listed)


@asynccontextmanager
async def built(hostile: Upstream, way: str, position: int) -> AsyncIterator[tuple[Server, list[str]]]:
    """A gateway with the hostile server among honest ones: before, between or after them."""
    gateway = Server("gateway", secrets=[b"a secret of the gateway"])
    gateway.add_tool(lambda: "fine", name="fine")
    target = ["/bin/bash", "-c", COPIES, str(hostile.port)]
    victims = ["good", "far", "bad_b"]
    async with serving(honest("far")) as address:
        for number in range(4):
            if number == position:
                options: dict[str, Any] = {"timeout": 2.0, "max_connections": 4}
                there = target if way == "stdio" else f"http://127.0.0.1:{hostile.port}/mcp"
                gateway.mount("bad", there, **options)
            if number == 3:
                break
            name = victims[number]
            gateway.mount(name, address.url if name == "far" else honest(name))
        yield gateway, victims


async def play(version: str, way: str, position: int, callers: list[Caller], steps: Sequence[Act]) -> None:
    """Run the steps, let the hostile server be honest again, and see that nothing of it is left."""
    hostile = Upstream(version)
    hostile.names["tools"] = ["calm"]
    asyncio.get_running_loop().set_exception_handler(
        lambda loop, context: problems.found.append(str(context))
    )
    problems = Problems()
    log = logging.getLogger("antiphon")
    log.addHandler(problems)
    try:
        async with AsyncExitStack() as stack:
            for module, values in SHORTER.items():
                stack.enter_context(mock.patch.multiple(module, **values))
            await stack.enter_async_context(hostile.running())
            gateway, victims = await stack.enter_async_context(built(hostile, way, position))
            await stack.enter_async_context(gateway.running())
            await until(lambda: "far_echo" in gateway.tools, DEADLINE)
            clients = {
                caller.name: await stack.enter_async_context(Client(gateway, **caller.options))
                for caller in callers
            }
            for caller in callers:
                caller.reads = victims[:position]
            by_name = {caller.name: caller for caller in callers}
            for step in steps:
                await take(step, hostile, clients, by_name, victims)
                assert not problems.found, problems.found
            for caller in callers:
                await check(clients[caller.name], caller, victims)
            hostile.calm(["calm"])
            async with asyncio.timeout(DEADLINE):
                calls = [call for caller in callers for call in caller.calls]
                ended = await asyncio.gather(*calls, return_exceptions=True)
                assert all(each is None or isinstance(each, asyncio.CancelledError) for each in ended), ended
                await until(lambda: is_calm(clients["ada"], gateway, victims), DEADLINE)
            for caller in callers:
                await check(clients[caller.name], caller, victims)
                assert not caller.wrong, caller.wrong
        assert not problems.found, problems.found
        await until(lambda: len(asyncio.all_tasks()) == 1, DEADLINE)
    finally:
        log.removeHandler(problems)


async def take(
    step: Act, hostile: Upstream, clients: dict[str, Client], callers: dict[str, Caller], victims: list[str]
) -> None:
    """Take one step."""
    name, *given = step
    match name:
        case "offer":
            hostile.names[given[0]] = list(given[1])
        case "announce":
            for _ in range(given[1]):
                hostile.announce(given[0])
        case "behave":
            hostile.acts[given[0]].append(given[1])
        case "call":
            who, kind, number = given
            offered = hostile.names[kind] or ["calm"]
            chosen = offered[number % len(offered)]
            callers[who].start(clients[who], kind, chosen if kind == "resources" else f"bad_{chosen}")
            await turns()
        case "cancel":
            for caller in callers.values():
                for call in tuple(caller.calls)[:1]:
                    call.cancel()
        case "emit":
            hostile.broadcast(given[0])
        case "drop":
            hostile.drop()
        case "wait":
            await turns(100)
        case "check":
            await check(clients[given[0]], callers[given[0]], victims)


async def is_calm(client: Client, gateway: Server, victims: Sequence[str]) -> bool:
    """Return whether the gateway offers what the hostile server now has, and nothing that it had."""
    own = {"fine"} | {f"{name}_{tool}" for name in victims for tool in ("echo", "ask", "delete")}
    if set(gateway.tools) != own | {"bad_calm"} or await client.resources():
        return False
    if len(await client.templates()) != len(victims) or len(await client.prompts()) != len(victims):
        return False
    try:
        return (await client.call("bad_calm")).text == "bad calm"
    except AntiphonError:
        return False


@some
@given(
    near("2026-07-28", "2025-11-25", "2025-06-18"),
    near("http", "http", "http", "http", "stdio"),
    st.integers(0, 3),
    st.tuples(PROTOCOLS, PROTOCOLS, st.booleans()),
    st.lists(STEPS, max_size=10),
)
def test_a_hostile_upstream_is_noticed_by_those_who_call_it_alone(
    version: str, way: str, position: int, spoken: tuple[str, str, bool], steps: list[Act]
) -> None:
    callers = [Caller("ada", spoken[0], True), Caller("bob", spoken[1], spoken[2])]
    try:
        asyncio.run(play(version, way, position, callers, steps))
    except DefinitionError as error:
        raise AssertionError(f"the gateway did not start: {error}") from error
