"""Checks of the path, the Host, the Origin and the media types of a request, before it is read.

https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#security-%26-endpoint
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from antiphon.errors import BadMediaType, BadOrigin, NoEndpoint, NotAcceptable, RequestError
from antiphon.transport.server.http.cors import Cors

__all__ = ["Guard", "accepts", "exposures", "is_local", "without_port"]

_MAX_CACHED_CHECKS = 256
_MAX_CACHED_BYTES = 1024
"""How long the path and the headers of a check are together that is cached: a client may send any."""
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*")
_OPTION = re.compile(r"[a-z0-9._:/-]+")
"""What can be the value of an option as it stands, in any shell."""


class Guard:
    """Refuses requests that web pages of other sites send through a visitor's browser.

    A page can lead its own name to any address, and so reach a server in the network of its visitor (DNS
    rebinding). So unless `hosts` are named, only `localhost` and addresses are trusted, and at a loopback
    address only local ones. A server that authenticates its callers may have any name at an address that
    other machines reach: such a page has no token. `origins` are the pages of other sites that are trusted.

    Caches the outcome for each combination of headers, because most requests of a client have the same ones.
    """

    def __init__(
        self,
        paths: Collection[str],
        hosts: Sequence[str] | None,
        origins: Sequence[str] | None,
        *,
        authenticates: bool = False,
    ) -> None:
        self._paths = frozenset(paths)
        self._hosts = None if hosts is None else {host.lower() for host in hosts}
        self._authenticates = authenticates
        self.cors = None if origins is None else Cors(origins)
        """Knows the origins that are named; `None` if the pages of this machine are trusted."""
        self.checked: dict[tuple[Any, ...], RequestError | None] = {}
        """The outcome of a check, by path and headers: an error, or `None`."""
        self._last_allowed: tuple[Any, ...] = ()
        """The path and headers of the last request that was allowed. Most requests equal it."""

    def check(self, scope: Mapping[str, Any], headers: Mapping[bytes, bytes]) -> None:
        """Check a request; raises `NoEndpoint`, `BadOrigin` or `BadMediaType`."""
        get = headers.get
        key = (
            scope["path"],
            scope.get("root_path"),
            scope.get("server"),
            get(b"host"),
            get(b"origin"),
            get(b"content-type"),
        )
        if key == self._last_allowed:
            return
        try:
            problem = self.checked[key]
        except KeyError:
            problem = self._find_problem(scope, headers)
            if len(scope["path"]) + sum(map(len, filter(None, key[3:]))) > _MAX_CACHED_BYTES:
                if problem is not None:
                    raise problem from None
                return
            if len(self.checked) >= _MAX_CACHED_CHECKS:
                self.checked.clear()
            self.checked[key] = problem
        if problem is not None:
            raise type(problem)(problem.message)
        self._last_allowed = key

    def _find_problem(self, scope: Mapping[str, Any], headers: Mapping[bytes, bytes]) -> RequestError | None:
        """Return the error for a request, or `None` if the request is allowed."""
        path, root = scope["path"], scope.get("root_path", "")
        if (path.removeprefix(root) if root else path) not in self._paths:
            return NoEndpoint(f"There is no MCP endpoint at {path}.")
        problem = self._find_origin_problem(scope, headers, authenticates=self._authenticates)
        if problem is not None:
            return problem
        try:
            check_content_type(headers)
        except BadMediaType as error:
            return error
        return None

    def check_page(self, scope: Mapping[str, Any], headers: Mapping[bytes, bytes]) -> None:
        """Check a request for a page, which authenticates nobody; raises `BadOrigin`."""
        problem = self._find_origin_problem(scope, headers)
        if problem is not None:
            raise problem

    def check_named(self, headers: Mapping[bytes, bytes]) -> None:
        """Check that the origin of a request is named; raises `BadOrigin`."""
        origin = _text(headers.get(b"origin"))
        if self.cors is None or not self.cors.names(origin):
            raise BadOrigin(_unknown_origin(origin))

    def check_probe(self, scope: Mapping[str, Any], headers: Mapping[bytes, bytes]) -> None:
        """Check a request for a probe; raises `BadOrigin`.

        Health checks name the process by its address, whatever names its clients use: an address is trusted
        also if `hosts` are named.
        """
        problem = self._find_origin_problem(scope, headers, trusts_addresses=True)
        if problem is not None:
            raise problem

    def _find_origin_problem(
        self,
        scope: Mapping[str, Any],
        headers: Mapping[bytes, bytes],
        *,
        authenticates: bool = False,
        trusts_addresses: bool = False,
    ) -> RequestError | None:
        server = scope.get("server")
        local = server is not None and is_local(str(server[0]))
        host, origin = _text(headers.get(b"host")), _text(headers.get(b"origin"))
        is_trusted = self._is_trusted_host(host, local, authenticates=authenticates)
        if not is_trusted and not (trusts_addresses and _is_no_name(host)):
            return BadOrigin(_unknown_host(host))
        if origin and not self._is_trusted_origin(origin, host, local):
            return BadOrigin(_unknown_origin(origin))
        return None

    def _is_trusted_host(self, host: str, local: bool, *, authenticates: bool) -> bool:
        if self._hosts is not None:
            return "*" in self._hosts or host in self._hosts or without_port(host) in self._hosts
        if local:
            return not host or is_local(without_port(host))
        return authenticates or _is_no_name(host)

    def _is_trusted_origin(self, origin: str, host: str, local: bool) -> bool:
        if self.cors is not None and self.cors.names(origin):
            return True
        scheme, _, authority = origin.partition("://")
        if not _SCHEME.fullmatch(scheme):
            return False
        if authority and authority == host:
            return True
        return self.cors is None and local and is_local(without_port(authority))


def _unknown_host(host: str) -> str:
    name = without_port(host)
    name = name if _OPTION.fullmatch(name) else "NAME"
    return (
        f"This server does not trust the host {host!r}, because somebody else's web page could have given it "
        f"this name. If it is a name of the server, say so: --hosts {name} (ANTIPHON_HOSTS), or "
        f'server.asgi(hosts=["{name}"]) in a program.'
    )


def _unknown_origin(origin: str) -> str:
    name = origin if _OPTION.fullmatch(origin) else "ORIGIN"
    return (
        f"This server does not trust pages from {origin!r}. If they may call it, say so: --origins {name} "
        f'(ANTIPHON_ORIGINS), or server.asgi(origins=["{name}"]) in a program.'
    )


def exposures(name: str, host: str, hosts: Sequence[str] | None, origins: Sequence[str] | None) -> list[str]:
    """Return the warnings for a server without authentication that strangers can call.

    `host` is its address. `hosts` are the names that its guard trusts, and `origins` the pages.
    """
    found = []
    if not is_local(host):
        advice = "pass authenticate= to Server"
        if hosts is None:
            advice += ", and name the hosts to which it answers beside addresses and localhost: --hosts NAME"
        found.append(
            f"Everybody who reaches {host} can call {name}, because it does not authenticate: {advice}."
        )
    for option, values, trusts in (
        ("--hosts", hosts, "answers to every host name"),
        ("--origins", origins, "trusts the pages of every origin"),
    ):
        if "*" in (values or ()):
            found.append(
                f"Any web page that is open where {host} can be reached can call {name}, because it {trusts} "
                f"({option} *) and does not authenticate: name them, or pass authenticate= to Server."
            )
    return found


def check_content_type(headers: Mapping[bytes, bytes]) -> None:
    """Check the media type of the body; raises `BadMediaType` if it is not JSON."""
    content_type = headers.get(b"content-type")
    if content_type is None or content_type == b"application/json":
        return
    if content_type.partition(b";")[0].strip().lower() != b"application/json":
        raise BadMediaType("The body must be JSON: send Content-Type: application/json.")


accepted_headers: dict[bytes | None, tuple[bool, bool]] = {
    None: (True, True),
    b"application/json, text/event-stream": (True, True),
}
"""What `accepts` has found for each Accept header."""


def accepts(accept: bytes | None) -> tuple[bool, bool]:
    """Return whether the client prefers JSON, and whether it accepts event streams.

    A client that names event streams before JSON prefers event streams. Raises `NotAcceptable` if the client
    accepts neither.
    """
    accepted = accepted_headers.get(accept)
    if accepted is None:
        accepted = _read_accept(_text(accept))
        if len(accepted_headers) < _MAX_CACHED_CHECKS and len(accept or b"") <= _MAX_CACHED_BYTES:
            accepted_headers[accept] = accepted
    if accepted == (False, False):
        raise NotAcceptable(
            "The response is JSON or an event stream: send Accept: application/json, text/event-stream."
        )
    return accepted


def _read_accept(accept: str) -> tuple[bool, bool]:
    ranges = [part.partition(";")[0].strip(" \t") for part in accept.split(",")]
    json = [
        place for place, kind in enumerate(ranges) if kind in ("application/json", "application/*", "*/*")
    ]
    stream = [place for place, kind in enumerate(ranges) if kind in ("text/event-stream", "text/*", "*/*")]
    return bool(json) and (not stream or json[0] <= stream[0]), bool(stream)


def without_port(host: str) -> str:
    """Return a host without its port, or the whole text if this is not a host and a port."""
    name, colon, port = host.rpartition(":")
    if not colon or host.endswith("]"):
        return host
    return name if port.isdecimal() or not port else host


def _is_no_name(host: str) -> bool:
    """Return whether a host is no name that a page could have chosen: an address, `localhost` or nothing."""
    name = without_port(host)
    return not host or name == "localhost" or _address(name) is not None


def is_local(host: str) -> bool:
    """Return whether a host is `localhost` or a loopback address, also one that is mapped into IPv6."""
    address = _address(host)
    return host == "localhost" if address is None else address.is_loopback


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the address that a host is, or `None` if it is a name."""
    text = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if (
        "%" in text
    ):  # the zone of a link-local address. No browser sends one, so it only looks like an address
        return None
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return address if mapped is None else mapped


def _text(raw: bytes | None) -> str:
    return "" if raw is None else raw.decode("latin-1").strip(" \t").lower()
