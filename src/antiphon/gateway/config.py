"""Reads the servers of a configuration file, as desktop hosts have it.

Owns the format: `{"mcpServers": {NAME: {"command": …, "args": […], "env": {…}}, NAME: {"url": …}}}`, with the
spellings of the hosts that people have. Keys that only a host knows are ignored. Values can be secrets, so
messages name keys and never show values.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from antiphon.errors import DefinitionError
from antiphon.gateway.jsonc import plain_json
from antiphon.gateway.names import prefix_for
from antiphon.gateway.options import Mounted

__all__ = ["ConfiguredServers", "read_config"]

_MAX_FILE_BYTES = 1024 * 1024
_MAX_SERVERS = 100
_VARIABLE = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
"""A variable of the environment: `${TOKEN}`, `${env:TOKEN}`, or with a default `${TOKEN:-none}`."""
_HOST_VALUE = re.compile(r"\$\{(input|command|config):")
"""A value that the host asks its user for, or computes."""
_Word = str | int | float | bool
"""A word of a command, or a variable of its environment; some files have numbers there."""


class ConfiguredServers(NamedTuple):
    """The servers of a file, and what is wrong with the entries that are left out."""

    servers: list[Mounted]
    problems: list[str]


class _Switch(msgspec.Struct):
    """Whether an entry is used at all. The rest of an entry that is not used may be anything."""

    disabled: Any = False
    enabled: Any = True


class _Entry(msgspec.Struct, rename="camel"):
    """One server of the file."""

    command: str | None = None
    args: list[_Word] | None = None
    env: dict[str, _Word | None] | None = None
    cwd: str | None = None
    url: str | None = None
    server_url: str | None = None
    http_url: str | None = None
    type: str | None = None
    transport: Any = None
    headers: dict[str, _Word] | None = None
    tasks: list[str] | None = None
    timeout: float | None = None
    protocol: str | None = None
    scopes: list[str] | None = None

    @property
    def address(self) -> str | None:
        """The URL, by whichever name it has."""
        return self.http_url or self.server_url or self.url or None

    @property
    def is_sse(self) -> bool:
        """Whether the server speaks the transport of 2024-11-05."""
        return self.http_url is None and "sse" in (self.type, self.transport)


_Entries = dict[str, msgspec.Raw] | None


class _Mcp(msgspec.Struct):
    servers: _Entries = None


class _File(msgspec.Struct, rename="camel"):
    mcp_servers: _Entries = None
    servers: _Entries = None
    context_servers: _Entries = msgspec.field(default=None, name="context_servers")
    mcp: _Mcp | None = None

    @property
    def entries(self) -> _Entries:
        """The servers, by whichever name the file has for them."""
        nested = None if self.mcp is None else self.mcp.servers
        return self.mcp_servers or self.servers or self.context_servers or nested


def read_config(path: str | Path) -> ConfiguredServers:
    """Return the servers of a file, without the disabled ones, and the problems of those that are left out.

    Raises `DefinitionError` if the file cannot be read, or no server is left.
    """
    file = Path(path)
    try:
        if file.stat().st_size > _MAX_FILE_BYTES:
            raise DefinitionError(f"{file} has more than {_MAX_FILE_BYTES} bytes.")
        read = msgspec.json.decode(plain_json(file.read_text(encoding="utf-8-sig")), type=_File)
    except OSError as error:
        raise DefinitionError(f"Cannot read {file}: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise DefinitionError(f"{file} is not text in UTF-8.") from None
    except msgspec.DecodeError as error:
        raise DefinitionError(f"{file} is not a configuration of MCP servers: {_place(error)}.") from None
    entries = read.entries
    if not entries:
        raise DefinitionError(f'{file} names no servers. Write {{"mcpServers": {{"name": {{"url": "…"}}}}}}.')
    if len(entries) > _MAX_SERVERS:
        raise DefinitionError(f"{file} names more than {_MAX_SERVERS} servers.")
    found: dict[str, str] = {}
    servers, problems = [], []
    for name, raw in entries.items():
        try:
            mounted = _server(f"{file}: {name!r}", name, raw, file.parent)
        except DefinitionError as error:
            problems.append(str(error))
            continue
        if mounted is None:
            continue
        if mounted.name in found:
            raise DefinitionError(
                f"{file}: the servers {found[mounted.name]!r} and {name!r} both get the prefix "
                f"{mounted.name!r}. Rename one of them."
            )
        found[mounted.name] = name
        servers.append(mounted)
    if not servers:
        raise DefinitionError(problems[0] if problems else f"{file}: all servers are disabled.")
    return ConfiguredServers(servers, problems)


def _server(where: str, name: str, raw: msgspec.Raw, folder: Path) -> Mounted | None:
    """Return the server of an entry; `None` if it is disabled. Raises `DefinitionError`."""
    try:
        switch = msgspec.json.decode(raw, type=_Switch)
        if switch.disabled is True or switch.enabled is False:
            return None
        entry = msgspec.json.decode(raw, type=_Entry)
    except msgspec.DecodeError as error:
        raise DefinitionError(f"{where} is not a server: {_place(error)}.") from None
    if bool(entry.command) == bool(entry.address):
        raise DefinitionError(f'{where} needs either a "command" or a "url".')
    if entry.is_sse:
        raise DefinitionError(
            f'{where} uses the transport "sse", which protocol version 2025-03-26 replaced. Use the URL of '
            'its endpoint for streamable HTTP, with "type": "http".'
        )
    if entry.timeout is not None and not entry.timeout > 0:
        raise DefinitionError(f'{where}: "timeout" is not a positive number of seconds.')
    values: dict[str, Any] = {
        "name": prefix_for(name),
        "tasks": tuple(entry.tasks or ()),
        "timeout": entry.timeout,
        "protocol": entry.protocol,
        "scopes": entry.scopes,
    }
    if entry.command:
        command = [_expanded(where, _text(part)) for part in (entry.command, *(entry.args or ()))]
        cwd = None if entry.cwd is None else folder / Path(_expanded(where, entry.cwd)).expanduser()
        return Mounted(target=command, env=_all_expanded(where, entry.env or {}), cwd=cwd, **values)
    return Mounted(
        target=_checked_url(where, _expanded(where, str(entry.address))),
        headers=_checked_headers(where, _all_expanded(where, entry.headers or {})),
        **values,
    )


def _text(value: _Word) -> str:
    """Return a value as a host passes it on."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _checked_url(where: str, url: str) -> str:
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_valid = False
    if not is_valid:
        raise DefinitionError(f'{where}: "url" is not an address that begins with http:// or https://.')
    return url


def _checked_headers(where: str, headers: dict[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        if not value.isascii() or not value.isprintable():
            raise DefinitionError(f"{where}: the header {name!r} has characters that a header cannot have.")
    return headers


def _all_expanded(where: str, values: Mapping[str, _Word | None]) -> dict[str, str]:
    return {
        name: _expanded(f"{where}, {name}", _text(value))
        for name, value in values.items()
        if value is not None
    }


def _expanded(where: str, value: str) -> str:
    """Return a value with the variables of the environment that it names; raises `DefinitionError`."""
    if asked := _HOST_VALUE.search(value):
        raise DefinitionError(
            f"{where} uses ${{{asked[1]}:…}}, a value that only a desktop host has. Set a variable of the "
            "environment, and write ${NAME}."
        )

    def replace(match: re.Match[str]) -> str:
        name, default = match.groups()
        found = os.environ.get(name)
        if found is None and name.lower() == "userhome":
            return str(Path.home())
        if not found and default is not None:  # as in a shell, also in place of an empty text
            return str(default)
        if found is None:
            raise DefinitionError(f"{where} uses the variable {name}, which is not set.")
        return found

    return _VARIABLE.sub(replace, value)


def _place(error: Exception) -> str:
    """Return what is wrong with JSON. msgspec names types and paths, and never quotes a value."""
    return str(error).rstrip(".")
