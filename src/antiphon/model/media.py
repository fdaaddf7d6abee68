"""Encoding of images and audio: from the objects that programs use to bytes and a media type.

Imports no imaging library: it recognizes Pillow images and matplotlib figures by the module of their class.
"""

from __future__ import annotations

import io
import pathlib
from collections.abc import Mapping
from typing import Any

__all__ = ["encode_media", "is_figure", "is_picture", "media_type"]

_MAGIC: tuple[tuple[bytes, int, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", 0, "image/png"),
    (b"\xff\xd8\xff", 0, "image/jpeg"),
    (b"GIF87a", 0, "image/gif"),
    (b"GIF89a", 0, "image/gif"),
    (b"WEBP", 8, "image/webp"),
    (b"BM", 0, "image/bmp"),
    (b"WAVE", 8, "audio/wav"),
    (b"ID3", 0, "audio/mpeg"),
    (b"\xff\xfb", 0, "audio/mpeg"),
    (b"\xff\xf3", 0, "audio/mpeg"),
    (b"OggS", 0, "audio/ogg"),
    (b"fLaC", 0, "audio/flac"),
)
_SUFFIXES: Mapping[str, str] = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
    ".bmp": "image/bmp",
    ".svg": "image/svg+xml",
    ".wav": "audio/wav",
    ".mp3": "audio/mpeg",
    ".ogg": "audio/ogg",
    ".opus": "audio/ogg",
    ".flac": "audio/flac",
    ".m4a": "audio/mp4",
}


def media_type(raw: bytes, name: str = "") -> str | None:
    """Detect a media type by the first bytes or the file name; return `None` if it is unknown."""
    for magic, at, kind in _MAGIC:
        if raw[at : at + len(magic)] == magic and (at == 0 or raw[:4] == b"RIFF"):
            return kind
    return _SUFFIXES.get(pathlib.PurePath(name).suffix.lower())


def is_picture(value: Any) -> bool:
    """Return whether a value is a Pillow image."""
    return _comes_from(value, "PIL") and hasattr(value, "save")


def is_figure(value: Any) -> bool:
    """Return whether a value is a matplotlib figure."""
    return _comes_from(value, "matplotlib") and hasattr(value, "savefig")


def encode_media(source: Any, mime_type: str | None = None) -> tuple[bytes, str]:
    """Return the bytes of an image or audio, and their media type.

    Raises `TypeError` if the source is no image or audio, and `ValueError` if its media type is unknown.
    """
    name = ""
    if isinstance(source, bytes | bytearray | memoryview):
        raw = bytes(source)
    elif isinstance(source, str | pathlib.Path):
        path = pathlib.Path(source)
        raw, name = path.read_bytes(), path.name
    elif is_picture(source):
        buffer = io.BytesIO()
        source.save(buffer, format=(mime_type or "image/png").removeprefix("image/").upper())
        raw = buffer.getvalue()
    elif is_figure(source):
        buffer = io.BytesIO()
        source.savefig(buffer, format=(mime_type or "image/png").removeprefix("image/").split("+")[0])
        raw = buffer.getvalue()
    else:
        raise TypeError(
            f"Cannot make an image or audio block from {type(source).__name__}: pass bytes, a path, "
            "a Pillow image or a matplotlib figure."
        )
    kind = mime_type or media_type(raw, name)
    if kind is None:
        raise ValueError("Cannot detect the media type of this image or audio: pass mime_type=…")
    return raw, kind


def _comes_from(value: Any, library: str) -> bool:
    return any(base.__module__.partition(".")[0] == library for base in type(value).__mro__)
