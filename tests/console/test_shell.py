"""The frame of the console over HTTP: sign-in, files, and the API that every page needs."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from typing import Any

import aiohttp
import pytest
from yarl import URL

from antiphon import HttpResponse
from antiphon.console.live import Live
from antiphon.console.routes import ConsoleRequest, EventStream, Problem, Route
from antiphon.console.sources import Sources
from antiphon.errors import InvalidParams, StoreUnavailable
from tests.console.support import serving_console
from tests.support.polling import until


class Sample:
    """A part of the console that shows what routes can do."""

    def __init__(self, sources: Sources, live: Live) -> None:
        self.live = live
        self.is_open = False
        self.watching = 0

    async def open(self) -> None:
        self.is_open = True
        self.live.watch("tasks", self._watch)

    async def close(self) -> None:
        self.is_open = False

    def routes(self) -> Sequence[Route]:
        return [
            Route("GET", "/api/echo/{first}/{second}", self._echo),
            Route("POST", "/api/echo/{first}/{second}", self._echo, writes=True),
            Route("GET", "/api/fail/{how}", self._fail),
            Route("GET", "/api/stream", self._stream),
            Route("GET", "/api/response", self._response),
        ]

    async def _echo(self, request: ConsoleRequest) -> Any:
        body = await request.json() if request.method == "POST" else None
        return {"params": dict(request.params), "query": request.query, "body": body}

    async def _fail(self, request: ConsoleRequest) -> Any:
        raise {
            "problem": Problem(409, "Taken.", {"name": "Choose another one."}),
            "request": InvalidParams("The amount is negative."),
            "store": StoreUnavailable("the disk is full"),
            "mistake": RuntimeError("a secret of the server"),
        }[request.params["how"]]

    async def _stream(self, request: ConsoleRequest) -> Any:
        async def events() -> AsyncIterator[tuple[str, Any]]:
            yield "part", {"text": "line\nline"}
            raise Problem(410, "The task is gone.")

        return EventStream(events())

    async def _response(self, request: ConsoleRequest) -> Any:
        return HttpResponse("plain", headers={"x-part": "1"})

    async def _watch(self) -> AsyncIterator[None]:
        self.watching += 1
        try:
            await asyncio.Event().wait()
            yield
        finally:
            self.watching -= 1


def part_of(console: Any) -> Sample:
    [part] = console.app.features
    assert isinstance(part, Sample)
    return part


def features(sources: Sources, live: Live) -> Sequence[Sample]:
    return [Sample(sources, live)]


async def test_the_session_says_who_looks() -> None:
    async with serving_console(read_only=True) as console:
        session = await console.get("/api/session")
        assert session["user"] == {
            "name": "tester",
            "role": "You see and change everybody’s tasks. This console is read-only.",
            "isLocal": True,
        }
        assert session["mayOperate"]
        assert not session["mayWrite"]
        assert not session["addsServers"]


async def test_the_segments_of_a_path_are_decoded_one_by_one() -> None:
    async with serving_console(features=features) as console:
        url = f"{console.url}/api/echo/a%2Fb/%C3%A9%20?x=1%2B1"
        async with console.http.get(URL(url, encoded=True)) as response:
            found = await response.json()
        assert found["params"] == {"first": "a/b", "second": "é "}
        assert found["query"] == {"x": "1+1"}


async def test_errors_say_what_happened_and_no_more() -> None:
    async with serving_console(features=features) as console:
        answers = {}
        for how in ("problem", "request", "store", "mistake"):
            async with console.http.get(f"{console.url}/api/fail/{how}") as response:
                answers[how] = (response.status, await response.json())
        assert answers["problem"] == (409, {"message": "Taken.", "fields": {"name": "Choose another one."}})
        assert answers["request"] == (400, {"message": "The amount is negative.", "fields": {}})
        assert answers["store"][0] == 503
        assert answers["mistake"][0] == 500
        assert "secret" not in answers["mistake"][1]["message"]


@pytest.mark.parametrize("body", [b"{", b"\xff", b"[" * 100_000, b""])
async def test_a_body_that_is_not_json_is_refused(body: bytes) -> None:
    async with serving_console(features=features) as console:
        headers = {"origin": console.url, "content-type": "application/json"}
        async with console.http.post(f"{console.url}/api/echo/a/b", data=body, headers=headers) as response:
            assert response.status == 400
            assert "JSON" in (await response.json())["message"]


async def test_a_read_only_console_refuses_writes_and_an_unknown_address_is_not_found() -> None:
    async with serving_console(features=features, read_only=True) as console:
        refused = await console.post("/api/echo/a/b", {}, status=403)
        assert "read-only" in refused["message"]
        await console.post("/api/nothing", {}, status=404)
        await console.post("/api/session", {}, status=405)


async def test_a_stream_ends_with_its_problem() -> None:
    async with serving_console(features=features) as console:
        async with console.http.get(f"{console.url}/api/stream") as response:
            assert response.content_type == "text/event-stream"
            text = (await response.read()).decode()
        assert text == (
            'event: part\ndata: {"text":"line\\nline"}\n\n'
            'event: problem\ndata: {"status":410,"message":"The task is gone."}\n\n'
        )


async def test_pages_hear_of_changes_and_watchers_run_only_meanwhile() -> None:
    async with serving_console(features=features) as console:
        part = part_of(console)
        await console.get("/api/session")
        assert part.is_open
        assert part.watching == 0
        async with console.http.get(f"{console.url}/api/live") as response:
            assert await response.content.readuntil(b"\n\n") == b"event: ready\ndata: {}\n\n"
            for topic in ("tasks", "inbox", "tasks"):
                part.live.changed(topic)
            changed = await response.content.readuntil(b"\n\n")
            assert changed == b'event: changed\ndata: {"topics":["inbox","tasks"]}\n\n'
            assert part.watching == 1
        await until(lambda: not part.watching)
    assert not part.is_open


async def test_the_streams_of_one_person_are_bounded() -> None:
    async with serving_console() as console:
        open_streams = [await console.http.get(f"{console.url}/api/live") for _ in range(24)]
        async with console.http.get(f"{console.url}/api/live") as response:
            assert response.status == 503
        for stream in open_streams:
            stream.close()
        await until(lambda: not console.app.streams)
        async with console.http.get(f"{console.url}/api/live") as response:
            assert response.status == 200


async def test_files_are_served_once_and_no_others() -> None:
    async with serving_console() as console:
        async with console.http.get(f"{console.url}/lib/dom.js") as response:
            assert response.content_type == "text/javascript"
            served = await response.text()
            assert "export const h = (tag, ...rest) =>" in served
            assert not re.search(r"/\*\*|^//|^[ \n]", served, re.MULTILINE)
            tag = response.headers["etag"]
        async with console.http.get(f"{console.url}/lib/dom.js", headers={"if-none-match": tag}) as response:
            assert response.status == 304
        async with console.http.get(f"{console.url}/lib/views.js") as response:
            assert "export { dataView" in await response.text()
        for path in (
            "index.html",
            "lib/views.d.ts",
            "../app.py",
            "%2e%2e/app.py",
            "lib/..%2f..%2fapp.py",
            "lib",
        ):
            async with console.http.get(URL(f"{console.url}/{path}", encoded=True)) as response:
                assert response.status == 404, path


@pytest.mark.parametrize(
    ("path", "base"), [("/", "./"), ("/tasks", "./"), ("/tasks/a/b", "../../"), ("/tasks/", "../")]
)
async def test_the_page_works_under_every_prefix(path: str, base: str) -> None:
    async with serving_console() as console, console.http.get(console.url + path) as response:
        assert response.status == 200
        assert f'<base href="{base}">' in await response.text()


async def test_signing_out_ends_the_session_on_the_server() -> None:
    async with serving_console() as console:
        [cookie] = list(console.http.cookie_jar)
        await console.post("/sign-out")
        headers = {"cookie": f"{cookie.key}={cookie.value}"}
        async with (
            aiohttp.ClientSession() as thief,
            thief.get(f"{console.url}/api/session", headers=headers) as response,
        ):
            assert response.status == 401
