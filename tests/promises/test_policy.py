"""When a call becomes a task: at once, after `answer_within`, by `ctx.promise()`, or never."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from antiphon import Context, InputRequired, Limits, Server
from antiphon.errors import StoreUnavailable
from antiphon.model.question import Elicit
from antiphon.store.contract import Store
from tests.asking.driving import accept, once
from tests.promises.speaking import Patient, answer, begin, look, reach
from tests.promises.tooling import Name, store_of
from tests.support.polling import until
from tests.support.serving import serving
from tests.support.speakers import Bare, Modern, Speaker

SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


class Watched:
    """A store that records its calls and can be made to fail."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.written: list[str] = []
        self.refused: list[str] = []
        self.failing = False

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        return self._watching(name, found) if name in ("create", "append", "count") else found

    def _watching(self, name: str, method: Any) -> Any:
        async def call(*args: Any, **kwargs: Any) -> Any:
            if self.failing:
                self.refused.append(name)
                raise StoreUnavailable("It is full.")
            self.written.append(name)
            return await method(*args, **kwargs)

        return call


class Turning:
    """A server whose calls become tasks, `within` seconds, with a record of side effects."""

    def __init__(self, store: Store, room: int = 100, within: float = 0.05) -> None:
        self.store = Watched(store)
        self.runs: list[str] = []
        self.gate = asyncio.Event()
        self.server = Server(
            "turning",
            store=self.store,  # type: ignore[arg-type]
            secrets=["a secret of the turning"],
            limits=Limits(max_running_tasks=room, drain_timeout=0.2),
        )
        self._register(self.server, within)

    def _register(self, server: Server, within: float) -> None:
        @server.tool(task="optional", answer_within=within, poll_interval=0.05)
        async def maybe(wait: bool, ctx: Context) -> str:
            """Is quick, or is not."""
            self.runs.append("maybe")
            if wait:
                await self.gate.wait()
                await ctx.step(self.runs.append, "step")
            return "done"

        @server.tool(task="optional", answer_within=float("inf"), poll_interval=0.05)
        async def order(ctx: Context) -> str:
            """Asks, does a step, becomes a task, and asks again."""
            self.runs.append("order")
            what = await ctx.elicit("What?", Name, key="what")
            await ctx.step(self.runs.append, f"took {what.name}")
            await ctx.promise()
            await ctx.promise()
            await self.gate.wait()
            where = await ctx.elicit("Where?", Name, key="where")
            await ctx.step(self.runs.append, f"sent to {where.name}")
            return f"{what.name} to {where.name}"

        @server.tool(task="optional", poll_interval=0.05)
        async def explicit(ctx: Context) -> Any:
            """Asks in the explicit style, one question after the other."""
            got: list[str] = ctx.state or []
            for key in ("one", "two"):
                if key in ctx.input_responses:
                    got = [*got, f"{key}={ctx.input_responses[key]['content']['name']}"]
                    break
            if len(got) == 2:
                return " ".join(got)
            return InputRequired({("one", "two")[len(got)]: Elicit("Which?", SCHEMA)}, state=got)

        @server.tool(task="optional", poll_interval=0.05)
        async def simple(ctx: Context) -> str:
            """Asks one thing."""
            return (await ctx.elicit("Who?", Name, key="who")).name


@pytest.fixture
def turning(kind: str, tmp_path: Path) -> Turning:
    """The server, before it is started."""
    return Turning(store_of(kind, tmp_path))


@asynccontextmanager
async def behind(turning: Turning) -> AsyncIterator[int]:
    async with serving(turning.server) as address:
        try:
            yield address.port
        finally:
            turning.gate.set()


def of(dialect: str, port: int) -> Speaker:
    return Patient(port) if dialect == "2026-07-28" else Bare(port)


def wish(client: Speaker) -> dict[str, Any]:
    return {} if isinstance(client, Modern) else {"task": {"ttl": 60_000}}


dialects = pytest.mark.parametrize("dialect", ["draft", "2026-07-28"])


@dialects
async def test_one_that_is_done_in_time_is_an_answer_and_the_store_is_never_touched(
    kind: str, tmp_path: Path, dialect: str
) -> None:
    turning = Turning(store_of(kind, tmp_path), within=600)
    async with behind(turning) as port:
        client = of(dialect, port)
        params = {"name": "maybe", "arguments": {"wait": False}, **wish(client)}
        answered = await client.ask("tools/call", params)
        assert answered.text == "done"
        assert answered.result["resultType"] == "complete"
    assert turning.runs == ["maybe"]
    assert turning.store.written == []


@dialects
async def test_one_that_is_not_is_a_promise_and_its_function_runs_on(turning: Turning, dialect: str) -> None:
    async with behind(turning) as port:
        client = of(dialect, port)
        task = await begin(client, "maybe", wait=True)
        assert (await look(client, task["taskId"]))["status"] == "working"
        turning.gate.set()
        await reach(client, task["taskId"], "completed")
    assert turning.runs == ["maybe", "step"]
    assert turning.store.written.count("create") == 1


async def test_a_caller_that_takes_no_promises_gets_an_answer_however_long_it_takes(turning: Turning) -> None:
    async with behind(turning) as port:
        calls = [
            asyncio.create_task(client.call("maybe", wait=True)) for client in (Bare(port), Modern(port))
        ]
        await until(lambda: len(turning.runs) == 2)
        # A later caller has got its promise: so for these, too, the time is over.
        assert (await begin(Patient(port), "maybe", wait=True))["status"] == "working"
        assert not any(call.done() for call in calls)
        turning.gate.set()
        assert [(await call).text for call in calls] == ["done", "done"]
    assert turning.store.written.count("create") == 1


@dialects
async def test_what_was_asked_by_rounds_moves_into_the_task(turning: Turning, dialect: str) -> None:
    async with behind(turning) as port:
        client = of(dialect, port)
        params = {"name": "order", "arguments": {}, **wish(client)}
        asked = (await client.ask("tools/call", params)).result
        assert list(asked["inputRequests"]) == ["what"]
        assert turning.store.written == []
        params["inputResponses"] = {"what": accept(name="tea")}
        if "requestState" in asked:
            params["requestState"] = asked["requestState"]
        promised = (await client.ask("tools/call", params)).result
        task = promised.get("task", promised)
        assert task["status"] == "working"
        assert turning.runs == ["order", "order", "took tea"]
        turning.gate.set()
        await reach(client, task["taskId"], "input_required")
        await answer(client, task["taskId"], where="Oslo")
        await reach(client, task["taskId"], "completed")
        assert turning.runs == ["order", "order", "took tea", "order", "sent to Oslo"]
        if isinstance(client, Patient):
            text = (await look(client, task["taskId"]))["result"]["content"][0]["text"]
        else:
            text = (await client.ask("tasks/result", {"taskId": task["taskId"]})).text
        assert text == "tea to Oslo"


async def test_without_a_wish_for_a_task_ctx_promise_does_nothing(turning: Turning) -> None:
    turning.gate.set()
    async with behind(turning) as port:
        client = Bare(port)
        frame = await once(client, "order", answers={"what": accept(name="tea")})
        assert list(frame["result"]["inputRequests"]) == ["where"]
        state = frame["result"]["requestState"]
        frame = await once(client, "order", answers={"where": accept(name="Oslo")}, state=state)
        assert frame["result"]["content"][0]["text"] == "tea to Oslo"
    assert turning.store.written == []


async def test_a_call_that_was_asked_without_a_task_can_go_on_as_one(turning: Turning) -> None:
    async with behind(turning) as port:
        client = Bare(port)
        asked = (await once(client, "simple"))["result"]
        assert list(asked["inputRequests"]) == ["who"]
        params = {"name": "simple", "task": {}, "inputResponses": {"who": accept(name="Ada")}}
        id = (await client.ask("tools/call", params)).result["task"]["taskId"]
        assert (await client.ask("tasks/result", {"taskId": id})).text == "Ada"


async def test_what_a_call_brought_along_is_there_however_late_its_task_begins(
    kind: str, tmp_path: Path
) -> None:
    turning = Turning(store_of(kind, tmp_path), room=1)
    async with behind(turning) as port:
        client = Bare(port)
        await begin(client, "maybe", wait=True)  # there is no room for another one
        params = {"name": "simple", "task": {}, "inputResponses": {"who": accept(name="Ada")}}
        id = (await client.ask("tools/call", params)).result["task"]["taskId"]
        turning.gate.set()
        assert (await client.ask("tasks/result", {"taskId": id})).text == "Ada"


async def test_the_explicit_style_works_in_tasks_too(turning: Turning) -> None:
    async with behind(turning) as port:
        for client in (Bare(port), Patient(port)):
            id = (await begin(client, "explicit"))["taskId"]
            for key, name in (("one", "a"), ("two", "b")):
                await reach(client, id, "input_required")
                await answer(client, id, **{key: name})
                await until_not_asking(client, id, key)
            await reach(client, id, "completed")
            assert (await Bare(port).ask("tasks/result", {"taskId": id})).text == "one=a two=b"


async def until_not_asking(client: Speaker, id: str, key: str) -> None:
    async def is_not_asked() -> bool:
        result = (await Bare(client.port).ask("tasks/result", {"taskId": id})).result
        return key not in result.get("inputRequests", {})

    await until(is_not_asked)


async def test_a_store_that_fails_makes_an_answer_of_what_would_have_been_a_promise(turning: Turning) -> None:
    async with behind(turning) as port:
        client = Patient(port)
        turning.store.failing = True
        slow = asyncio.create_task(client.call("maybe", wait=True))
        await until(lambda: turning.runs == ["maybe"])
        await until(lambda: turning.store.refused)  # the time is over, and there is no task
        assert not slow.done()
        turning.gate.set()
        assert (await slow).text == "done"
        params: dict[str, Any] = {"name": "order", "inputResponses": {"what": accept(name="tea")}}
        asked = (await client.ask("tools/call", params)).result  # ctx.promise() cannot be, and goes on
        assert list(asked["inputRequests"]) == ["where"]
    assert turning.runs == ["maybe", "step", "order", "took tea"]
