"""A console over real HTTP, in the process of the test."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
from yarl import URL

from antiphon.console.app import ConsoleApp
from antiphon.console.sign_in import SignIn
from antiphon.console.sources import ServerSource, Sources, StoreSource
from antiphon.runtime.limits import Limits
from antiphon.transport.server.http.serve import HttpServer, create_config
from tests.support.polling import until

__all__ = ["RunningConsole", "serving_app", "serving_console"]


@dataclass
class RunningConsole:
    """A console that is served, and a browser that is signed in."""

    url: str
    app: ConsoleApp
    http: aiohttp.ClientSession

    def link(self) -> str:
        """Return an address that signs one browser in."""
        return f"{self.url}/sign-in?token={self.app.sign_in.create_link()}"

    async def get(self, path: str, **query: Any) -> Any:
        """Return the JSON at a path of the API."""
        async with self.http.get(self.url + path, params=query) as response:
            assert response.status == 200, await response.text()
            return await response.json()

    async def post(self, path: str, body: Any = None, *, status: int = 200) -> Any:
        """Send JSON as the page does, and return the JSON of the answer."""
        origin = str(URL(self.url).origin())
        headers = {"origin": origin, "sec-fetch-site": "same-origin"}
        async with self.http.post(self.url + path, json=body or {}, headers=headers) as response:
            assert response.status == status, await response.text()
            return await response.json()


@asynccontextmanager
async def serving_app(
    app: Any, *, sock: socket.socket | None = None, more: Sequence[socket.socket] = ()
) -> AsyncIterator[str]:
    """Serve an ASGI app on a free port of this machine, and on more sockets; yield its URL."""
    listening = socket.create_server(("127.0.0.1", 0)) if sock is None else sock
    limits = Limits(drain_timeout=0.5)
    config = create_config(app, limits=limits, lifespan="on", log_config=None, access_log=False)
    end_streams = getattr(app, "end_streams", getattr(app, "begin_shutdown", None))
    server = HttpServer(config, handle_signals=False, on_closing=end_streams)
    serving = asyncio.create_task(server.serve(sockets=[listening, *more]))
    try:
        await until(lambda: server.started or serving.done())
        assert not serving.done(), "The app did not start."
        host, port = listening.getsockname()[:2]
        yield f"http://{host}:{port}"
    finally:
        server.should_exit = True
        await serving
        listening.close()


@asynccontextmanager
async def serving_console(
    *,
    stores: Sequence[StoreSource] = (),
    servers: Sequence[ServerSource] = (),
    read_only: bool = False,
    adds_servers: bool = True,
    has_sandbox: bool = False,
    **options: Any,
) -> AsyncIterator[RunningConsole]:
    """Serve a console of a local operator, who is signed in already; `has_sandbox` lets it show Apps."""
    sources = Sources(adds_servers=adds_servers)
    for store in stores:
        sources.add_store(store)
    for server in servers:
        sources.add_server(server)
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.create_server(("127.0.0.1", 0)) as sandbox,
    ):
        host, sandbox_host = (f"127.0.0.1:{each.getsockname()[1]}" for each in (listening, sandbox))
        if has_sandbox:
            options["sandbox_url"] = f"http://{sandbox_host}"
        app = ConsoleApp(sources, SignIn(operator="tester", read_only=read_only), hosts=[host], **options)
        jar = aiohttp.CookieJar(unsafe=True)
        serving = serving_app(app, sock=listening, more=[sandbox] if has_sandbox else [])
        async with serving as url, aiohttp.ClientSession(cookie_jar=jar) as http:
            console = RunningConsole(url, app, http)
            async with http.get(console.link()) as signed_in:
                assert signed_in.status == 200
            yield console
