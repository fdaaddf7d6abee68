"""Middleware sees every request, can refuse or answer it, and sees how it ended."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest

from antiphon import (
    Client,
    Context,
    DefinitionError,
    Failure,
    Forbidden,
    Limits,
    Principal,
    RateLimited,
    RequestError,
    Result,
    Server,
)
from antiphon.middleware import AuditLog, CallNext, IncomingRequest, RateLimit
from antiphon.model.request import CallTool, ListTools, ReadResource
from tests.support.memory import in_memory
from tests.support.polling import until
from tests.support.serving import serving
from tests.support.speakers import Bare, Modern


class Recorder:
    """Middleware that records requests and outcomes."""

    def __init__(self, name: str = "recorder", log: list[Any] | None = None) -> None:
        self.name = name
        self.log: list[Any] = [] if log is None else log

    async def __call__(self, incoming: IncomingRequest, call_next: CallNext) -> Any:
        self.log.append((self.name, "before", type(incoming.request).__name__))
        try:
            outcome = await call_next()
        except RequestError as error:
            self.log.append((self.name, "raised", type(error).__name__))
            raise
        self.log.append((self.name, "after", type(outcome).__name__))
        return outcome


def make(*middleware: Any, **options: Any) -> Server:
    server = Server("tests", middleware=middleware, **options)

    @server.tool
    async def add(a: int, b: int) -> str:
        return str(a + b)

    @server.tool
    async def ask(ctx: Context) -> str:
        return await ctx.elicit("Who?", str, key="who")

    @server.tool
    async def fail() -> str:
        raise Failure("It does not work.")

    @server.resource("note://one")
    async def note() -> str:
        return "a note"

    return server


CALL = {"name": "add", "arguments": {"a": 1, "b": 2}}


async def test_middleware_is_around_every_request_the_first_outermost() -> None:
    log: list[Any] = []
    async with in_memory(make(Recorder("outer", log), Recorder("inner", log))) as client:
        assert (await client.result("tools/call", CALL, meta={}))["content"][0]["text"] == "3"
    assert log == [
        ("outer", "before", "CallTool"),
        ("inner", "before", "CallTool"),
        ("inner", "after", "Result"),
        ("outer", "after", "Result"),
    ]


async def test_it_sees_the_request_the_principal_and_the_client() -> None:
    seen: list[IncomingRequest] = []

    async def look(incoming: IncomingRequest, call_next: CallNext) -> Any:
        seen.append(incoming)
        return await call_next()

    server = make(look, authenticate=lambda headers: Principal("ada"))
    async with serving(server) as address, Client(address.url, name="looker") as client:
        await client.call("add", CALL["arguments"], meta={"com.example/x": 1})
        await client.read("note://one")
    call, read = seen[-2:]
    assert isinstance(call.request, CallTool)
    assert (call.request.name, call.request.arguments) == ("add", {"a": 1, "b": 2})
    assert (call.principal.id, call.meta["com.example/x"]) == ("ada", 1)
    assert call.client is not None
    assert call.client.name == "looker"
    assert isinstance(read.request, ReadResource)
    assert read.request.uri == "note://one"


async def test_it_sees_an_error_and_what_a_call_asks() -> None:
    recorder = Recorder()
    async with serving(make(recorder)) as address:
        client = Modern(address.port)
        client.capabilities = {"elicitation": {"form": {}}}
        await client.ask("tools/call", {"name": "nothing"})
        await client.ask("tools/call", {"name": "ask", "arguments": {}})
    assert recorder.log[1] == ("recorder", "raised", "NotFound")
    assert recorder.log[3] == ("recorder", "after", "InputRequired")


async def test_it_can_refuse_a_request() -> None:
    async def only_lists(incoming: IncomingRequest, call_next: CallNext) -> Any:
        if not isinstance(incoming.request, ListTools):
            raise Forbidden("Only lists are served here.")
        return await call_next()

    async with serving(make(only_lists)) as address:
        refused = await Bare(address.port).ask("tools/call", CALL)
        listed = await Bare(address.port).ask("tools/list")
    assert refused.frame["error"]["message"] == "Only lists are served here."
    assert {tool["name"] for tool in listed.result["tools"]} == {"add", "ask", "fail"}


async def test_it_can_answer_in_place_of_the_handler() -> None:
    async def cached(incoming: IncomingRequest, call_next: CallNext) -> Any:
        return Result("from the cache") if isinstance(incoming.request, CallTool) else await call_next()

    async with in_memory(make(cached)) as client:
        answered = await client.result("tools/call", {"name": "fail"}, meta={})
    assert answered["content"] == [{"type": "text", "text": "from the cache"}]


async def test_an_exception_in_middleware_is_an_internal_error(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(incoming: IncomingRequest, call_next: CallNext) -> Any:
        raise ValueError("a mistake")

    async with serving(make(broken)) as address:
        answer = await Bare(address.port).ask("tools/call", CALL)
    assert answer.frame["error"]["code"] == -32603
    assert "a mistake" not in answer.frame["error"]["message"]
    assert "a mistake" in caplog.text


async def test_a_server_without_middleware_has_the_handler_itself() -> None:
    plain = make()
    assert plain.engine.handle == plain.engine.dispatcher.handle


# The rate limit


class Clock:
    """A clock that the test advances."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def by_user(headers: Any) -> Principal:
    return Principal(headers.get("x-user", "nobody"))


async def test_a_caller_over_its_rate_gets_429_and_others_do_not() -> None:
    clock = Clock()
    server = make(RateLimit(0.5, burst=2, clock=clock), authenticate=by_user)
    async with serving(server) as address:
        ada, bob = Bare(address.port), Bare(address.port)
        ada.headers["x-user"], bob.headers["x-user"] = "ada", "bob"
        assert [(await ada.ask("tools/call", CALL)).status for _ in range(3)] == [200, 200, 429]
        refused = await ada.ask("tools/call", CALL)
        assert refused.headers["retry-after"] == "2"
        assert refused.frame["error"]["message"].endswith("Try again in 2 s.")
        assert refused.frame["id"] == 1
        assert (await bob.ask("tools/call", CALL)).status == 200
        clock.now += 2.0
        assert (await ada.ask("tools/call", CALL)).status == 200
        assert (await ada.ask("tools/call", CALL)).status == 429


@pytest.mark.parametrize("protocol", ["2026-07-28", "2025-11-25"])
async def test_a_client_gets_an_error_that_says_when_to_try_again(protocol: str) -> None:
    calls = RateLimit(0.1, burst=1, key=lambda incoming: type(incoming.request).__name__)
    server = make(calls)
    async with serving(server) as address, Client(address.url, protocol=protocol) as client:
        await client.call("add", CALL["arguments"])
        with pytest.raises(RequestError, match="Try again in"):
            await client.call("add", CALL["arguments"])


async def test_on_a_connection_without_http_it_is_a_json_rpc_error() -> None:
    async with in_memory(make(RateLimit(0.1, burst=1))) as client:
        await client.result("tools/call", CALL, meta={})
        error = await client.error("tools/call", CALL, meta={})
    assert error["code"] == RateLimited.code
    assert "Too many requests" in error["message"]


async def test_buckets_are_bounded() -> None:
    limit = RateLimit(1.0, burst=1, max_callers=10, clock=Clock())
    for number in range(100):
        limit.take(f"caller {number}")
    for number in range(90, 100):
        with pytest.raises(RateLimited):
            limit.take(f"caller {number}")
    limit.take("caller 89")  # the first of those that are forgotten


@pytest.mark.parametrize(
    "options", [{"rate": 0}, {"rate": -1}, {"rate": 1, "burst": 0}, {"rate": 1, "max_callers": 0}]
)
def test_a_limit_that_allows_nothing_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError, match="greater than zero"):
        RateLimit(**options)


# The audit log


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [json.loads(record.message) for record in caplog.records if record.name == "antiphon.audit"]


async def test_every_request_is_logged_with_its_caller_and_its_outcome(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "antiphon.audit")
    server = make(AuditLog(), authenticate=by_user)
    async with serving(server) as address:
        client = Bare(address.port)
        client.headers["x-user"] = "ada"
        await client.ask("ping")
        await client.ask("tools/call", CALL)
        await client.ask("tools/call", {"name": "fail"})
        await client.ask("tools/call", {"name": "ask"})
        await client.ask("tools/call", {"name": "nothing"})
        await client.ask("resources/read", {"uri": "note://one"})
    logged = lines(caplog)
    assert [(line["request"], line["target"], line["outcome"]) for line in logged] == [
        ("CallTool", "add", "complete"),
        ("CallTool", "fail", "failed"),
        ("CallTool", "ask", "input_required"),
        ("CallTool", "nothing", "error"),
        ("ReadResource", "note://one", "complete"),
    ]
    assert {line["principal"] for line in logged} == {"ada"}
    assert logged[2]["questions"] == ["who"]
    assert logged[3]["code"] == -32602
    assert not any("arguments" in line for line in logged)


async def test_arguments_are_logged_only_if_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "antiphon.audit")
    async with in_memory(make(AuditLog(arguments=True))) as client:
        await client.result("tools/call", CALL, meta={})
    assert lines(caplog)[0]["arguments"] == {"a": 1, "b": 2}


async def test_a_task_and_a_cancelled_call_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "antiphon.audit")
    server, begun = make(AuditLog(), store="memory:"), asyncio.Event()

    @server.tool(task="optional")
    async def work() -> str:
        return "done"

    @server.tool
    async def hang() -> str:
        begun.set()
        await asyncio.Event().wait()
        return "never"

    async with Client(server) as client:
        promise = await client.submit("work")
        await promise.result()
        call = asyncio.create_task(client.call("hang"))
        await begun.wait()
        call.cancel()
        await asyncio.wait({call})
        await until(lambda: "cancelled" in {line["outcome"] for line in lines(caplog)})
    made = next(line for line in lines(caplog) if line["outcome"] == "task")
    assert (made["target"], made["task"]) == ("work", promise.id)


async def test_middleware_that_hangs_is_stopped_at_the_timeout_of_calls() -> None:
    async def hang(incoming: IncomingRequest, call_next: CallNext) -> Any:
        await asyncio.Event().wait()

    limits = Limits(call_timeout=0.2, body_timeout=60.0)
    async with serving(make(hang, limits=limits)) as address:
        answer = await Bare(address.port).ask("tools/call", CALL)
    assert answer.result["isError"] is True
    assert "did not finish within 0.2 seconds" in answer.result["content"][0]["text"]


async def test_a_clock_that_goes_back_takes_no_tokens_away() -> None:
    clock = Clock()
    limit = RateLimit(1.0, burst=2, clock=clock)
    limit.take("ada")
    clock.now -= 3600.0
    limit.take("ada")
    clock.now += 1.0
    limit.take("ada")
    with pytest.raises(RateLimited):
        limit.take("ada")


async def test_a_streamed_call_that_fails_is_logged_as_failed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "antiphon.audit")
    server = make(AuditLog())

    @server.tool
    async def emit(ctx: Context) -> str:
        await ctx.emit("one")
        raise Failure("It does not work.")

    async with serving(server) as address:
        await Bare(address.port).ask("tools/call", {"name": "emit", "arguments": {}, "stream": {}})
    assert [line["outcome"] for line in lines(caplog)] == ["failed"]


async def test_a_line_that_cannot_be_written_does_not_change_the_outcome(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(logging.Handler):
        def handle(self, record: logging.LogRecord) -> bool:
            raise OSError("The disk is full.")

    audit = logging.getLogger("tests.broken_audit")
    audit.setLevel(logging.INFO)
    audit.addHandler(Broken())
    async with in_memory(make(AuditLog(logger=audit))) as client:
        assert (await client.result("tools/call", CALL, meta={}))["content"][0]["text"] == "3"
    assert "The audit line of request 1 cannot be written." in caplog.text
