"""The protocol versions, newest first, and the dialect that a request gets.

A new version is one file on each side, `server/` and `client/`, and one row of `VERSIONS`. No other module
compares versions by name or by position: it asks the dialect for a capability.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec

from antiphon.errors import DefinitionError, UnsupportedVersion
from antiphon.model.identity import Implementation
from antiphon.model.request import CallTool, RequestId
from antiphon.wire.client.dialect import ClientDialect
from antiphon.wire.client.draft import ClientDraft
from antiphon.wire.client.draft_000_additional_info import ClientDraft000AdditionalInfo
from antiphon.wire.client.draft_000_messages import ClientDraft000Messages
from antiphon.wire.client.draft_001_content import ClientDraft001Content
from antiphon.wire.client.draft_001_messages import ClientDraft001Messages
from antiphon.wire.client.v2025_11_25 import ClientV2025, ClientWithoutTasks
from antiphon.wire.client.v2026_07_28 import ClientV2026
from antiphon.wire.jsonrpc import Frame
from antiphon.wire.server.dialect import Dialect, Negotiated, PlainCall
from antiphon.wire.server.draft import Draft
from antiphon.wire.server.draft_000_additional_info import Draft000AdditionalInfo
from antiphon.wire.server.draft_000_messages import Draft000Messages
from antiphon.wire.server.draft_001_content import Draft001Content
from antiphon.wire.server.draft_001_messages import Draft001Messages
from antiphon.wire.server.v2025_11_25 import V2025, WithoutStructuredContent, WithoutTasks
from antiphon.wire.server.v2026_07_28 import PROTOCOL_VERSION, V2026

__all__ = ["VERSIONS", "Dialects", "Version", "VersionTable"]

_KEY = PROTOCOL_VERSION.encode()


class Version(msgspec.Struct, frozen=True):
    """One protocol version: its name, and how each side speaks it."""

    name: str
    server: type[Dialect]
    client: type[ClientDialect] | None = None
    """`None` for a version that this library's client does not speak."""
    stateless: bool = False
    """Whether each request names the version; if not, a client opens a session first."""
    advertised: bool = True
    """Whether servers tell clients that they speak the version."""
    for_bare_requests: bool = False
    """Whether the version is used for requests that name no version and belong to no session."""

    def __post_init__(self) -> None:
        """Raise `ValueError` for a row that contradicts its client dialect."""
        if self.client is not None and self.client.has_sessions == self.stateless:
            raise ValueError(
                f"{self.name} is stateless or has sessions, and {self.client.__name__} disagrees."
            )


class VersionTable:
    """The versions that this library speaks, newest first."""

    def __init__(self, *rows: Version) -> None:
        self._rows = rows

    def __iter__(self) -> Iterator[Version]:
        return iter(self._rows)

    @property
    def advertised(self) -> tuple[str, ...]:
        """The names that a server tells its clients."""
        return tuple(row.name for row in self._rows if row.advertised)

    @property
    def spoken_by_client(self) -> tuple[str, ...]:
        """The names of the versions that a client can use."""
        return tuple(row.name for row in self._rows if row.client is not None)

    def find(self, name: object) -> Version | None:
        """Return the version of that name; `None` if the table has none."""
        return next((row for row in self._rows if row.name == name), None)

    def newest(self, *, stateless: bool) -> Version:
        """Return the newest advertised version of that kind."""
        return next(row for row in self._rows if row.advertised and row.stateless == stateless)

    @property
    def bare(self) -> Version:
        """The version of requests that name none and belong to no session."""
        return next(row for row in self._rows if row.for_bare_requests)

    def newest_of(self, offered: Iterable[Any]) -> Version | None:
        """Return the newest offered version that a client can use; `None` if it can use none."""
        names = {name for name in offered if isinstance(name, str)}
        return next((row for row in self._rows if row.client is not None and row.name in names), None)

    def only(self, names: Iterable[str]) -> VersionTable:
        """Return the table with these versions alone; raises `DefinitionError` for one that is not in it."""
        if isinstance(names, str):
            raise DefinitionError(f"Server(protocols=) is a list: write protocols=[{names!r}].")
        chosen = set(names)
        if unknown := sorted(chosen - {row.name for row in self._rows}):
            known = ", ".join(row.name for row in self._rows)
            raise DefinitionError(f"Server(protocols=) has {unknown[0]!r}, which is not one of {known}.")
        if not chosen:
            raise DefinitionError("Server(protocols=) is empty: nobody could speak to the server.")
        return VersionTable(*(row for row in self._rows if row.name in chosen))

    def client_dialect(
        self, version: Version, client: Implementation, capabilities: Mapping[str, Any]
    ) -> ClientDialect:
        """Return the dialect in which a client speaks a version; raises `UnsupportedVersion`."""
        if version.client is None:
            raise UnsupportedVersion(f"This client does not speak protocol version {version.name}.")
        return version.client(version.name, client, capabilities)

    @contextmanager
    def register(self, version: Version) -> Iterator[None]:
        """Add a version, as the newest, while the context lasts.

        Servers and clients that are created meanwhile speak it.
        """
        rows = self._rows
        self._rows = (version, *rows)
        try:
            yield
        finally:
            self._rows = rows


VERSIONS = VersionTable(
    Version("2026-07-28", V2026, ClientV2026, stateless=True),
    Version("2025-11-25", V2025, ClientV2025),
    Version("2025-06-18", WithoutTasks, ClientWithoutTasks),
    Version("2025-03-26", WithoutStructuredContent, ClientWithoutTasks),
    Version("2024-11-05", WithoutStructuredContent, ClientWithoutTasks),
    Version("DRAFT-2026-v1", Draft, ClientDraft, advertised=False, for_bare_requests=True),
    Version("DRAFT-000-messages", Draft000Messages, ClientDraft000Messages, advertised=False),
    Version(
        "DRAFT-000-additional-info", Draft000AdditionalInfo, ClientDraft000AdditionalInfo, advertised=False
    ),
    Version("DRAFT-001-messages", Draft001Messages, ClientDraft001Messages, advertised=False),
    Version("DRAFT-001-content", Draft001Content, ClientDraft001Content, advertised=False),
)


class Dialects:
    """The dialects of one server, one for each version."""

    def __init__(self, server: Implementation, versions: VersionTable = VERSIONS) -> None:
        rows = tuple(versions)
        self.advertised = versions.advertised or tuple(row.name for row in rows)
        """The names of the versions that the server tells its clients, newest first."""
        self._all = {row.name: row.server(row.name, server, self.advertised) for row in rows}
        self._stateless = {row.name: self._all[row.name] for row in rows if row.stateless}
        self._with_sessions = {row.name: self._all[row.name] for row in rows if not row.stateless}
        # A server may offer neither: then such a request is refused.
        self._newest_with_sessions = next(iter(self._with_sessions.values()), None)
        self._bare = next((self._all[row.name] for row in rows if row.for_bare_requests), None)
        self.fast_paths = {
            name.encode(): dialect.read_plain_call
            for name, dialect in self._all.items()
            if dialect.has_fast_path
        }
        self._session_paths = {name.encode(): dialect for name, dialect in self._with_sessions.items()}

    def __getitem__(self, version: str) -> Dialect:
        return self._all[version]

    def glance(self, body: bytes | bytearray, headers: Mapping[bytes, bytes]) -> PlainCall | None:
        """Read the usual call of a tool in one step; `None` for a request that has to be read in full."""
        try:
            read = self.fast_paths[headers[b"mcp-protocol-version"]]
        except KeyError:
            return None
        return read(body, headers)

    def glance_in_session(
        self, body: bytes | bytearray, headers: Mapping[bytes, bytes], negotiated: Negotiated
    ) -> tuple[Dialect, RequestId, CallTool] | None:
        """Read the usual call of a tool in a session; `None` for a request that has to be read in full."""
        if b"mcp-method" in headers or b"mcp-name" in headers:
            return None  # they are compared with the body
        dialect = self._session_paths.get(headers.get(b"mcp-protocol-version", b""))
        if dialect is None or dialect.version != negotiated.version:
            return None
        call = dialect.read_session_call(body)
        return None if call is None else (dialect, *call)

    def is_sessionless(self, frame: Frame, header: str | None) -> bool:
        """Return whether a request is of a version without sessions, in which a session id means nothing."""
        return header in self._stateless or (_KEY in frame.raw_params and PROTOCOL_VERSION in frame.meta)

    def choose(self, frame: Frame, header: str | None, session: Negotiated | None) -> Dialect:
        """Return the dialect of a request; raises `UnsupportedVersion`.

        A stateless version in the header decides, then the version in `_meta`, then the session, then an
        `initialize`, then any other version in the header.
        """
        if header is not None and (stateless := self._stateless.get(header)) is not None:
            return stateless
        inline = frame.meta.get(PROTOCOL_VERSION) if _KEY in frame.raw_params else None
        if inline is not None:
            return self._named(inline)
        if header is not None and header not in self._with_sessions:
            raise self._unsupported(header)
        if session is not None:
            return self._named(session.version)  # the server may have stopped offering it
        if frame.method == "initialize":
            return self.negotiate(
                frame.params.get("protocolVersion") if isinstance(frame.params, dict) else None
            )
        if header is not None:
            return self._with_sessions[header]
        if self._bare is None:
            raise UnsupportedVersion(
                f"The request names no protocol version. This server speaks {', '.join(self.advertised)}.",
                data={"supported": list(self.advertised), "requested": None},
            )
        return self._bare

    def negotiate(self, wanted: object) -> Dialect:
        """Return the dialect for an `initialize`: the version asked for, or the newest with sessions.

        Raises `UnsupportedVersion` if no version has sessions.
        """
        found = self._with_sessions.get(wanted) if isinstance(wanted, str) else None
        if (found := found or self._newest_with_sessions) is None:
            raise self._unsupported(wanted)
        return found

    def _named(self, version: object) -> Dialect:
        dialect = self._all.get(version) if isinstance(version, str) else None
        if dialect is None:
            raise self._unsupported(version)
        return dialect

    def _unsupported(self, version: object) -> UnsupportedVersion:
        spoken = ", ".join(self.advertised)
        return UnsupportedVersion(
            f"This server does not speak protocol version {version!r}. It speaks {spoken}.",
            data={"supported": list(self.advertised), "requested": version},
        )
