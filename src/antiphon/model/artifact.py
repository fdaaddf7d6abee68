"""Artifacts as they are kept: what is known of one besides its bytes.

What an author makes is an `Artifact` of the runtime's; what it becomes on disk is the stores' business.
"""

from __future__ import annotations

from typing import Literal, Protocol, TypeAlias

import msgspec

__all__ = ["ArtifactRecord", "Encoding", "Keepable"]

Encoding: TypeAlias = Literal["json", "text", "blob"]
"""How its bytes are to be read: as JSON, as text in UTF-8, or as they are."""


class ArtifactRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """One artifact that is kept. Times are in milliseconds since 1970."""

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


class Keepable(Protocol):
    """Something that a result can have with it, to be kept when it goes out."""

    @property
    def id(self) -> str:
        """What it is known by."""

    @property
    def type(self) -> str:
        """What kind of thing it is."""
