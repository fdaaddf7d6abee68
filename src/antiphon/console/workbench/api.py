"""The routes of the workbench: servers, connections, calls, questions and messages.

A browser never names a command: it names a server by its id, or adds one by an http(s) URL where that is
allowed.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import msgspec

from antiphon.client import Client
from antiphon.console.live import Live
from antiphon.console.routes import ConsoleRequest, ConsoleUser, EventStream, Problem, Route
from antiphon.console.sources import ServerSource, Sources
from antiphon.console.workbench.calls import KINDS
from antiphon.console.workbench.catalog import read_catalog
from antiphon.console.workbench.connection import BenchConnection
from antiphon.console.workbench.connections import Connections
from antiphon.console.workbench.views import version_choices
from antiphon.doctor.checks import Check, examine, explained
from antiphon.errors import AntiphonError
from antiphon.printable import printable, redacted_url
from antiphon.server_target import ServerTarget
from antiphon.transport.server.http.router import HttpResponse
from antiphon.wire.versions import VERSIONS

__all__ = ["WorkbenchApi"]

RESPONSE_SECONDS = 60.0
"""How long a server that was added in the page may take for each response."""
DOCTOR_SECONDS = 10.0
"""How long each response to the doctor may take."""
MAX_EXAMINATIONS = 2
"""How many checks run at once."""
MAX_URL_CHARACTERS = 2000
_MAX_DIGITS = 12
_MARKS = {
    "ok": "done",
    "absent": "cancelled",
    "advice": "waiting",
    "failed": "failed",
    "skipped": "cancelled",
}
_SERVER_FORM = {
    "properties": {
        "url": {
            "type": "string",
            "format": "uri",
            "title": "Address",
            "description": "The URL of an MCP server, such as https://example.com/mcp.",
        },
        "token": {
            "type": "string",
            "format": "password",
            "title": "Token",
            "description": "Sent as a bearer token. The console keeps it in memory only.",
        },
    },
    "required": ["url"],
}
"""What a person enters to add a server."""
_CONNECTION = "/api/workbench/connections/{connection}"


class WorkbenchApi:
    """The workbench of a console."""

    def __init__(self, sources: Sources, live: Live) -> None:
        self._sources = sources
        self._connections = Connections()
        sources.recorded_client = self._connections.client
        sources.on_removed.append(self._connections.remove_all)
        # A check may start several processes.
        self._examining = asyncio.Semaphore(MAX_EXAMINATIONS)

    def routes(self) -> Sequence[Route]:
        """Return the routes."""
        return [
            Route("GET", "/api/servers/form", self._server_form),
            Route("POST", "/api/servers", self._add_server, writes=True, operators=True),
            Route("POST", "/api/servers/{server}/remove", self._remove_server, writes=True, operators=True),
            Route("POST", "/api/servers/{server}/doctor", self._examine),
            Route("POST", "/api/workbench/connections", self._connect),
            Route("GET", _CONNECTION, self._describe),
            Route("POST", f"{_CONNECTION}/close", self._disconnect),
            Route("GET", f"{_CONNECTION}/catalog", self._catalog),
            Route("GET", f"{_CONNECTION}/events", self._events),
            Route("POST", f"{_CONNECTION}/calls", self._call, writes=True),
            Route("POST", f"{_CONNECTION}/reads", self._read),
            Route("GET", f"{_CONNECTION}/calls/{{call}}", self._show_call),
            Route("POST", f"{_CONNECTION}/calls/{{call}}/cancel", self._cancel_call, writes=True),
            Route("POST", f"{_CONNECTION}/questions/{{question}}", self._answer, writes=True),
            Route("POST", f"{_CONNECTION}/completions", self._complete),
            Route("POST", f"{_CONNECTION}/subscriptions", self._subscribe),
            Route("GET", f"{_CONNECTION}/messages.jsonl", self._export),
            Route("GET", f"{_CONNECTION}/messages/{{number}}", self._message),
            Route("POST", f"{_CONNECTION}/messages/clear", self._clear),
        ]

    async def close(self) -> None:
        """Close all connections."""
        await self._connections.close()

    # Servers

    async def _server_form(self, request: ConsoleRequest) -> Any:
        return _SERVER_FORM

    async def _add_server(self, request: ConsoleRequest) -> Any:
        if not self._sources.adds_servers:
            raise Problem(403, "Servers cannot be added in this console. Name them when you start it.")
        body = await _object(request)
        url, token = str(body.get("url") or "").strip(), str(body.get("token") or "").strip()
        _check_url(url)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        if not re.fullmatch(r"[\x21-\x7e]*", token):
            fields = {"token": "use visible ASCII characters only"}  # nosec B105 # no token
            raise Problem(422, "The token cannot be sent.", fields)
        target = ServerTarget(redacted_url(url), url, headers, RESPONSE_SECONDS)
        source = ServerSource(
            f"added-{secrets.token_hex(4)}",
            target.name,
            "url",
            lambda user, **options: target.client(**options),
            is_added=True,
            target=target,
        )
        self._sources.add_server(source)
        return {"id": source.id, "name": source.name}

    async def _remove_server(self, request: ConsoleRequest) -> Any:
        source = self._sources.server(request.params["server"])
        await self._sources.remove_server(source.id)
        return {}

    async def _examine(self, request: ConsoleRequest) -> Any:
        source = self._sources.server(request.params["server"])
        try:
            async with self._examining:
                report = await examine(_target(source, request.user))
        except AntiphonError as error:
            verdict = "The server cannot be used."
            return {"ok": False, "verdict": verdict, "error": _message(source, error), "checks": []}
        return {
            "ok": report.ok,
            "verdict": "The server works." if report.ok else "The server has faults.",
            "checks": [_check_view(check) for check in report.checks],
        }

    # Connections

    async def _connect(self, request: ConsoleRequest) -> Any:
        body = await _object(request)
        source = self._sources.server(str(body.get("server", "")))
        protocol = body.get("protocol") or None
        if protocol is not None and protocol not in VERSIONS.spoken_by_client:
            raise Problem(422, f"The version is one of {', '.join(VERSIONS.spoken_by_client)}.")
        user, again = request.user, bool(body.get("again"))
        try:
            connection = await self._connections.open(source, user, protocol, again=again)
        except AntiphonError as error:
            target = _target(source, user)
            shown = await explained(target, error) if target.is_remote else error
            # The messages of the attempt can be read all the same.
            return {
                "id": self._connections.known(source, user, protocol),
                "versions": version_choices(),
                "error": _message(source, shown),
            }
        return connection.view()

    async def _describe(self, request: ConsoleRequest) -> Any:
        return self._found(request).view()

    async def _disconnect(self, request: ConsoleRequest) -> Any:
        await self._connections.remove(self._found(request))
        return {}

    async def _catalog(self, request: ConsoleRequest) -> Any:
        connection = self._found(request)
        return await read_catalog(connection.client, shows_apps=connection.source.shows_apps)

    async def _events(self, request: ConsoleRequest) -> EventStream:
        return EventStream(self._found(request).feed.listen())

    # Calls

    async def _call(self, request: ConsoleRequest) -> Any:
        return await self._start(request, KINDS)

    async def _read(self, request: ConsoleRequest) -> Any:
        """Read a resource or a prompt. A read-only console does so too."""
        return await self._start(request, ("resource", "prompt"))

    async def _start(self, request: ConsoleRequest, kinds: Sequence[str]) -> Any:
        body = await _object(request)
        kind, name, arguments = str(body.get("kind")), body.get("name"), body.get("arguments") or {}
        if kind not in kinds or not isinstance(name, str) or not name:
            raise Problem(400, f"A call needs a kind ({', '.join(kinds)}) and a name.")
        if not isinstance(arguments, dict):
            raise Problem(422, "The arguments are not an object.", {"arguments": "write a JSON object"})
        connection = self._found(request)
        return connection.start_call(kind, name, arguments, bool(body.get("asTask"))).view()

    async def _show_call(self, request: ConsoleRequest) -> Any:
        return self._found(request).calls.find(request.params["call"]).view()

    async def _cancel_call(self, request: ConsoleRequest) -> Any:
        await self._found(request).calls.cancel(request.params["call"])
        return {}

    async def _answer(self, request: ConsoleRequest) -> Any:
        self._found(request).questions.answer(request.params["question"], await request.json())
        return {}

    async def _complete(self, request: ConsoleRequest) -> Any:
        body = await _object(request)
        client = self._found(request).client
        reference, argument, value = (str(body.get(name, "")) for name in ("ref", "argument", "value"))
        others = body.get("context") or {}
        if not isinstance(others, dict):
            raise Problem(400, "The context of a completion is an object.")
        known = {str(name): str(text) for name, text in others.items() if text and name != argument}
        return msgspec.to_builtins(await client.complete(reference, argument, value, known))

    async def _subscribe(self, request: ConsoleRequest) -> Any:
        body = await _object(request)
        uris = await self._found(request).subscribe(str(body.get("uri", "")), on=bool(body.get("on")))
        return {"subscriptions": uris}

    # Messages

    async def _message(self, request: ConsoleRequest) -> Any:
        number = request.params["number"]
        is_number = number.isascii() and number.isdecimal() and len(number) < _MAX_DIGITS
        found = self._found(request).log.find(int(number)) if is_number else None
        if found is None:
            raise Problem(404, "This message is no longer kept.")
        body = msgspec.Raw(found.message.body) if found.message.body else None
        return {**found.summary(), "failure": found.message.failure or None, "message": body}

    async def _export(self, request: ConsoleRequest) -> HttpResponse:
        connection = self._found(request)
        lines = connection.log.export(server=connection.source.name, version=connection.version)
        name = re.sub(r"[^A-Za-z0-9]+", "-", connection.source.name).strip("-")[:60] or "server"
        disposition = f'attachment; filename="{name}.jsonl"'
        return HttpResponse(
            b"".join(lines),
            media_type="application/jsonl",
            headers={"content-disposition": disposition, "cache-control": "no-store"},
        )

    async def _clear(self, request: ConsoleRequest) -> Any:
        connection = self._found(request)
        connection.log.clear()
        connection.feed.resynchronize()
        return {}

    def _found(self, request: ConsoleRequest) -> BenchConnection:
        return self._connections.find(request.params["connection"], request.user)


@dataclass(frozen=True, slots=True)
class _SourceTarget(ServerTarget):
    """A server that only the console's source can connect to, such as the one in this process."""

    connect: Callable[..., Client] = field(kw_only=True, repr=False)

    def client(self, **options: Any) -> Client:
        """Create a client for the person, not connected yet."""
        return self.connect(**options)


def _target(source: ServerSource, user: ConsoleUser) -> ServerTarget:
    """Return how the doctor connects to a server."""
    if source.target is not None:
        return source.target
    connect = partial(source.create_client, user)
    return _SourceTarget(source.name, [], {}, DOCTOR_SECONDS, connect=connect)


def _message(source: ServerSource, error: AntiphonError) -> str:
    """Return why a server cannot be used, with the last lines that its process printed."""
    printed = source.target.last_errors if source.target is not None else ""
    text = str(error) or type(error).__name__
    if not printed:
        return text
    return f"{text}\n\nThe last lines that the command printed to standard error:\n{printed}"


def _check_view(check: Check) -> Mapping[str, Any]:
    """Return a check, with the mark that the page shows for its state."""
    mark = _MARKS[check.state]
    return {"name": check.name, "mark": mark, "says": printable(check.says), "advice": check.advice}


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc
        parts.port  # noqa: B018 - raises ValueError
    except ValueError:
        is_valid = False
    if not is_valid or len(url) > MAX_URL_CHARACTERS or not re.fullmatch(r"[\x21-\x7e]+", url):
        problem = "write an address such as https://example.com/mcp"
        raise Problem(422, "This is not the address of a server.", {"url": problem})


async def _object(request: ConsoleRequest) -> dict[str, Any]:
    body = await request.json()
    if not isinstance(body, dict):
        raise Problem(400, "The body is not an object.")
    return body
