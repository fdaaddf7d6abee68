"""A server's lifespan, and the places where its app can be mounted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import Mount

from antiphon import Context, Limits, Server
from antiphon.errors import StoreUnavailable
from tests.support.memory import in_memory
from tests.support.polling import forever, until
from tests.support.serving import serving
from tests.support.speakers import DIALECTS, Modern, Session, speaker


class RecordedServer:
    """A server that records when its lifespan opened and closed."""

    def __init__(self, fails: str = "", store: str | None = None) -> None:
        self.events: list[str] = []
        self.fails = fails
        self.task: asyncio.Task[Any] | None = None
        self.server = Server("tests", lifespan=self.lifespan, store=store)
        self.server.add_tool(self.look)

    @asynccontextmanager
    async def lifespan(self, server: Server) -> AsyncIterator[dict[str, str]]:
        self.task = asyncio.current_task()
        self.events.append("open")
        if self.fails == "open":
            raise RuntimeError("no database")
        yield {"database": "there"}
        assert asyncio.current_task() is self.task, "it closes where it was opened"
        self.events.append("close")

    async def look(self, ctx: Context) -> str:
        self.events.append("call")
        return str(ctx.lifespan["database"])


async def test_the_lifespan_opens_before_and_closes_after_everything() -> None:
    recorded = RecordedServer()
    async with serving(recorded.server) as where:
        assert recorded.events == ["open"]
        for _ in range(2):
            assert (await Modern(where.port).call("look")).text == "there"
    assert recorded.events == ["open", "call", "call", "close"]


async def test_the_lifespan_closes_when_the_store_cannot_be_opened(tmp_path: Path) -> None:
    recorded = RecordedServer(store=f"sqlite:///{tmp_path}")  # a directory is no file
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            async with recorded.server.running():
                raise AssertionError("it does not run")
    assert recorded.events == ["open", "close"] * 2


async def test_without_lifespan_events_it_opens_with_the_first_request() -> None:
    recorded = RecordedServer()
    async with serving(recorded.server, lifespan="off") as where:
        assert recorded.events == []
        calls = await asyncio.gather(*(Modern(where.port).call("look") for _ in range(10)))
        assert [call.text for call in calls] == ["there"] * 10
        assert recorded.events == ["open", *["call"] * 10]
        await where.app.shutdown()
    assert recorded.events[-1] == "close"


async def test_a_lifespan_that_fails_stops_the_start(caplog: pytest.LogCaptureFixture) -> None:
    recorded = RecordedServer(fails="open")
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "lifespan.startup"}

    async def send(message: Any) -> None:
        sent.append(message)

    await recorded.server.asgi()({"type": "lifespan"}, receive, send)
    assert [message["type"] for message in sent] == ["lifespan.startup.failed"]
    assert "no database" in sent[0]["message"]
    assert "lifespan failed" in caplog.text


async def test_a_lifespan_that_fails_with_the_first_request_is_tried_again() -> None:
    recorded = RecordedServer(fails="open")
    async with serving(recorded.server, lifespan="off") as where:
        response = await Modern(where.port).call("look")
        assert (response.status, response.error["code"]) == (500, -32603)
        assert b"database" not in response.body
        recorded.fails = ""
        assert (await Modern(where.port).call("look")).text == "there"
        await where.app.shutdown()
    assert recorded.events == ["open", "open", "call", "close"]


async def test_two_transports_share_one_lifespan() -> None:
    recorded = RecordedServer()
    async with in_memory(recorded.server) as client, serving(recorded.server) as where:
        assert await client.text("look") == "there"
        assert (await Modern(where.port).call("look")).text == "there"
    assert recorded.events == ["open", "call", "call", "close"]


async def test_a_server_can_be_started_again() -> None:
    recorded = RecordedServer()
    for _ in range(2):
        async with serving(recorded.server) as where:
            session = Session(where.port)
            await session.open()
            async with session.listening() as connection:
                await connection.receive_head()
                recorded.server.notify_resource_updated("u://x")
                await session.ask("ping")
                await session.end()
    assert recorded.events == ["open", "close"] * 2


def in_starlette(app: Any, path: str) -> Any:
    return Starlette(routes=[Mount(path, app=app)])


def in_fastapi(app: Any, path: str) -> Any:
    outer = FastAPI()

    @outer.get("/health")
    async def health() -> str:
        return "well"

    outer.mount(path, app)
    return outer


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("mounted", [in_starlette, in_fastapi])
@pytest.mark.parametrize(
    ("mount", "path"), [("/mcp", "/mcp/"), ("/", "/mcp"), ("/a/b", "/a/b/mcp"), ("/a", "/a/")]
)
async def test_a_mounted_app_works_without_lifespan_events(
    dialect: str, mounted: Any, mount: str, path: str
) -> None:
    recorded = RecordedServer()
    app = recorded.server.asgi()
    async with serving(mounted(app, mount)) as where:
        asker = await speaker(dialect, where.port, path=path)
        assert (await asker.call("look")).text == "there"
        if isinstance(asker, Session):
            async with asker.listening() as connection:
                assert (await connection.receive_head()).status == 200
                await asker.end()
        await app.shutdown()
    assert recorded.events == ["open", "call", "close"]


async def test_shutting_down_waits_for_calls_and_ends_listeners() -> None:
    server = Server("tests")
    release, running = asyncio.Event(), asyncio.Event()

    @server.tool
    async def wait() -> str:
        running.set()
        await release.wait()
        return "done"

    async with serving(server) as where:
        session, asker = Session(where.port), Modern(where.port)
        await session.open()
        async with session.listening() as connection:
            await connection.receive_head()
            call = asyncio.create_task(asker.call("wait"))
            await running.wait()
            shutdown = asyncio.create_task(where.app.shutdown())
            assert [event async for event in connection.events() if not event.comment] == []
            await until(lambda: where.under_way == 1)
            assert not shutdown.done()
            release.set()
            assert (await call).text == "done"
            await shutdown


async def test_calls_that_do_not_end_are_stopped_at_the_end_of_the_drain(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = Server("tests", limits=Limits(drain_timeout=0.2))
    seen: list[str] = []

    @server.tool
    async def wait() -> str:
        seen.append("running")
        try:
            await forever()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise
        return "never"

    async with serving(server) as where:
        asker = Modern(where.port)
        async with asker.asking("tools/call", asker.tool_call("wait")) as connection:
            await until(lambda: seen)
            await where.app.shutdown()
            await until(lambda: seen == ["running", "cancelled"])
            connection.vanish()
    assert "Stopping 1 calls that did not finish within Limits.drain_timeout" in caplog.text
