"""The policy that an App runs under, made of the domains that its server names. Pure.

Owns the Content-Security-Policy of the sandbox, and how the domains travel in the address of the sandbox. An
App gets the domains that it names and nothing else, and never the console.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from urllib.parse import SplitResult, urlsplit

from antiphon.model.ui import CSP_FIELDS, UiCsp, problem_of_domain
from antiphon.transport.server.http.guard import is_local

__all__ = [
    "FRAME_SANDBOX",
    "MAX_DOMAINS",
    "allowed_csp",
    "connection_allowlist",
    "read_domains",
    "sandbox_policy",
    "write_domains",
]

FRAME_SANDBOX = "allow-scripts allow-same-origin allow-forms"
"""What the page of the sandbox may do. The App inside it has no origin, and so no storage and no cookies."""
MAX_DOMAINS = 32
"""How many domains of each kind an App gets. Browsers and proxies bound the length of headers."""

_NOTHING = "'none'"


def allowed_csp(csp: UiCsp, own_origins: Collection[str]) -> UiCsp:
    """Return the domains of an App without those that are no origins, and without the console's own."""
    return UiCsp(
        **{
            name: tuple(
                domain
                for domain in getattr(csp, name)
                if problem_of_domain(domain, name) is None and not _covers(domain, own_origins)
            )[:MAX_DOMAINS]
            for name in CSP_FIELDS
        }
    )


def sandbox_policy(csp: UiCsp, console: str) -> str:
    """Return the policy of the page of the sandbox, which only this console shows.

    The App inside the page inherits the policy. The App cannot leave its frame either: `frame-src` of the
    page is about every address that the frame of the App is navigated to.
    """
    resources = csp.resource_domains
    directives: Mapping[str, Sequence[str]] = {
        "default-src": (),
        "script-src": ("'unsafe-inline'", *resources),
        "style-src": ("'unsafe-inline'", *resources),
        "img-src": ("data:", *resources),
        "font-src": resources,
        "media-src": ("data:", *resources),
        "connect-src": csp.connect_domains,
        "frame-src": csp.frame_domains,
        "object-src": (),
        "base-uri": csp.base_uri_domains,
        "form-action": (),
        "frame-ancestors": (console,),
        "sandbox": (FRAME_SANDBOX,),
    }
    return "; ".join(f"{name} {' '.join(values) or _NOTHING}" for name, values in directives.items())


def connection_allowlist(csp: UiCsp) -> str:
    """Return the value of the header `Connection-Allowlist` for an App.

    Browsers that know it also refuse what a policy does not cover: WebRTC, and connections that are made
    before an address is refused. https://wicg.github.io/connection-allowlists
    """
    domains = dict.fromkeys((*csp.connect_domains, *csp.resource_domains, *csp.frame_domains))
    # The policy is checked for redirected requests too.
    listed = " ".join(f'"{each}"' for each in domains)
    return f"({listed});redirects=allow"


def write_domains(csp: UiCsp) -> list[tuple[str, str]]:
    """Return the domains of an App as fields of an address."""
    return [(name, domain) for name in CSP_FIELDS for domain in getattr(csp, name)]


def read_domains(fields: Sequence[tuple[str, str]]) -> UiCsp:
    """Return the domains in the fields of an address, as they are: `allowed_csp` has to check them."""
    return UiCsp(**{name: tuple(value for field, value in fields if field == name) for name in CSP_FIELDS})


def _covers(domain: str, origins: Collection[str]) -> bool:
    """Return whether a domain of a policy includes one of these origins, by its name or by a wildcard."""
    try:
        pattern = urlsplit(domain.lower())
        # A browser also takes a domain of http: for the same one of https:.
        ports = (_port(pattern), 443 if _port(pattern) == 80 else None)
        owns = [urlsplit(origin) for origin in origins]
        return any(_port(own) in ports and _is_same(pattern.hostname, own.hostname) for own in owns)
    except ValueError:  # a port that there is not: the domain is of no use
        return True


def _is_same(pattern: str | None, host: str | None) -> bool:
    """Return whether a name of a policy, with or without a wildcard, is that of a host."""
    if pattern is None or host is None:
        return False
    if pattern.startswith("*."):
        return host.endswith(pattern[1:])
    return pattern == host or (is_local(pattern) and is_local(host))


def _port(parts: SplitResult) -> int:
    return parts.port or (443 if parts.scheme in ("https", "wss") else 80)
