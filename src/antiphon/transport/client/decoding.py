"""Decodes the messages of a server, which may be hostile, in bounded memory. Knows no connection."""

from __future__ import annotations

from antiphon.errors import InvalidRequest
from antiphon.wire import jsonrpc
from antiphon.wire.jsonrpc import Frame

__all__ = ["decode"]

_COUNTED_BYTES = 1024 * 1024
"""From this size on, the lists and objects in a message are counted before they are built."""
_MAX_CONTAINERS = 1_000_000
"""How many lists and objects a message may have. In memory, each needs some hundred times its two bytes."""


def decode(text: str | bytes | bytearray) -> Frame:
    """Return one message; raises `RequestError` if it is not one, or has too many lists and objects."""
    if len(text) > _COUNTED_BYTES:
        data = text.encode() if isinstance(text, str) else text
        if data.count(b"[") + data.count(b"{") > _MAX_CONTAINERS:
            raise InvalidRequest(f"The message has more than {_MAX_CONTAINERS} lists and objects.")
    return jsonrpc.decode(text)
