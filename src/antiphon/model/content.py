"""Content blocks of results and prompts, and the contents of resources.

Their field names are the same in every protocol version, so no dialect translates them.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from antiphon.model.base import Value
from antiphon.model.media import encode_media
from antiphon.model.ui import UiSettings, read_ui

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
    "is_block_mapping",
]

Role: TypeAlias = Literal["user", "assistant"]


class Annotations(Value, frozen=True):
    """Hints about a block: its audience, its priority and its age."""

    audience: tuple[Role, ...] | None = None
    """Whether the block is for the user, the assistant, or both."""
    priority: float | None = None
    """How important the block is, from 0 (optional) to 1 (required)."""
    last_modified: str | None = None
    """When the content last changed, in ISO 8601."""


class Icon(Value, frozen=True):
    """An icon of a tool, a prompt, a resource or a server."""

    src: str
    """The address of the image: an `https:` or a `data:` URI."""
    mime_type: str | None = None
    sizes: tuple[str, ...] | None = None
    """The sizes of the image, such as `"48x48"` or `"any"`."""
    theme: Literal["light", "dark"] | None = None
    """The background that the icon is made for."""


class Text(Value, frozen=True, tag_field="type", tag="text"):
    """A block of text or Markdown."""

    text: str
    annotations: Annotations | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


class Image(Value, frozen=True, tag_field="type", tag="image"):
    """An image block. `Image.of(…)` creates one from bytes, a file, a Pillow image or a matplotlib figure."""

    data: str
    """The bytes of the image, in base64."""
    mime_type: str = msgspec.field(name="mimeType")
    annotations: Annotations | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")

    @classmethod
    def of(cls, source: Any, mime_type: str | None = None) -> Image:
        """Create a block from bytes, the path of a file, a Pillow image or a matplotlib figure.

        The media type is detected if you do not pass one. Raises `ValueError` if it cannot be detected, and
        `TypeError` if `source` is none of these.
        """
        raw, kind = encode_media(source, mime_type)
        return cls(base64.b64encode(raw).decode(), kind)


class Audio(Value, frozen=True, tag_field="type", tag="audio"):
    """An audio block. `Audio.of(…)` creates one from bytes or a file."""

    data: str
    """The bytes of the audio, in base64."""
    mime_type: str = msgspec.field(name="mimeType")
    annotations: Annotations | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")

    @classmethod
    def of(cls, source: Any, mime_type: str | None = None) -> Audio:
        """Create a block from bytes or the path of a file.

        The media type is detected if you do not pass one. Raises `ValueError` if it cannot be detected, and
        `TypeError` if `source` is neither bytes nor a path.
        """
        raw, kind = encode_media(source, mime_type)
        return cls(base64.b64encode(raw).decode(), kind)


class TextContents(Value, frozen=True):
    """The contents of a text resource."""

    uri: str
    text: str
    mime_type: str | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")

    @property
    def ui(self) -> UiSettings | None:
        """How a host shows the MCP App; `None` if the metadata does not say it."""
        return read_ui(self.meta)


class BlobContents(Value, frozen=True):
    """The contents of a binary resource."""

    uri: str
    blob: str
    """The bytes of the resource, in base64."""
    mime_type: str | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")

    @property
    def ui(self) -> UiSettings | None:
        """How a host shows the MCP App; `None` if the metadata does not say it."""
        return read_ui(self.meta)

    @property
    def raw(self) -> bytes:
        """The bytes of the resource, decoded."""
        return base64.b64decode(self.blob)


Contents: TypeAlias = TextContents | BlobContents


class EmbeddedResource(Value, frozen=True, tag_field="type", tag="resource"):
    """A resource, with its contents, inside a result or a prompt."""

    resource: Contents
    annotations: Annotations | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


class ResourceLink(Value, frozen=True, tag_field="type", tag="resource_link"):
    """A link to a resource that the caller can read."""

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


_BLOCK_FIELDS: Mapping[str, tuple[str, ...]] = {
    "text": ("text",),
    "image": ("data", "mimeType"),
    "audio": ("data", "mimeType"),
    "resource": ("resource",),
    "resource_link": ("uri", "name"),
    "video": ("url",),
}
"""The fields that make a mapping a content block, by its `type`. SEP-1905 adds the type `video`."""


def is_block_mapping(value: Mapping[Any, Any]) -> bool:
    """Return whether a mapping has the fields of a content block."""
    kind = value.get("type")
    fields = _BLOCK_FIELDS.get(kind) if isinstance(kind, str) else None
    return fields is not None and all(field in value for field in fields)
