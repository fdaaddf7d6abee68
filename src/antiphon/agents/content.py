"""The result of a tool call as text and images for a model, bounded in size.

Owns which blocks a model can read, and the notes in place of the others. It must not know how an API writes
text and images.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Any, NamedTuple, TypeAlias

import msgspec

from antiphon.model.content import Audio, BlobContents, EmbeddedResource, Image, ResourceLink, Text
from antiphon.model.outcome import Result

__all__ = ["ContentLimits", "Part", "Picture", "joined", "parts_of"]

_IMAGE_TYPES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
"""The media types of images that the APIs of both OpenAI and Anthropic accept."""
_NOTHING = "(The tool returned no content.)"


class Picture(NamedTuple):
    """An image for a model."""

    data: str
    """The bytes of the image, in base64."""
    mime_type: str


Part: TypeAlias = str | Picture


class ContentLimits(NamedTuple):
    """How much of one result a model gets."""

    max_characters: int
    """How many characters of text. The rest is cut off, and a note says so."""
    max_image_bytes: int
    """How large an image may be. A note takes the place of a larger image."""


def parts_of(result: Result, limits: ContentLimits, *, takes_images: bool) -> list[Part]:
    """Return a result as texts and images, never empty.

    Structured data is for programs: a model gets it only if the result has no text. A note takes the place of
    content that the API does not accept.
    """
    found: list[Part] = []
    for block in result.content:
        found += _parts(block, limits, takes_images)
    if result.structured and not result.text.strip():
        found.append(msgspec.json.encode(result.data).decode())
    return _bounded(found, limits.max_characters) or [_NOTHING]


def joined(parts: Iterable[Part]) -> str:
    """Return the texts as one, for an API that accepts only text."""
    return "\n".join(part for part in parts if isinstance(part, str))


def _parts(block: Any, limits: ContentLimits, takes_images: bool) -> list[Part]:
    if isinstance(block, Text):
        return [block.text]
    if isinstance(block, Image):
        return [_image(block.data, block.mime_type, limits, takes_images)]
    if isinstance(block, Audio):
        return [_note("Audio", block.mime_type, block.data)]
    if isinstance(block, ResourceLink):
        about = f": {block.description}" if block.description else ""
        return [f"[Resource {block.title or block.name} at {block.uri}{about}]"]
    if isinstance(block, EmbeddedResource):
        contents = block.resource
        if not isinstance(contents, BlobContents):
            return [contents.text]
        kind = contents.mime_type or "application/octet-stream"
        if kind in _IMAGE_TYPES:
            return [_image(contents.blob, kind, limits, takes_images)]
        return [_note(f"The resource {contents.uri}", kind, contents.blob)]
    # A client keeps a block of an unknown type as a mapping.
    unknown = block.get("type") if isinstance(block, dict) else type(block).__name__
    return [f"[Content of the type {unknown!r} is not shown.]"]


def _image(data: str, mime_type: str, limits: ContentLimits, takes_images: bool) -> Part:
    if takes_images and mime_type in _IMAGE_TYPES and _size(data) <= limits.max_image_bytes:
        # An API refuses the whole conversation with an image that is not base64.
        if _is_base64(data):
            return Picture(data, mime_type)
        return f"[An image of the type {mime_type} is not shown: its data is not base64.]"
    return _note("An image", mime_type, data)


def _note(kind: str, mime_type: str, data: str) -> str:
    return f"[{kind} of the type {mime_type}, {_size(data)} bytes, is not shown.]"


def _is_base64(data: str) -> bool:
    try:
        return bool(base64.b64decode(data, validate=True))
    except ValueError:
        return False


def _size(data: str) -> int:
    """Return the number of bytes that a text in base64 stands for."""
    return len(data) * 3 // 4


def _bounded(parts: Iterable[Part], max_characters: int) -> list[Part]:
    """Return the parts with at most `max_characters` of text, and a note about the rest."""
    kept: list[Part] = []
    left, cut = max_characters, 0
    for part in parts:
        if isinstance(part, Picture):
            kept.append(part)
            continue
        # A half of a surrogate pair cannot be sent.
        text = part if part.isascii() else part.encode(errors="replace").decode()
        if text[:left].strip():  # the Messages API refuses empty texts
            kept.append(text[:left])
        cut += max(len(text) - left, 0)
        left = max(left - len(text), 0)
    if cut:
        kept.append(f"[The text is longer: {cut} more characters are not shown.]")
    return kept
