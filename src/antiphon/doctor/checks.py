"""Checks a server as its clients will use it.

Checks which protocol versions and features the server supports, and how quickly it responds. The checks
call no tool and change nothing. `diagnosis` explains why an address is not an MCP server.
"""

from __future__ import annotations

import asyncio
import dataclasses
import ipaddress
import statistics
import time
from collections.abc import Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

import msgspec

from antiphon.errors import AntiphonError, Forbidden, RequestError, Unauthorized, Unreachable
from antiphon.model.catalog import ToolDefinition
from antiphon.server_target import ServerTarget

if TYPE_CHECKING:
    from antiphon.client import Client
    from antiphon.model.capabilities import ServerCapabilities

__all__ = ["Check", "Report", "State", "examine", "explained", "is_local"]

State = Literal["ok", "absent", "advice", "failed", "skipped"]

PING_COUNT = 5
MAX_LISTED_NAMES = 12
"""How many names of tools, resources or prompts a line lists."""

_FOREIGN_ORIGIN = "http://example.invalid"


class Check(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of one check. `absent` is not a fault; `advice` is a warning; `skipped` does not apply."""

    name: str
    state: State
    says: str
    advice: str = ""
    data: Any = None
    ms: float | None = None


class Report(msgspec.Struct, frozen=True):
    """The results of all checks of a server."""

    target: str
    server: dict[str, Any]
    version: str
    checks: list[Check]

    @property
    def ok(self) -> bool:
        """Whether no check failed."""
        return all(check.state != "failed" for check in self.checks)


async def examine(target: ServerTarget) -> Report:
    """Check a server, and return the results.

    Raises the `AntiphonError` with which connecting failed; for a URL its message explains the failure.
    """
    started = time.perf_counter()
    try:
        async with target.client(connect_timeout=target.timeout) as client:
            connect_ms = _ms_since(started)
            version = client.version
            offers: dict[str, ServerCapabilities] = {version: client.offers}
            ping = await _check_ping(client, connect_ms)
            features = await _check_features(client)
            server = msgspec.to_builtins(client.server) if client.server else {}
    except AntiphonError as error:
        challenge = dict(error.headers).get("www-authenticate", "") if isinstance(error, Unauthorized) else ""
        if target.is_remote and "resource_metadata" in challenge:
            from antiphon.doctor.authorization import check_authorization

            return Report(target.name, {}, "", await check_authorization(target, challenge))
        raise await explained(target, error) from error
    versions = await _check_versions(target, version, offers)
    tools = next(check.data for check in features if check.name == "tools")
    checks = [
        ping,
        versions,
        *features,
        *_check_extensions(offers, tools),
        *await _check_origins(target),
    ]
    if target.processes:
        from antiphon.doctor.processes import check_process

        checks += check_process(target.processes[0])
    if target.uses_login:
        from antiphon.doctor.authorization import check_stored_login

        checks += await check_stored_login(target)
    return Report(target.name, server, version, checks)


async def explained(target: ServerTarget, error: AntiphonError) -> AntiphonError:
    """Return the error to raise if the target does not respond as a server does."""
    from antiphon.doctor.diagnosis import explain_failure

    message = await explain_failure(target, error) if target.is_remote else None
    return error if message is None else Unreachable(message)


async def _check_ping(client: Client, connect_ms: float) -> Check:
    pings = []
    try:
        for _ in range(PING_COUNT):
            started = time.perf_counter()
            await client.ping()
            pings.append(_ms_since(started))
    except RequestError as error:
        return Check("ping", "failed", f"the server returned an error: {error.message}", ms=connect_ms)
    median = statistics.median(pings)
    says = f"{_format_ms(median)} (median of {PING_COUNT}); connected in {_format_ms(connect_ms)}"
    return Check("ping", "ok", says, data={"connect": connect_ms, "pings": pings}, ms=median)


async def _check_features(client: Client) -> list[Check]:
    """Check the lists that the server offers, and name its other capabilities."""
    tools = await _check_list(client, "tools", client.tools())
    checks = [tools if tools.state == "failed" else _check_descriptions(tools)]
    checks.append(await _check_list(client, "resources", client.resources()))
    if client.offers.resources:
        checks.append(await _check_list(client, "templates", client.templates(), capability="resources"))
    checks.append(await _check_list(client, "prompts", client.prompts()))
    offers = client.offers
    others = [name for name in ("completions", "logging") if getattr(offers, name)]
    if offers.resource_subscriptions:
        others.append("subscriptions to resources")
    lists = [kind for kind in ("tools", "resources", "prompts") if kind in offers.list_changes]
    if lists:
        others.append(f"notifications of changed {' and '.join(lists)}")
    return [*checks, Check("other", "ok" if others else "absent", ", ".join(others) or "none", data=others)]


async def _check_list(
    client: Client, kind: str, listing: Coroutine[Any, Any, Sequence[Any]], capability: str | None = None
) -> Check:
    if not getattr(client.offers, capability or kind):
        listing.close()
        return Check(kind, "absent", "none", data=[])
    started = time.perf_counter()
    try:
        found = await listing
    except RequestError as error:
        says = f"declared, but the server cannot list them: {error.message}"
        return Check(kind, "failed", says, "Fix the server, or do not declare this capability.", data=[])
    taken = _ms_since(started)
    names = [str(getattr(each, "name", None) or getattr(each, "uri", "?")) for each in found]
    data = list(found) if kind == "tools" else names
    says = f"{len(names)}: {_join_names(names)}" if names else "none"
    return Check(kind, "ok" if found else "absent", says, data=data, ms=taken)


def _check_descriptions(tools: Check) -> Check:
    """Warn about tools without a description."""
    undescribed = [tool.name for tool in tools.data if not (tool.description or "").strip()]
    if not undescribed:
        return tools
    advice = f"Describe {_join_names(undescribed)}: a model chooses a tool by its description."
    return msgspec.structs.replace(tools, state="advice", advice=advice)


async def _check_versions(
    target: ServerTarget, negotiated: str, offers: dict[str, ServerCapabilities]
) -> Check:
    """Connect in every other version, and add what each supported one offers to `offers`."""
    known, current = _known_versions()
    others = [version for version in known if version != negotiated]
    refused: dict[str, str] = {}
    for version, found in zip(others, await _connect_all(target, others), strict=True):
        if isinstance(found, str):
            refused[version] = found
        else:
            offers[version] = found
    supported = [version for version in known if version in offers]
    missing = [version for version in current if version not in supported]
    advice = f"Clients that support only {' or '.join(missing)} cannot connect." if missing else ""
    says = ", ".join(supported) + (f"; not {', '.join(refused)}" if refused else "")
    data = {"spoken": supported, "refused": refused}
    return Check("versions", "advice" if advice else "ok", says, advice, data)


def _known_versions() -> tuple[Sequence[str], Sequence[str]]:
    """Return the published versions that the client knows, newest first, and those that clients use."""
    from antiphon.wire.versions import VERSIONS

    current = [VERSIONS.newest(stateless=kind).name for kind in (True, False)]
    return VERSIONS.advertised, current


async def _connect_all(target: ServerTarget, versions: Sequence[str]) -> Sequence[ServerCapabilities | str]:
    """Return what `_connect` returns for each version."""
    if target.is_remote:
        return await asyncio.gather(*(_connect(target, version) for version in versions))
    # Processes of one server may use the same file or port: only one of them runs at a time.
    return [await _connect(target, version) for version in versions]


async def _connect(target: ServerTarget, version: str) -> ServerCapabilities | str:
    """Return what the server offers in a version, or why it refuses the version."""
    try:
        async with target.client(protocol=version, connect_timeout=target.timeout) as client:
            return client.offers
    except AntiphonError as error:
        return str(error)


def _check_extensions(
    offers: Mapping[str, ServerCapabilities], tools: Sequence[ToolDefinition]
) -> list[Check]:
    """Check in which versions the server offers tasks and streaming."""
    tasks = [version for version, offered in offers.items() if offered.tasks]
    streaming = [version for version, offered in offers.items() if offered.streams]
    supporting = [tool.name for tool in tools if tool.task_support in ("optional", "required")]
    task_tools = f"; tools: {_join_names(supporting)}" if supporting else ""
    return [
        Check("tasks", "ok", f"in {', '.join(tasks)}{task_tools}", data=tasks)
        if tasks
        else Check("tasks", "absent", "none: a long call keeps its connection open", data=[]),
        Check("streaming", "ok", f"in {', '.join(streaming)}", data=streaming)
        if streaming
        else Check("streaming", "absent", "none: a result arrives in one piece", data=[]),
    ]


async def _check_origins(target: ServerTarget) -> list[Check]:
    """Check whether a web page could call a server on this machine through the user's browser."""
    if not isinstance(target.endpoint, str) or not is_local(target.endpoint):
        return []
    foreign = dataclasses.replace(target, headers={**target.headers, "Origin": _FOREIGN_ORIGIN})
    try:
        async with foreign.client(connect_timeout=target.timeout):
            pass
    except Forbidden:
        return [Check("origins", "ok", "requests of foreign web pages are refused")]
    except AntiphonError as error:
        return [Check("origins", "ok", f"requests of foreign web pages are refused ({error})")]
    return [
        Check(
            "origins",
            "advice",
            f"a request with Origin {_FOREIGN_ORIGIN} is accepted",
            "Check the Origin header: any web page open in a browser on this machine could call the server.",
        )
    ]


def is_local(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _join_names(names: Sequence[str]) -> str:
    more = len(names) - MAX_LISTED_NAMES
    return ", ".join(names[:MAX_LISTED_NAMES]) + (f" and {more} more" if more > 0 else "")


def _format_ms(ms: float) -> str:
    return f"{ms:.1f} ms" if ms < 10 else f"{ms:.0f} ms"


def _ms_since(started: float) -> float:
    return round((time.perf_counter() - started) * 1000, 2)
