"""`antiphon doctor`: looks at a server, ours or anybody's, as its clients will.

Says what it speaks, what it offers and what it lacks, with timings. It calls no tool and changes nothing.
How that is printed is `doctor_shown`'s business, and what stands at an address that is none `strangers`'.
"""

from __future__ import annotations

import asyncio
import ipaddress
import statistics
import time
from collections.abc import Awaitable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from urllib.parse import urlsplit

import msgspec

from antiphon.cli.exit_codes import FAILED, UNREACHABLE, CommandError
from antiphon.cli.targets import Target, run
from antiphon.errors import AntiphonError, Forbidden, RequestError
from antiphon.model.catalog import ToolDefinition

if TYPE_CHECKING:
    from antiphon.client import Client

__all__ = ["Check", "Report", "State", "examine_server"]

T = TypeVar("T")
State = Literal["ok", "absent", "advice", "failed"]

_PINGS = 5
_TASKS = "io.modelcontextprotocol/tasks"
_STREAMING = "dev.antiphon/streaming"
_STRANGE = "http://example.invalid"
_SHOWN = 12


class Check(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that was looked at: `absent` is no fault, `advice` is none yet."""

    name: str
    state: State
    says: str
    advice: str = ""
    data: Any = None
    ms: float | None = None


class Report(msgspec.Struct, frozen=True):
    """All that was found out about a server."""

    target: str
    server: dict[str, Any]
    version: str
    checks: list[Check]

    @property
    def ok(self) -> bool:
        """Whether nothing has failed."""
        return all(check.state != "failed" for check in self.checks)


def examine_server(target: Target, *, as_json: bool) -> int:
    """Look at a server and print what was found; the exit code. Raises `CommandError`."""
    from antiphon.cli.doctor import report as shown

    try:
        report = run(_examined(target))
    except CommandError as error:
        if as_json:
            shown.unreachable(target, error.message)
        raise
    shown.as_json(report) if as_json else shown.report(report)
    return 0 if report.ok else FAILED


async def _examined(target: Target) -> Report:
    from antiphon.wire.client.dialect import KNOWN_VERSIONS

    began = time.perf_counter()
    try:
        async with target.client(connect_timeout=target.timeout) as client:
            connected = _ms(began)
            known: dict[str, Any] = {client.version: client.capabilities}
            checks = [await _answers(client, connected), *await _offers(client)]
            server = msgspec.to_builtins(client.server) if client.server else {}
            spoken = client.version
    except AntiphonError as error:
        raise await _stranger(target, error) from error
    others = [version for version in KNOWN_VERSIONS if version != spoken]
    tried = await asyncio.gather(*(_speaks(target, version) for version in others))
    refusals = {
        version: found for version, found in zip(others, tried, strict=True) if isinstance(found, str)
    }
    known |= {
        version: found for version, found in zip(others, tried, strict=True) if not isinstance(found, str)
    }
    versions = [version for version in KNOWN_VERSIONS if version in known]
    checks.insert(1, _versions(versions, refusals, KNOWN_VERSIONS[:2]))
    checks += _abilities(known, next(check.data for check in checks if check.name == "tools"))
    checks += await _guards(target)
    return Report(_name(target), server, spoken, checks)


async def _stranger(target: Target, error: AntiphonError) -> Exception:
    """What to say of an address that does not answer as a server does."""
    from antiphon.cli.doctor.diagnosis import explained

    if not isinstance(target.place, str):
        return error
    message = await explained(target, error)
    return error if message is None else CommandError(message, UNREACHABLE)


async def _answers(client: Client, connected: float) -> Check:
    """Whether it goes on answering, and how quickly."""
    taken = []
    try:
        for _ in range(_PINGS):
            began = time.perf_counter()
            await client.ping()
            taken.append(_ms(began))
    except RequestError as error:
        return Check("answers", "failed", f"ping got an error: {error.message}", ms=connected)
    median = statistics.median(taken)
    said = f"within {_figure(median)} (median of {_PINGS}); came to terms in {_figure(connected)}"
    return Check("answers", "ok", said, data={"connect": connected, "pings": taken}, ms=median)


async def _offers(client: Client) -> list[Check]:
    """What can be listed, and whether it can."""
    tools = await _listed(client, "tools", client.tools())
    checks = [tools if tools.state == "failed" else _described(tools)]
    checks.append(await _listed(client, "resources", client.resources()))
    if checks[-1].state != "absent" or "resources" in client.capabilities:
        checks.append(await _listed(client, "templates", client.templates(), of="resources"))
    checks.append(await _listed(client, "prompts", client.prompts()))
    more = [name for name in ("completions", "logging") if name in client.capabilities]
    tells = [kind for kind in ("tools", "resources", "prompts") if _flag(client, kind, "listChanged")]
    if _flag(client, "resources", "subscribe"):
        more.append("subscriptions to resources")
    if tells:
        more.append(f"news of changes to its {' and '.join(tells)}")
    return [*checks, Check("also", "ok" if more else "absent", ", ".join(more) or "nothing", data=more)]


async def _listed(
    client: Client, kind: str, listing: Awaitable[Sequence[Any]], of: str | None = None
) -> Check:
    if (of or kind) not in client.capabilities:
        _close(listing)
        return Check(kind, "absent", "none", data=[])
    began = time.perf_counter()
    try:
        found = await listing
    except RequestError as error:
        said = f"it declares {of or kind}, and cannot list them: {error.message}"
        return Check(kind, "failed", said, "Correct the server: what is declared has to work.", data=[])
    taken = _ms(began)
    names = [str(getattr(each, "name", None) or getattr(each, "uri", "?")) for each in found]
    data = list(found) if kind == "tools" else names
    return Check(kind, "ok" if found else "absent", _few(names) or "none", data=data, ms=taken)


def _described(check: Check) -> Check:
    """The tools, with what a model would miss."""
    silent = [tool.name for tool in check.data if not (tool.description or "").strip()]
    if not silent:
        return check
    advice = f"Describe {_few(silent, counted=False)}: a model cannot tell what they are for."
    return msgspec.structs.replace(check, state="advice", advice=advice)


async def _speaks(target: Target, version: str) -> Mapping[str, Any] | str:
    """What a server declares in a version, or why it does not speak it."""
    try:
        async with target.client(protocol=version, connect_timeout=target.timeout) as client:
            return client.capabilities
    except AntiphonError as error:
        return str(error)


def _versions(spoken: list[str], refusals: Mapping[str, str], current: Sequence[str]) -> Check:
    advice = ""
    if missing := [version for version in current if version not in spoken]:
        advice = f"Clients that only know {' or '.join(missing)} cannot use it."
    said = ", ".join(spoken) + (f"; not {', '.join(refusals)}" if refusals else "")
    return Check(
        "versions", "advice" if advice else "ok", said, advice, {"spoken": spoken, "refused": refusals}
    )


def _abilities(known: Mapping[str, Mapping[str, Any]], tools: Sequence[ToolDefinition]) -> list[Check]:
    """Promises and streaming, each of which is declared otherwise in each version."""
    tasks, streaming = [], []
    for version, capabilities in known.items():
        extensions = capabilities.get("extensions") or {}
        core = capabilities.get("tasks")
        if _TASKS in extensions or core is not None:
            tasks.append(version)
        if _STREAMING in extensions or "streaming" in _modes(core):
            streaming.append(version)
    named = [
        tool.name for tool in tools if (tool.execution or {}).get("taskSupport") in ("optional", "required")
    ]
    which = f"; from {_few(named, counted=False)}" if named else ""
    return [
        Check("tasks", "ok", f"on {', '.join(tasks)}{which}", data=tasks)
        if tasks
        else Check("tasks", "absent", "none: a call that takes long holds its connection", data=[]),
        Check("streaming", "ok", f"on {', '.join(streaming)}", data=streaming)
        if streaming
        else Check("streaming", "absent", "none: a result comes whole, at the end", data=[]),
    ]


async def _guards(target: Target) -> list[Check]:
    """Whether a web page could reach a server on this machine through its visitor's browser."""
    if not isinstance(target.place, str) or not _is_local(target.place):
        return []
    strange = Target(target.place, {**target.headers, "Origin": _STRANGE}, target.timeout)
    try:
        async with strange.client(connect_timeout=target.timeout):
            pass
    except Forbidden:
        return [Check("origins", "ok", "web pages of others are refused")]
    except AntiphonError as error:
        return [Check("origins", "ok", f"web pages of others are refused ({error})")]
    return [
        Check(
            "origins",
            "advice",
            f"a request from {_STRANGE} is served",
            "Check the Origin header: a page that someone here visits could call this server.",
        )
    ]


def _is_local(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _modes(core: Any) -> Sequence[Any]:
    responses = core.get("responses") if isinstance(core, dict) else None
    modes = responses.get("modes") if isinstance(responses, dict) else None
    return modes if isinstance(modes, list) else ()


def _flag(client: Client, kind: str, flag: str) -> bool:
    declared = client.capabilities.get(kind)
    return isinstance(declared, dict) and bool(declared.get(flag))


def _few(names: Sequence[str], *, counted: bool = True) -> str:
    """Some of many names."""
    shown = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
    return f"{len(names)}: {shown}" if counted and names else shown


def _figure(ms: float) -> str:
    return f"{ms:.1f} ms" if ms < 10 else f"{ms:.0f} ms"


def _ms(began: float) -> float:
    return round((time.perf_counter() - began) * 1000, 2)


def _name(target: Target) -> str:
    return target.place if isinstance(target.place, str) else target.place[4]


def _close(listing: Any) -> None:
    listing.close()
