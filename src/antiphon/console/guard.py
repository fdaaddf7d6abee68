"""Refuses requests that other web pages send through a person's browser, and sets the policy of the pages.

Knows headers only. A browser sends the cookie of the console also to other ports of the same machine and from
them, so every request must name the console's own host, and a write must come from the console's own page.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from antiphon.console.routes import Problem
from antiphon.transport.server.http.guard import is_local, without_port

__all__ = ["ConsoleGuard", "security_headers"]

_READS = ("GET", "HEAD")


class ConsoleGuard:
    """Checks where a request comes from. `hosts` are the values of the Host header that the console has.

    A host without a port is trusted with every port. `None` trusts local names at a loopback address, and
    every name at another address: use it only if people sign in with credentials that browsers do not send
    by themselves to another host.
    """

    def __init__(self, hosts: Collection[str] | None) -> None:
        self._hosts = None if hosts is None else {host.lower() for host in hosts}

    def check(
        self, method: str, headers: Mapping[str, str], *, navigates: bool, server: str | None = None
    ) -> None:
        """Check a request; raises `Problem`. `navigates` means that the address is a page of its own.

        `server` is the address at which the request arrived, if the ASGI server knows it.
        """
        host = headers.get("host", "").lower()
        if not self.is_own(host, server):
            raise Problem(421, "This console does not have this host name. Use the address that it printed.")
        site = headers.get("sec-fetch-site")
        origin = headers.get("origin")
        if method in _READS:
            if not navigates and site not in (None, "same-origin", "none"):
                raise Problem(403, "Another web page asked for this. Open the console itself.")
            return
        if origin is not None and origin.lower() not in (f"http://{host}", f"https://{host}"):
            raise Problem(403, "Another web page sent this. Open the console itself.")
        if site not in (None, "same-origin") or (site is None and origin is None):
            raise Problem(
                403, "Only the console's own page may send this. A program has to send its Origin header."
            )

    @property
    def names_hosts(self) -> bool:
        """Whether the console knows its host names."""
        return self._hosts is not None

    def is_named(self, host: str) -> bool:
        """Return whether the hosts of the console name a host exactly."""
        return self._hosts is not None and host in self._hosts

    def is_own(self, host: str, server: str | None = None) -> bool:
        """Return whether a host, with its port, is one of the console."""
        if self._hosts is None:
            return bool(host) and (server is None or not is_local(server) or is_local(without_port(host)))
        return host in self._hosts or without_port(host) in self._hosts or "*" in self._hosts


def security_headers(frame_origin: str | None) -> dict[str, str]:
    """Return the headers of every response. Apps are shown in frames of `frame_origin`, if there is one."""
    policy = {
        "default-src": "'none'",
        "script-src": "'self'",
        "style-src": "'self'",
        "img-src": "'self' data:",
        "connect-src": "'self'",
        "frame-src": frame_origin or "'none'",
        "base-uri": "'self'",
        "form-action": "'self'",
        "frame-ancestors": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }
    return {
        "content-security-policy": "; ".join(f"{name} {value}" for name, value in policy.items()),
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
    }
