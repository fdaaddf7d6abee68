"""Which dialect a request gets: from its `_meta`, its headers, its session, or none of them."""

from __future__ import annotations

from collections.abc import Mapping

from antiphon.errors import UnsupportedVersion
from antiphon.model.identity import Implementation
from antiphon.wire.jsonrpc import Frame
from antiphon.wire.server.dialect import Dialect, Negotiated
from antiphon.wire.server.draft import DRAFT_VERSION, Draft
from antiphon.wire.server.v2025_11_25 import LEGACY_VERSIONS, V2025, Before2025, BeforeStructure
from antiphon.wire.server.v2026_07_28 import MODERN_VERSION, PROTOCOL_VERSION, V2026

__all__ = ["SUPPORTED_VERSIONS", "Dialects"]

SUPPORTED_VERSIONS = (MODERN_VERSION, *LEGACY_VERSIONS)
"""What a server tells a client it may ask for, newest first."""

_KEY = PROTOCOL_VERSION.encode()


class Dialects:
    """All the dialects that one server speaks."""

    def __init__(self, server: Implementation) -> None:
        self.modern = V2026(MODERN_VERSION, server, SUPPORTED_VERSIONS)
        self.draft = Draft(DRAFT_VERSION, server)
        self._legacy: Mapping[str, Dialect] = {
            LEGACY_VERSIONS[0]: V2025(LEGACY_VERSIONS[0], server),
            LEGACY_VERSIONS[1]: Before2025(LEGACY_VERSIONS[1], server),
            **{version: BeforeStructure(version, server) for version in LEGACY_VERSIONS[2:]},
            DRAFT_VERSION: self.draft,
        }

    def is_sessionless(self, frame: Frame, header: str | None) -> bool:
        """Whether a request is of a version in which a session id means nothing."""
        return header == MODERN_VERSION or (_KEY in frame.raw_params and PROTOCOL_VERSION in frame.meta)

    def choose(self, frame: Frame, header: str | None, session: Negotiated | None) -> Dialect:
        """The dialect of a request; raises `UnsupportedVersion` for a version that nobody here speaks."""
        if header == MODERN_VERSION:
            return self.modern
        inline = frame.meta.get(PROTOCOL_VERSION) if _KEY in frame.raw_params else None
        if inline is not None:
            return self._modern(inline)
        if header is not None and header not in self._legacy:
            raise _unsupported(header)
        if session is not None:
            return self._legacy[session.version]
        if frame.method == "initialize":
            return self.negotiate(
                frame.params.get("protocolVersion") if isinstance(frame.params, dict) else None
            )
        return self.draft if header is None else self._legacy[header]

    def negotiate(self, wanted: object) -> Dialect:
        """The dialect for an `initialize`: the one asked for, or else the newest that has sessions."""
        return self._legacy[
            wanted if isinstance(wanted, str) and wanted in self._legacy else LEGACY_VERSIONS[0]
        ]

    def _modern(self, inline: object) -> Dialect:
        if inline == MODERN_VERSION:
            return self.modern
        if isinstance(inline, str) and inline in self._legacy:
            return self._legacy[inline]
        raise _unsupported(inline)


def _unsupported(version: object) -> UnsupportedVersion:
    return UnsupportedVersion(
        "Unsupported protocol version",
        data={"supported": list(SUPPORTED_VERSIONS), "requested": version},
    )
