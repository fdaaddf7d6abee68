"""The origin that Apps run on: one page, which holds an App in a frame and passes messages on.

The page is served by the app of the console, under another host name or port. It has no state: its address
names the console that shows it and the domains that the App may reach, and this module checks both. It must
not know servers, people or cookies.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

from antiphon.console.apps.policy import (
    allowed_csp,
    connection_allowlist,
    read_domains,
    sandbox_policy,
    write_domains,
)
from antiphon.console.guard import ConsoleGuard
from antiphon.errors import DefinitionError
from antiphon.model.ui import UiCsp
from antiphon.transport.server.http.asgi import Receive, Scope, Send
from antiphon.transport.server.http.router import HttpResponse

__all__ = ["Sandbox"]

_PAGE = Path(__file__).parent / "sandbox.html"
_SEND_SECONDS = 30.0
"""How long a client may take no part of the page before it is disconnected."""
_MAX_FIELDS = 200
_HOST = re.compile(r"[\w.\-:\[\]]+", re.ASCII)
_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
    # A browser looks up the names in links, which would be a way out.
    "x-dns-prefetch-control": "off",
    # Keeps an App that never returns from blocking the console, which may be on the same site.
    "origin-agent-cluster": "?1",
}


class Sandbox:
    """The second origin of a console. `url` is the address of its page; `guard` knows the console's hosts.

    Raises `DefinitionError` if `url` is not an address of the web, or is the console's own, or if the console
    does not name its hosts: the sandbox shows pages for them only.
    """

    def __init__(self, url: str, guard: ConsoleGuard) -> None:
        parts = urlsplit(url)
        self._host = parts.netloc.lower()
        if parts.scheme not in ("http", "https") or not self._host or parts.query or parts.fragment:
            raise DefinitionError(
                f"The sandbox needs an address such as https://apps.example.com, not {url!r}."
            )
        if not guard.names_hosts:
            raise DefinitionError(
                "The sandbox shows Apps for the hosts of the console only. "
                "Name them: hosts=['mcp.example.com']."
            )
        if guard.is_named(self._host):
            raise DefinitionError(
                f"The sandbox needs another host name or port than the console, not {url!r}."
            )
        self._url = url
        self._guard = guard
        self.origin = f"{parts.scheme}://{self._host}"
        """The origin of the page."""

    def allowed(self, csp: UiCsp, console_host: str) -> UiCsp:
        """Return the domains of an App that it may reach in the sandbox of a console."""
        return allowed_csp(csp, (f"http://{console_host}", f"https://{console_host}", self.origin))

    def page_url(self, csp: UiCsp) -> str:
        """Return the address of the page for an App. The console adds its own origin, as `console`."""
        return f"{self._url}?{urlencode(write_domains(csp))}"

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> bool:
        """Answer a request to the sandbox; return false if it is for the console."""
        hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        if len(hosts) != 1 or hosts[0].lower() != self._host:
            return False
        response = self.respond(scope["method"], scope.get("query_string", b"").decode("latin-1"))
        await response.send(send, receive, timeout=_SEND_SECONDS, head=scope["method"] == "HEAD")
        return True

    def respond(self, method: str, query: str) -> HttpResponse:
        """Return the page, whatever the path is: the sandbox has no other."""
        if method not in ("GET", "HEAD"):
            return HttpResponse("Use GET.", status=405, headers={"allow": "GET, HEAD"})
        try:
            fields = parse_qsl(query, max_num_fields=_MAX_FIELDS)
            console = urlsplit(dict(fields).get("console", ""))
            is_known = console.scheme in ("http", "https") and self._guard.is_own(console.netloc.lower())
        except ValueError:  # too many fields, or an address that is none
            is_known = False
        # A host of the console contains nothing that has a meaning in a policy or in HTML.
        if not is_known or not _HOST.fullmatch(console.netloc):
            return HttpResponse("Only the console shows this page.", status=403)
        origin = f"{console.scheme}://{console.netloc}"
        csp = self.allowed(read_domains(fields), console.netloc)
        page = _page().replace('data-console=""', f'data-console="{origin}"', 1)
        headers = {
            **_HEADERS,
            "content-security-policy": sandbox_policy(csp, origin),
            "connection-allowlist": connection_allowlist(csp),
        }
        return HttpResponse(page, media_type="text/html; charset=utf-8", headers=headers)


@functools.cache
def _page() -> str:
    return _PAGE.read_text(encoding="utf-8")
