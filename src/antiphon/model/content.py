"""Content blocks: what a tool returns, a prompt says and a resource holds.

Their field names are the same in every protocol version, so they encode as they are.
"""

from __future__ import annotations

import base64
from typing import Any, Literal, TypeAlias

import msgspec

from antiphon.model.base import Value
from antiphon.model.media import raw_of

__all__ = [
    "Annotations",
    "Audio",
    "BlobContents",
    "Block",
    "Contents",
    "EmbeddedResource",
    "Icon",
    "Image",
    "ResourceLink",
    "Role",
    "Text",
    "TextContents",
]

Role: TypeAlias = Literal["user", "assistant"]


class Annotations(Value, frozen=True):
    """Hints on who a block is for and how much it matters."""

    audience: tuple[Role, ...] | None = None
    priority: float | None = None
    last_modified: str | None = None


class Icon(Value, frozen=True):
    """A picture for a tool, a prompt, a resource or a server."""

    src: str
    mime_type: str | None = None
    sizes: tuple[str, ...] | None = None
    theme: Literal["light", "dark"] | None = None


class Text(Value, frozen=True, tag_field="type", tag="text"):
    """A block of text or Markdown."""

    text: str
    annotations: Annotations | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


class Image(Value, frozen=True, tag_field="type", tag="image"):
    """A picture, in base64; `Image.of(…)` encodes bytes, a file, or a figure."""

    data: str
    mime_type: str = msgspec.field(name="mimeType")
    annotations: Annotations | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")

    @classmethod
    def of(cls, source: Any, mime_type: str | None = None) -> Image:
        """The block for bytes, the path of a file, a Pillow image or a matplotlib figure.

        The media type is found out where it is not given; raises `ValueError` where it cannot be.
        """
        raw, kind = raw_of(source, mime_type)
        return cls(base64.b64encode(raw).decode(), kind)


class Audio(Value, frozen=True, tag_field="type", tag="audio"):
    """A sound, in base64; `Audio.of(…)` encodes bytes or a file."""

    data: str
    mime_type: str = msgspec.field(name="mimeType")
    annotations: Annotations | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")

    @classmethod
    def of(cls, source: Any, mime_type: str | None = None) -> Audio:
        """The block for bytes, or the path of a file.

        The media type is found out where it is not given; raises `ValueError` where it cannot be.
        """
        raw, kind = raw_of(source, mime_type)
        return cls(base64.b64encode(raw).decode(), kind)


class TextContents(Value, frozen=True):
    """What a text resource holds."""

    uri: str
    text: str
    mime_type: str | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


class BlobContents(Value, frozen=True):
    """What a binary resource holds, in base64."""

    uri: str
    blob: str
    mime_type: str | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")

    @property
    def raw(self) -> bytes:
        """The bytes."""
        return base64.b64decode(self.blob)


Contents: TypeAlias = TextContents | BlobContents


class EmbeddedResource(Value, frozen=True, tag_field="type", tag="resource"):
    """A resource inside a result or a prompt."""

    resource: Contents
    annotations: Annotations | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


class ResourceLink(Value, frozen=True, tag_field="type", tag="resource_link"):
    """A pointer to a resource that the caller can read."""

    uri: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None
    icons: tuple[Icon, ...] | None = None
    annotations: Annotations | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


Block: TypeAlias = Text | Image | Audio | ResourceLink | EmbeddedResource
