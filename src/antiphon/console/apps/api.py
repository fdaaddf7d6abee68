"""What the console does for an App: reads its page, and passes requests of the App on to its own server.

Every request goes through the connection of the person who looks at the App, so the App can do what the
person can do and no more. An App calls tools of its own server that are visible to Apps. This module must not
know how an App is shown.
"""

from __future__ import annotations

import binascii
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from antiphon.client.client import Client
from antiphon.console.apps.theme import TOKENS
from antiphon.console.live import Live
from antiphon.console.routes import ConsoleRequest, Problem, Route
from antiphon.console.sources import Sources
from antiphon.console.workbench.views import outcome_view
from antiphon.errors import AntiphonError, ProcessEnded, RateLimited, RequestError
from antiphon.middleware.rate_limit import RateLimit
from antiphon.model.content import BlobContents, Contents
from antiphon.model.ui import APP_MIME_TYPE, UI_SCHEME, UiSettings
from antiphon.printable import printable
from antiphon.version import VERSION

__all__ = ["AppsApi"]

logger = logging.getLogger("antiphon.console")

CALL_SECONDS = 120.0
"""How long a call of an App may take."""
CALLS_PER_SECOND = 5.0
CALL_BURST = 20
"""How many requests an App may send at once."""
MAX_PAGE_BYTES = 10 * 1024 * 1024
"""How large the page of an App may be."""
_NO_SANDBOX = (
    "Apps are not shown here: the console has no second origin. "
    "Give it one: Console(sandbox_url=…) or antiphon console --sandbox-port."
)
_SERVER_ERROR = -32000
_FEATURES: Mapping[str, tuple[str, str]] = {
    "camera": ("camera", "use the camera"),
    "microphone": ("microphone", "use the microphone"),
    "geolocation": ("geolocation", "read your location"),
    "clipboard_write": ("clipboard-write", "write to the clipboard"),
}
"""The permissions of an App: their names in a browser's policy, and in a sentence."""
_REACHES: Mapping[str, str] = {
    "connect_domains": "send data to",
    "resource_domains": "load files from",
    "frame_domains": "show pages of",
    "base_uri_domains": "resolve links at",
}


class AppsApi:
    """The part of the console that shows Apps. Without a sandbox, Apps are not shown."""

    def __init__(self, sources: Sources, live: Live, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._sources = sources
        self._limit = RateLimit(CALLS_PER_SECOND, burst=CALL_BURST, max_callers=1000, clock=clock)

    def routes(self) -> Sequence[Route]:
        """Return the routes of the part."""
        return (
            Route("GET", "/api/servers/{server}/app", self._page),
            Route("GET", "/api/servers/{server}/app/resource", self._read),
            Route("POST", "/api/servers/{server}/app/call", self._call, writes=True),
        )

    async def _page(self, request: ConsoleRequest) -> Any:
        """Return the page of an App, and the settings that it is shown with."""
        sandbox = self._sources.sandbox
        if sandbox is None:
            raise Problem(409, _NO_SANDBOX)
        uri = request.query.get("uri", "")
        if not uri.startswith(UI_SCHEME):
            raise Problem(
                400, f"An App has an address such as ui://server/page, and not {printable(uri, 200)!r}."
            )
        client = await self._client(request, request.query.get("connection"))
        try:
            contents = await _contents_of(client, uri)
            settings = contents.ui or await _listed_settings(client, uri) or UiSettings()
        except AntiphonError as error:
            await self._lose(request, client, error)
            raise Problem(502, f"The server did not give the page of the App: {error}") from None
        csp = sandbox.allowed(settings.csp, request.headers["host"])
        settings = msgspec.structs.replace(settings, csp=csp)
        wishes = _wishes(settings)
        logger.info(
            "%s opens the App %s of the server %s, which asks to: %s",
            printable(request.user.name),
            printable(uri),
            request.params["server"],
            "; ".join(wishes) or "nothing",
        )
        return {
            "html": _html_of(contents, uri),
            "settings": settings.to_meta(),
            "wishes": wishes,
            "allow": "; ".join(f"{_FEATURES[name][0]} *" for name in settings.permissions),
            "sandbox": sandbox.page_url(csp),
            "origin": sandbox.origin,
            "tokens": TOKENS,
            "host": _host(settings, may_write=request.user.may_write),
        }

    async def _read(self, request: ConsoleRequest) -> Any:
        """Read a resource for an App."""
        uri = request.query.get("uri", "")

        async def read(client: Client) -> Any:
            return outcome_view(await client.read(uri))

        return await self._forward(
            request, request.query.get("connection"), f"reads {printable(uri, 200)}", read
        )

    async def _call(self, request: ConsoleRequest) -> Any:
        """Call a tool for an App. The server's own error comes back as an error for the App."""
        body = await request.json()
        name, arguments = (
            (body.get("name"), body.get("arguments")) if isinstance(body, Mapping) else (None, None)
        )
        arguments = {} if arguments is None else arguments
        if not isinstance(name, str) or not isinstance(arguments, Mapping):
            raise Problem(400, "A call has the name of a tool and an object of arguments.")

        async def call(client: Client) -> Any:
            tool = next((each for each in await client.tools() if each.name == name), None)
            if tool is None or "app" not in tool.visibility:
                raise Problem(403, f"The server has no tool {printable(name, 200)!r} that an App may call.")
            return outcome_view(await client.call(name, arguments, check=False, timeout=CALL_SECONDS))

        return await self._forward(request, body.get("connection"), f"calls {printable(name, 200)}", call)

    async def _forward(
        self, request: ConsoleRequest, connection: Any, action: str, send: Callable[[Client], Awaitable[Any]]
    ) -> Any:
        """Send a request of an App to its server, within the App's rate."""
        user, server = request.user, request.params["server"]
        try:
            self._limit.take(f"{user.name}\n{server}")
        except RateLimited as error:
            raise Problem(
                429, f"The App sends too many requests: {CALLS_PER_SECOND:g} a second are allowed."
            ) from error
        client = await self._client(request, connection)
        logger.info("An App of the server %s %s for %s.", server, action, printable(user.name))
        try:
            return {"result": await send(client)}
        except RequestError as error:
            return {"error": {"code": error.code, "message": error.message}}
        except AntiphonError as error:
            await self._lose(request, client, error)
            return {"error": {"code": _SERVER_ERROR, "message": str(error)}}

    async def _client(self, request: ConsoleRequest, connection: Any) -> Client:
        """Return the connection of the person to the server of the App; raises `Problem`.

        An App at the workbench uses the connection of the workbench, whose messages the person sees.
        """
        source = self._sources.server(request.params["server"])
        if connection and self._sources.recorded_client is not None:
            return self._sources.recorded_client(source, request.user, str(connection))
        try:
            return await source.client(request.user)
        except AntiphonError as error:
            raise Problem(502, f"The console cannot connect to the server {source.name}: {error}") from None

    async def _lose(self, request: ConsoleRequest, client: Client, error: AntiphonError) -> None:
        """Close a client whose program has exited, so that the next request starts the program again."""
        if isinstance(error, ProcessEnded):
            await self._sources.server(request.params["server"]).disconnect(client)


def _host(settings: UiSettings, *, may_write: bool) -> dict[str, Any]:
    """Return what the console tells an App about itself, in the form of the extension."""
    meta = settings.to_meta()
    capabilities: dict[str, Any] = {
        "openLinks": {},
        "serverResources": {},
        "logging": {},
        "message": {"text": {}},
        "updateModelContext": {"text": {}, "structuredContent": {}},
        "sandbox": {name: meta[name] for name in ("csp", "permissions") if name in meta},
    }
    if may_write:
        capabilities["serverTools"] = {}
    return {
        "hostInfo": {"name": "antiphon-console", "version": VERSION},
        "hostCapabilities": capabilities,
    }


def _wishes(settings: UiSettings) -> list[str]:
    """Return what an App asks for beside its server, for the person to agree to."""
    wishes = [_FEATURES[name][1] for name in settings.permissions]
    for name, words in _REACHES.items():
        if domains := getattr(settings.csp, name):
            wishes.append(f"{words} {', '.join(domains)}")
    return wishes


async def _contents_of(client: Client, uri: str) -> Contents:
    """Return the contents of the page of an App; raises `Problem` if the resource is no App."""
    for contents in (await client.read(uri)).contents:
        if (contents.mime_type or "").replace(" ", "").lower() == APP_MIME_TYPE:
            return contents
    raise Problem(422, f"{printable(uri, 200)} is no App: its media type has to be {APP_MIME_TYPE}.")


async def _listed_settings(client: Client, uri: str) -> UiSettings | None:
    """Return the settings of an App from the list of resources, for contents that have none."""
    try:
        return next((each.ui for each in await client.resources() if each.uri == uri), None)
    except RequestError:  # a server may have no list
        return None


def _html_of(contents: Contents, uri: str) -> str:
    try:
        html = contents.raw.decode() if isinstance(contents, BlobContents) else contents.text
    except (binascii.Error, UnicodeDecodeError):
        raise Problem(422, f"The page of {printable(uri, 200)} is not HTML in UTF-8.") from None
    if len(html) > MAX_PAGE_BYTES:
        raise Problem(422, f"The page of {printable(uri, 200)} is larger than {MAX_PAGE_BYTES} bytes.")
    return html
