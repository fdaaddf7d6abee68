"""Dependencies of functions: made once for each call, closed after it, overridden in tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any

import pytest

from antiphon import Client, Context, DefinitionError, Depends, Failure, Principal, Server, Text, TextContents
from antiphon.errors import RequestError
from tests.runtime.execution.injected import Db, async_generator, coroutine, events, generator, plain


@pytest.fixture(autouse=True)
def forget() -> None:
    events.clear()


manager = contextmanager(generator)
async_manager = asynccontextmanager(async_generator)


def closed() -> closing[Db]:
    return closing(Db("closed"))


KINDS: dict[Callable[..., Any], list[str]] = {
    plain: ["in a thread: True", "open plain", "call"],
    coroutine: ["open coroutine", "call"],
    generator: ["open generator", "call", "close generator"],
    async_generator: ["open async_generator", "call", "close async_generator"],
    manager: ["open generator", "call", "close generator"],
    async_manager: ["open async_generator", "call", "close async_generator"],
    closed: ["open closed", "call", "close closed"],
}


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("function", list(KINDS))
async def test_functions_of_every_kind_give_a_value_and_are_closed(
    function: Callable[..., Any], is_async: bool
) -> None:
    server = Server("tests")

    async def use(number: int, db: Any = Depends(function)) -> str:
        events.append("call")
        assert db.is_open
        return f"{db.name} {number}"

    def use_in_thread(number: int, db: Any = Depends(function)) -> str:
        return asyncio.run(use(number, db))

    server.add_tool(use if is_async else use_in_thread, name="use")
    async with Client(server) as client:
        assert (await client.tools())[0].input_schema == {
            "type": "object",
            "additionalProperties": False,
            "properties": {"number": {"type": "integer"}},
            "required": ["number"],
        }
        opened = next(each for each in KINDS[function] if each.startswith("open "))
        assert (await client.call("use", number=3)).text == f"{opened.removeprefix('open ')} 3"
        refused = await client.call("use", number=3, db="mine", check=False)
        assert refused.is_error
        assert "db: There is no such argument" in refused.text
    assert events == KINDS[function]


# Dependencies of dependencies


async def settings(ctx: Context) -> dict[str, str]:
    events.append("settings")
    return {"user": ctx.principal.id or "nobody", **(ctx.lifespan or {})}


async def session(
    settings: Annotated[dict[str, str], Depends(settings)], db: Annotated[Db, Depends(generator)]
) -> AsyncIterator[str]:
    events.append("begin")
    yield f"{settings['user']} of {db.name}"
    events.append("end")


async def report(
    title: str,
    session: Annotated[str, Depends(session)],
    settings: Annotated[dict[str, str], Depends(settings)],
    db: Annotated[Db, Depends(generator)],
) -> str:
    events.append("call")
    return f"{title}: {session} {settings['user']} {db.name}"


async def test_a_dependency_is_made_once_for_each_call_and_closed_in_reverse_order() -> None:
    server = Server("tests")
    server.add_tool(report)
    expected = ["settings", "open generator", "begin", "call", "end", "close generator"]
    async with Client(server) as client:
        for _ in range(2):
            events.clear()
            assert (
                await client.call("report", title="May")
            ).text == "May: nobody of generator nobody generator"
            assert events == expected


async def test_resources_templates_prompts_and_completions_have_dependencies() -> None:
    server = Server("tests")

    @server.resource("data://all")
    async def everything(db: Annotated[Db, Depends(async_generator)]) -> str:
        return f"all of {db.name}"

    @server.resource("data://one/{key}")
    def one(key: str, db: Annotated[Db, Depends(generator)]) -> str:
        return f"{key} of {db.name}"

    @server.prompt
    async def ask(topic: str, db: Annotated[Db, Depends(async_generator)]) -> str:
        return f"{topic} of {db.name}"

    @server.completion("ask", "topic")
    def topics(typed: str, db: Annotated[Db, Depends(generator)]) -> list[str]:
        assert db.is_open
        return [typed + db.name]

    async with Client(server) as client:
        for uri, text in (("data://all", "all of async_generator"), ("data://one/a", "a of generator")):
            (content,) = (await client.read(uri)).contents
            assert isinstance(content, TextContents)
            assert content.text == text
        assert [each.name for each in (await client.prompts())[0].arguments or ()] == ["topic"]
        filled = await client.prompt("ask", {"topic": "cats"})
        assert filled.messages[0].content == Text("cats of async_generator")
        assert (await client.complete("ask", "topic", "x")).values == ("xgenerator",)
    assert events.count("close generator") == 2
    assert events.count("close async_generator") == 2


# Ends of a call


@pytest.mark.parametrize("function", [generator, async_generator])
async def test_the_error_of_a_call_is_raised_into_its_dependencies(function: Callable[..., Any]) -> None:
    server = Server("tests")

    @server.tool
    async def fail(db: Any = Depends(function)) -> str:
        raise Failure("no luck")

    async with Client(server) as client:
        with pytest.raises(Failure, match="no luck"):
            await client.call("fail")
    name = function.__name__
    assert events == [f"open {name}", f"{name} saw Failure", f"close {name}"]


async def swallowing() -> AsyncIterator[str]:
    try:
        yield "value"
    except Failure:
        events.append("swallowed")


async def replacing(inner: Annotated[str, Depends(swallowing)]) -> AsyncIterator[str]:
    try:
        yield inner
    except ValueError:
        raise Failure("replaced") from None


async def failing_end() -> AsyncIterator[str]:
    yield "value"
    raise Failure("the commit failed")


async def failing_start(db: Annotated[Db, Depends(generator)]) -> str:
    raise Failure(f"no session with {db.name}")


@pytest.mark.parametrize(
    ("function", "raised", "message"),
    [
        (swallowing, Failure("kept"), "kept"),
        (replacing, ValueError("secret"), "replaced"),
        (failing_end, None, "the commit failed"),
        (failing_start, None, "no session with generator"),
    ],
)
async def test_a_dependency_can_fail_a_call_and_cannot_hide_its_failure(
    function: Callable[..., Any], raised: Exception | None, message: str
) -> None:
    server = Server("tests")

    @server.tool
    async def use(value: Any = Depends(function)) -> str:
        if raised is not None:
            raise raised
        return "fine"

    async with Client(server) as client:
        with pytest.raises(Failure, match=message):
            await client.call("use")
    if function is failing_start:
        assert events == ["open generator", "generator saw Failure", "close generator"]


async def test_a_call_that_runs_again_after_a_question_makes_its_dependencies_again() -> None:
    server = Server("tests")

    @server.tool
    async def order(ctx: Context, db: Annotated[Db, Depends(async_generator)]) -> str:
        events.append("call")
        return f"{await ctx.elicit('How many?', int)} of {db.name}"

    async def answer(question: Any) -> dict[str, Any]:
        return {"value": 2}

    async with Client(server, elicit=answer) as client:
        assert (await client.call("order")).text == "2 of async_generator"
    first, again = ["open async_generator", "call"], ["open async_generator", "call", "close async_generator"]
    assert events == [*first, "async_generator saw CancelledError", "close async_generator", *again]


async def test_a_question_of_a_plain_tool_is_a_signal_in_its_dependencies() -> None:
    server = Server("tests")

    @server.tool
    def order(
        ctx: Context, a: Annotated[Db, Depends(generator)], b: Annotated[Db, Depends(async_generator)]
    ) -> str:
        return f"{ctx.wait(ctx.elicit('How many?', int))} of {a.name}"

    async with Client(server, elicit=lambda question: {"value": 2}) as client:
        assert (await client.call("order")).text == "2 of generator"
    saw = [event for event in events if "saw" in event]
    assert saw == ["async_generator saw Suspended", "generator saw Suspended"]


language: ContextVar[str] = ContextVar("language", default="en")


async def set_language() -> AsyncIterator[None]:
    token = language.set("fr")
    yield
    language.reset(token)


def set_language_in_thread() -> Iterator[None]:
    token = language.set("fr")
    yield
    with pytest.raises(ValueError, match="different Context"):
        language.reset(token)


async def test_an_async_generator_can_set_a_context_variable() -> None:
    server = Server("tests")

    @server.tool
    async def speak(_: Annotated[None, Depends(set_language)]) -> str:
        return language.get()

    @server.tool
    def speak_in_thread(_: Annotated[None, Depends(set_language)]) -> str:
        return language.get()

    @server.tool
    async def default(_: Annotated[None, Depends(set_language_in_thread)]) -> str:
        return language.get()

    async with Client(server) as client:
        found = [(await client.call(name)).text for name in ("speak", "speak_in_thread", "default")]
    assert found == ["fr", "fr", "en"]


async def asking(ctx: Context) -> str:
    return f"async {await ctx.elicit('Which shop?', str)}"


def asking_in_thread(ctx: Context) -> str:
    return f"thread {ctx.wait(ctx.elicit('Which shop?', str))}"


@pytest.mark.parametrize("replay", [True, False])
@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("function", [asking, asking_in_thread])
async def test_a_dependency_can_ask(function: Callable[..., Any], is_async: bool, replay: bool) -> None:
    server = Server("tests")

    async def buy(ctx: Context, shop: Any = Depends(function), db: Any = Depends(generator)) -> str:
        return f"{await ctx.elicit('How many?', int)} from {shop} with {db.name}"

    def buy_in_thread(ctx: Context, shop: Any = Depends(function), db: Any = Depends(generator)) -> str:
        return f"{ctx.wait(ctx.elicit('How many?', int))} from {shop} with {db.name}"

    server.add_tool(buy if is_async else buy_in_thread, name="buy", replay=replay)
    asked: list[str] = []

    async def answer(question: Any) -> dict[str, Any]:
        asked.append(question.message)
        return {"value": "Bakery" if "shop" in question.message else 3}

    async with Client(server, elicit=answer) as client:
        kind = "async" if function is asking else "thread"
        assert (await client.call("buy")).text == f"3 from {kind} Bakery with generator"
        assert asked == ["Which shop?", "How many?"]
    assert events.count("open generator") == events.count("close generator") == (2 if replay else 1)

    async with Client(server, elicit=lambda question: "decline") as client:
        with pytest.raises(Failure, match="declined: Which shop"):
            await client.call("buy")


async def test_a_stream_keeps_its_dependencies_open_until_it_ends() -> None:
    server = Server("tests")

    @server.tool
    async def rows(db: Annotated[Db, Depends(async_generator)]) -> AsyncIterator[str]:
        for number in range(2):
            events.append(f"row {number}")
            yield f"{db.name} {db.is_open}"

    @server.tool
    def rows_in_thread(db: Annotated[Db, Depends(generator)]) -> Iterator[str]:
        for number in range(2):
            events.append(f"row {number}")
            yield f"{db.name} {db.is_open}"

    async with Client(server) as client:
        for tool, name in (("rows", "async_generator"), ("rows_in_thread", "generator")):
            events.clear()
            async with client.stream(tool) as stream:
                parts = [segment.text async for segment in stream]
            assert parts == [f"{name} True"] * 2
            assert events == [f"open {name}", "row 0", "row 1", f"close {name}"]


# Overrides, tasks and mounts


async def fake() -> AsyncIterator[Db]:
    yield Db("fake")
    events.append("end of fake")


async def wrapped(real: Annotated[Db, Depends(generator)]) -> Db:
    return Db(f"wrapped {real.name}")


async def test_an_override_replaces_a_dependency_everywhere_until_it_is_removed() -> None:
    server = Server("tests")
    server.add_tool(report)
    async with Client(server) as client:
        server.dependency_overrides[generator] = fake
        assert server.dependency_overrides[generator] is fake
        assert (await client.call("report", title="a")).text == "a: nobody of fake nobody fake"
        server.dependency_overrides.update({generator: wrapped})
        text = (await client.call("report", title="a")).text
        assert text == "a: nobody of wrapped generator nobody wrapped generator"
        server.dependency_overrides.clear()
        assert (await client.call("report", title="a")).text == "a: nobody of generator nobody generator"
    assert events.count("end of fake") == 1


async def text_of(db: Annotated[Db, Depends(coroutine)]) -> Db:
    return Db(f"<{db.name}>")


async def over_text(text: Annotated[Db, Depends(text_of)], other: Annotated[Db, Depends(plain)]) -> Db:
    return Db(f"[{text.name} {other.name}]")


async def test_an_override_that_needs_the_original_has_the_same_value_in_every_order() -> None:
    server = Server("tests")
    Over, OfText = Annotated[Db, Depends(coroutine)], Annotated[Db, Depends(text_of)]
    Other = Annotated[Db, Depends(plain)]

    async def first(over: Any, text: Any, other: Any) -> list[str]:
        return [over.name, text.name, other.name]

    async def second(text: Any, other: Any, over: Any) -> list[str]:
        return [over.name, text.name, other.name]

    for function in (first, second):
        function.__annotations__ |= {"over": Over, "text": OfText, "other": Other}
        server.add_tool(function)
    server.dependency_overrides = {coroutine: over_text}
    async with Client(server) as client:
        for tool in ("first", "second"):
            events.clear()
            found = (await client.call(tool)).data
            assert found == ["[<coroutine> plain]", "<[<coroutine> plain]>", "plain"]
            assert len(events) == len(set(events)), "each is made once"


def test_all_overrides_are_replaced_at_once() -> None:
    server = Server("tests")
    server.dependency_overrides[generator] = fake
    wrong: Any
    for wrong in ({generator: 1}, None, [generator]):
        with pytest.raises(DefinitionError):
            server.dependency_overrides = wrong
        assert dict(server.dependency_overrides) == {generator: fake}
    server.dependency_overrides = {}
    assert not server.dependency_overrides


async def test_a_mounted_server_has_its_own_overrides_and_lifespan() -> None:
    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[dict[str, str]]:
        yield {"user": server.name}

    inner, outer = Server("inner", lifespan=lifespan), Server("outer", lifespan=lifespan)
    inner.add_tool(report)
    inner.dependency_overrides[generator] = fake
    outer.mount("shop", inner)
    outer.add_tool(report)
    async with Client(outer) as client:
        assert (await client.call("shop_report", title="a")).text == "a: inner of fake inner fake"
        assert (await client.call("report", title="a")).text == "a: outer of generator outer generator"


async def who(ctx: Context, db: Annotated[Db, Depends(async_generator)]) -> Principal:
    return Principal(f"{db.name} {ctx.request_id}")


async def test_a_task_makes_its_dependencies_where_it_runs_and_closes_them_at_questions() -> None:
    server = Server("tests")

    @server.tool(task="required")
    async def promised(ctx: Context, caller: Annotated[Principal, Depends(who)]) -> str:
        return f"{await ctx.elicit('Sure?', bool)} {caller.id.partition(' ')[0]}"

    async def answer(question: Any) -> dict[str, Any]:
        assert events[-1] == "close async_generator", "nothing is open while a task waits"
        return {"value": True}

    async with Client(server, elicit=answer) as client:
        assert (await client.call("promised")).text == "True async_generator"
    assert events.count("open async_generator") == events.count("close async_generator") == 2


async def test_a_task_makes_its_dependencies_at_the_server_that_runs_it(tmp_path: Path) -> None:
    front, worker = (Server("tests", store=f"sqlite:///{tmp_path}/tasks.db") for _ in range(2))
    for server, override in ((front, fake), (worker, wrapped)):
        server.add_tool(report, task="required")
        server.dependency_overrides[generator] = override
    front.configure(run_tasks=False)
    async with worker.running(), Client(front) as client:
        text = (await client.call("report", title="a")).text
    assert text == "a: nobody of wrapped generator nobody wrapped generator"
    assert "open fake" not in events


async def test_an_error_of_a_dependency_that_is_for_the_caller_reaches_the_caller() -> None:
    server = Server("tests")

    def refuse() -> None:
        raise RequestError("The account is closed.", code=-32042)

    @server.tool
    async def use(account: None = Depends(refuse)) -> str:
        return "never"

    async with Client(server) as client:
        with pytest.raises(RequestError, match="The account is closed") as caught:
            await client.call("use")
        assert caught.value.code == -32042
