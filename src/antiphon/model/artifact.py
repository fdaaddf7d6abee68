"""The stored record of an artifact: everything about it except its bytes.

Authors create an `Artifact`, which lives in the runtime. How records and bytes are written to disk is up to
the artifact stores.
"""

from __future__ import annotations

from typing import Literal, Protocol, TypeAlias

import msgspec

__all__ = ["ArtifactLike", "ArtifactRecord", "Encoding"]

Encoding: TypeAlias = Literal["json", "text", "blob"]
"""How to read the bytes of an artifact: as JSON, as UTF-8 text, or as raw bytes."""


class ArtifactRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The record of one stored artifact. Times are in milliseconds since 1970."""

    id: str
    principal: str
    type: str
    encoding: Encoding
    mime_type: str
    created: int
    expires: int
    size: int = 0
    title: str | None = None
    description: str | None = None
    scopes: tuple[str, ...] = ()
    """The scopes that the call needed which stored the artifact. Its readers need them too."""
    sharer: str = ""
    """Whose share of the space the artifact uses, if its principal has none; empty for the principal's."""


class ArtifactLike(Protocol):
    """An artifact that a result carries: an `Artifact` of the runtime, which this package must not know."""

    @property
    def id(self) -> str:
        """The id of the artifact."""

    @property
    def type(self) -> str:
        """The type of the artifact, as callers see it."""
