"""MCP Apps: pages that a server offers and a host shows, and the metadata that describes them.

Owns the names of the extension, and how `_meta.ui` is written and read. Metadata from the other side may be
anything: fields that are not as specified are left out. It must not know how a page is served or shown.
https://github.com/modelcontextprotocol/ext-apps/blob/main/specification/2026-01-26/apps.mdx
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, get_args

import msgspec

__all__ = [
    "APP_MIME_TYPE",
    "CSP_FIELDS",
    "PERMISSIONS",
    "TOOL_UI_KEY",
    "UI_EXTENSION",
    "UI_QUESTIONS",
    "UI_SCHEME",
    "UI_SUPPORT",
    "VISIBILITIES",
    "Permission",
    "UiCsp",
    "UiSettings",
    "Visibility",
    "asks_in_ui",
    "declare_ui",
    "problem_of_domain",
    "read_ui",
    "shows_ui",
    "tool_ui",
    "tool_visibility",
]

UI_EXTENSION = "io.modelcontextprotocol/ui"
UI_SCHEME = "ui://"
APP_MIME_TYPE = "text/html;profile=mcp-app"
TOOL_UI_KEY = "resourceUri"
"""The field of a tool's `_meta.ui` that names its App."""
UI_SUPPORT: Mapping[str, Any] = {"mimeTypes": [APP_MIME_TYPE]}
"""The settings of the extension, as clients and servers declare them."""
UI_QUESTIONS: Mapping[str, Any] = {**UI_SUPPORT, "elicitation": {}}
"""The settings of clients and servers that also let an App ask a question. Experimental, SEP-3118."""

Permission: TypeAlias = Literal["camera", "microphone", "geolocation", "clipboard_write"]
"""A feature of the browser that an App asks for."""
Visibility: TypeAlias = Literal["model", "app"]
"""Who may use a tool: the model, and the Apps of the same server."""

PERMISSIONS: Mapping[str, str] = {
    **{name: name for name in get_args(Permission)},
    "clipboard_write": "clipboardWrite",
}
"""The permissions, and their names on the wire."""
VISIBILITIES: tuple[Visibility, ...] = get_args(Visibility)
CSP_FIELDS: Mapping[str, str] = {
    "connect_domains": "connectDomains",
    "resource_domains": "resourceDomains",
    "frame_domains": "frameDomains",
    "base_uri_domains": "baseUriDomains",
}
"""The lists of domains in a policy, and their names on the wire."""

_ORIGIN = r"(https?|wss?)://((?:\*\.)?[a-z0-9-]+(?:\.[a-z0-9-]+)*)(?::[0-9]{1,5})?"
_LOCAL_HOSTS = ("localhost", "127.0.0.1")


class UiCsp(msgspec.Struct, frozen=True):
    """The origins that an App may reach. A list that is empty allows none."""

    connect_domains: tuple[str, ...] = ()
    """The origins that scripts may send requests to."""
    resource_domains: tuple[str, ...] = ()
    """The origins of images, scripts, styles, fonts and media."""
    frame_domains: tuple[str, ...] = ()
    """The origins of frames inside the App."""
    base_uri_domains: tuple[str, ...] = ()
    """The origins that the `<base>` of the document may name."""


class UiSettings(msgspec.Struct, frozen=True):
    """How a host shows an App: what the App may reach, and how it wants to look."""

    csp: UiCsp = UiCsp()
    """The origins that the App may reach."""
    permissions: tuple[Permission, ...] = ()
    """The features of the browser that the App asks for."""
    domain: str | None = None
    """The origin that the host serves the App from, in the host's own format."""
    prefers_border: bool | None = None
    """Whether the host draws a border and a background; `None` leaves it to the host."""

    def to_meta(self) -> dict[str, Any]:
        """Return the settings as they stand in `_meta.ui`."""
        value: dict[str, Any] = {}
        csp = {
            key: list(getattr(self.csp, name)) for name, key in CSP_FIELDS.items() if getattr(self.csp, name)
        }
        if csp:
            value["csp"] = csp
        if self.permissions:
            value["permissions"] = {PERMISSIONS[name]: {} for name in self.permissions}
        if self.domain is not None:
            value["domain"] = self.domain
        if self.prefers_border is not None:
            value["prefersBorder"] = self.prefers_border
        return value


def problem_of_domain(domain: Any, field: str) -> str | None:
    """Return why a list of a policy cannot have a domain; `None` if it can.

    A policy is built from the domains as text. A domain that is more than an origin could extend the policy.
    """
    if not isinstance(domain, str):
        return "it is not a string"
    match = re.fullmatch(_ORIGIN, domain, re.IGNORECASE | re.ASCII)
    if match is None:
        return "it is not an origin, such as https://api.example.com or https://*.example.com"
    scheme, host = match[1].lower(), match[2].lower()
    if scheme in ("http", "ws") and host not in _LOCAL_HOSTS:
        return f"{scheme}:// is for localhost only: use {scheme}s://"
    if scheme in ("ws", "wss") and field != "connect_domains":
        return f"{scheme}:// belongs in connect_domains"
    return None


def read_ui(meta: Any) -> UiSettings | None:
    """Return the settings of an App from the metadata of a resource; `None` if they have none."""
    ui = _field(meta, "ui")
    if not isinstance(ui, Mapping):
        return None
    csp, permissions = _field(ui, "csp"), _field(ui, "permissions")
    domain, border = ui.get("domain"), ui.get("prefersBorder")
    return UiSettings(
        csp=UiCsp(**{name: _domains(_field(csp, key), name) for name, key in CSP_FIELDS.items()}),
        permissions=tuple(
            name
            for name in get_args(Permission)
            if isinstance(_field(permissions, PERMISSIONS[name]), Mapping)
        ),
        domain=domain if isinstance(domain, str) else None,
        prefers_border=border if isinstance(border, bool) else None,
    )


def tool_ui(meta: Any) -> str | None:
    """Return the URI of the App that shows the results of a tool, from the metadata of the tool."""
    uri = _field(_field(meta, "ui"), TOOL_UI_KEY)
    if uri is None:
        uri = _field(meta, "ui/resourceUri")  # the deprecated place
    return uri if isinstance(uri, str) and uri.startswith(UI_SCHEME) else None


def tool_visibility(meta: Any) -> tuple[Visibility, ...]:
    """Return who may use a tool, from the metadata of the tool; the default is everybody."""
    named = _field(_field(meta, "ui"), "visibility")
    if not isinstance(named, Sequence) or isinstance(named, str):
        return VISIBILITIES
    return tuple(each for each in VISIBILITIES if each in named)


def shows_ui(capabilities: Mapping[str, Any]) -> bool:
    """Return whether a client with these capabilities shows Apps."""
    settings = _field(capabilities.get("extensions"), UI_EXTENSION)
    kinds = _field(settings, "mimeTypes")
    return isinstance(kinds, list | tuple) and APP_MIME_TYPE in kinds


def asks_in_ui(capabilities: Mapping[str, Any]) -> bool:
    """Return whether a client or a server with these capabilities lets Apps ask questions."""
    settings = _field(capabilities.get("extensions"), UI_EXTENSION)
    return isinstance(_field(settings, "elicitation"), Mapping)


def declare_ui(capabilities: Mapping[str, Any]) -> dict[str, Any]:
    """Return capabilities with the declaration that the client shows Apps."""
    extensions = capabilities.get("extensions")
    known = extensions if isinstance(extensions, Mapping) else {}
    return {**capabilities, "extensions": {UI_EXTENSION: UI_SUPPORT, **known}}


def _domains(value: Any, field: str) -> tuple[str, ...]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        return ()
    return tuple(each for each in value if problem_of_domain(each, field) is None)


def _field(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else None
