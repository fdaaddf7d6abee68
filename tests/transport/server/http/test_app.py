"""The ASGI app, as an ASGI server sees it: the messages it sends, and the errors it raises."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, MutableMapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from antiphon import Limits, Server
from antiphon.runtime.tasks.worker import Worker
from antiphon.testing import Clock
from antiphon.transport.server.http.probes import ProbeApp
from tests.support.polling import turns, until

Message = MutableMapping[str, Any]


class Runner:
    """Plays the ASGI server: passes messages to the app, and records the messages that it sends."""

    def __init__(self, *messages: Message, fails_at: str = "") -> None:
        self.sent: list[Message] = []
        self.asked = asyncio.Event()
        self._messages = list(messages)
        self._fails_at = fails_at

    async def receive(self) -> Message:
        self.asked.set()
        if not self._messages:
            await asyncio.Event().wait()
        return self._messages.pop(0)

    async def send(self, message: Message) -> None:
        if message["type"] == self._fails_at:
            raise OSError("the caller is gone")
        self.sent.append(message)

    @property
    def status(self) -> int:
        """The status of the response."""
        return int(self.sent[0]["status"])

    @property
    def body(self) -> Any:
        """The body of the response."""
        return json.loads(b"".join(message.get("body", b"") for message in self.sent[1:]))


def scope(method: str = "POST", path: str = "/mcp", **headers: str) -> dict[str, Any]:
    lines = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return {"type": "http", "method": method, "path": path, "headers": lines, "server": ("127.0.0.1", 80)}


def posted(method: str, **fields: Any) -> Message:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, **fields}
    return {"type": "http.request", "body": json.dumps(body).encode()}


async def test_a_websocket_is_closed_at_once() -> None:
    runner = Runner({"type": "websocket.connect"})
    await Server("tests").asgi()({"type": "websocket"}, runner.receive, runner.send)
    assert runner.sent == [{"type": "websocket.close", "code": 1003}]


async def test_an_error_while_sending_is_raised_and_nothing_more_is_sent() -> None:
    runner = Runner(posted("ping"), fails_at="http.response.start")
    with pytest.raises(OSError, match="the caller is gone"):
        await Server("tests").asgi()(scope(), runner.receive, runner.send)
    assert runner.sent == []


async def test_a_request_that_is_incomplete_at_shutdown_gets_an_error() -> None:
    app = Server("tests", limits=Limits(drain_timeout=0)).asgi()
    runner = Runner({"type": "http.request", "body": b'{"jsonrpc":', "more_body": True})
    serving = asyncio.create_task(app(scope(), runner.receive, runner.send))
    await runner.asked.wait()
    await app.shutdown()
    await serving
    assert runner.status == 503
    assert "id" not in runner.body
    assert "The server shut down before it finished this request." in runner.body["error"]["message"]


async def test_calls_and_tasks_share_one_drain(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server("tests", store="memory:", limits=Limits(drain_timeout=0.2))
    left: list[float] = []

    @server.tool
    async def hold() -> None:
        await asyncio.Event().wait()

    async def stop(worker: Worker, *, within: float) -> None:
        left.append(within)

    monkeypatch.setattr(Worker, "stop", stop)
    app = server.asgi()
    runner = Runner(posted("tools/call", params={"name": "hold", "arguments": {}}))
    serving = asyncio.create_task(app(scope(), runner.receive, runner.send))
    await runner.asked.wait()
    await app.shutdown()
    await serving
    assert runner.status == 503
    assert left == [0.0]  # the call has used up the time of both


async def test_a_server_that_is_asked_to_stop_claims_no_task_and_serves_requests() -> None:
    server = Server("tests", store="memory:")
    ran: list[str] = []

    @server.tool(task="required")
    async def work() -> None:
        ran.append("here")

    app = server.asgi()
    async with server.running():
        app.announce_shutdown()
        runner = Runner(posted("tools/call", params={"name": "work", "arguments": {}, "task": {}}))
        await app(scope(), runner.receive, runner.send)
        assert runner.body["result"]["task"]["status"] == "working"
        with Clock(server) as clock:
            await clock.settle()
        assert ran == []
        assert not app.is_ready


async def test_a_call_that_the_host_stops_at_its_shutdown_gets_an_error() -> None:
    server = Server("tests")

    @server.tool
    async def hold() -> None:
        await asyncio.Event().wait()

    for message, answered in (("Task cancelled, timeout graceful shutdown exceeded", True), (None, False)):
        runner = Runner(posted("tools/call", params={"name": "hold", "arguments": {}}))
        serving = asyncio.create_task(server.asgi()(scope(), runner.receive, runner.send))
        await runner.asked.wait()
        await turns()
        serving.cancel(message)
        await asyncio.wait({serving})
        assert (serving.cancelled(), bool(runner.sent)) == (not answered, answered)
        if answered:
            assert (runner.status, runner.body["id"]) == (503, 1)


async def test_an_answer_to_a_task_counts_as_a_call() -> None:
    related = {"io.modelcontextprotocol/related-task": {"taskId": "t1"}}
    answer = {"jsonrpc": "2.0", "id": 7, "result": {"action": "cancel", "_meta": related}}
    runner = Runner({"type": "http.request", "body": json.dumps(answer).encode()})
    await Server("tests", store="memory:", limits=Limits(max_calls=0)).asgi()(
        scope(), runner.receive, runner.send
    )
    assert runner.status == 503
    assert "limit of calls" in runner.body["error"]["message"]


# The lifespan


async def test_an_unavailable_store_stops_the_start_and_is_logged_without_a_traceback(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server("tests", store=f"sqlite:///{tmp_path}/none/tasks.db")

    @server.tool(task="optional")
    async def slow() -> str:
        return "done"

    app = server.asgi()
    runner = Runner({"type": "lifespan.startup"})
    with caplog.at_level(logging.ERROR, "antiphon"):
        await app({"type": "lifespan"}, runner.receive, runner.send)
    (failed,) = runner.sent
    assert failed["type"] == "lifespan.startup.failed"
    assert "make it first" in failed["message"]
    (line,) = [record for record in caplog.records if "cannot start" in record.getMessage()]
    assert "make it first" in line.getMessage()
    assert line.exc_info is None
    assert app.failure is not None


async def test_an_error_at_the_end_of_the_lifespan_is_raised() -> None:
    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[None]:
        yield
        raise RuntimeError("the database did not close")

    runner = Runner({"type": "lifespan.startup"}, {"type": "lifespan.shutdown"})
    app = Server("tests", lifespan=lifespan).asgi()
    with pytest.raises(RuntimeError, match="did not close"):
        await app({"type": "lifespan"}, runner.receive, runner.send)
    assert [message["type"] for message in runner.sent] == ["lifespan.startup.complete"]


# Probes


async def probe(probes: ProbeApp, method: str, path: str) -> Runner:
    runner = Runner()
    await probes(scope(method, path), runner.receive, runner.send)
    return runner


@pytest.mark.parametrize(
    ("is_ready", "status"), [(lambda: True, 200), (lambda: False, 503)], ids=["ready", "leaving"]
)
async def test_readiness_without_a_store_does_not_mention_one(
    is_ready: Callable[[], bool], status: int
) -> None:
    runner = await probe(ProbeApp(Server("tests").engine, is_ready), "GET", "/readyz")
    assert runner.status == status
    assert runner.body == {"ready": status == 200}


@pytest.mark.parametrize(("method", "path"), [("GET", "/mcp"), ("POST", "/mcp"), ("GET", "/")])
async def test_a_probe_app_serves_no_other_path(method: str, path: str) -> None:
    runner = await probe(ProbeApp(Server("tests").engine, lambda: True), method, path)
    assert runner.status == 404
    assert runner.sent[1]["body"] == b"not found\n"


async def test_a_probe_allows_only_get() -> None:
    runner = await probe(ProbeApp(Server("tests").engine, lambda: True), "POST", "/healthz")
    assert runner.status == 405
    assert (b"allow", b"GET") in runner.sent[0]["headers"]


async def test_cancelling_the_app_cancels_the_call() -> None:
    server, begun = Server("tests"), asyncio.Event()

    @server.tool
    async def wait() -> str:
        begun.set()
        await asyncio.Event().wait()
        return "never"

    app = server.asgi()
    runner = Runner(posted("tools/call", params={"name": "wait"}))
    serving = asyncio.create_task(app(scope(), runner.receive, runner.send))
    await begun.wait()
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    await until(lambda: not len(app.endpoint.supervisor))
    assert runner.sent == []
    await app.shutdown()
