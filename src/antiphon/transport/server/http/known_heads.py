"""Heads of plain requests that were parsed before, so that each is parsed once.

A client sends the same head with every call, except for the length of the body. Owns which heads are kept,
and which of them the connections of a process share. Knows nothing about the meaning of headers, except which
of them may hold secrets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from antiphon.wire.mirrored_headers import names_only_tool

__all__ = ["MAX_MISSES", "Head", "KnownHeads", "read_head"]

MAX_HEADS = 1024
"""How many heads the connections of a process share."""
MAX_HEAD_BYTES = 2048
"""The size of the longest head that is kept."""
MAX_MISSES = 8
"""After how many requests with unknown heads a connection parses all heads: the client never repeats one."""
MAX_HEADERS = 32
"""How many headers a head that is kept has at most."""
_LENGTH_LINE = b"\r\ncontent-length: "
_LENGTH = b"ength: "
"""How the name of that header ends in its usual spellings: a search for any spelling takes longer."""
_END = b"\r\n\r\n"
_PUBLIC = frozenset(
    (
        b"accept",
        b"accept-encoding",
        b"accept-language",
        b"connection",
        b"content-length",
        b"content-type",
        b"host",
        b"mcp-method",
        b"mcp-name",
        b"mcp-protocol-version",
        b"origin",
        b"user-agent",
    )
)
"""Headers that hold no secrets, and have the same values in many requests."""


class Head(NamedTuple):
    """The head of a plain request, without the digits of its content length."""

    before: bytes
    """The bytes up to the digits."""
    after: bytes
    """The bytes behind the digits, with the empty line."""
    url: bytes
    headers: Mapping[bytes, bytes]

    def body_of(self, data: bytes) -> bytes | None:
        """Return the body; `None` unless the data are this head, with the body that it announces."""
        if not data.startswith(self.before):
            return None
        start = len(self.before)
        end = data.find(b"\r", start)
        body = data[end + len(self.after) :]
        # A length with a sign, a space or a leading zero is for the parser.
        is_whole = data[start:end] == b"%d" % len(body) and data.startswith(self.after, end)
        return body if is_whole else None

    @property
    def is_private(self) -> bool:
        """Whether a header may hold a secret, such as a token or the id of a task."""
        return not (_PUBLIC.issuperset(self.headers) and names_only_tool(self.headers))


class KnownHeads:
    """The heads that all connections of a process share."""

    def __init__(self) -> None:
        self._heads: dict[bytes, Head] = {}

    def __len__(self) -> int:
        return len(self._heads)

    def find(self, data: bytes) -> Head | None:
        """Return the head that the data may begin with, which `Head.body_of` checks; `None` if unknown."""
        start = data.find(_LENGTH, 0, MAX_HEAD_BYTES) + len(_LENGTH)
        end = data.find(b"\r", start, MAX_HEAD_BYTES)
        body = data.find(_END, end, MAX_HEAD_BYTES) + len(_END)
        return self._heads.get(data[:start] + data[end:body])

    def add(self, head: Head) -> None:
        """Keep a head, in place of the oldest one if there are too many."""
        if len(self._heads) >= MAX_HEADS:
            del self._heads[next(iter(self._heads))]
        self._heads[head.before + head.after] = head


def read_head(data: bytes, url: bytes, headers: Mapping[bytes, bytes], body: bytes) -> Head | None:
    """Return the head of a request, after the parser has read it from these data and nothing else.

    Returns `None` for a head that is not kept, because it is long or has an unusual content length.
    """
    length, end = b"%d" % len(body), len(data) - len(body)
    start = data.find(_LENGTH + length + b"\r", 0, end) + len(_LENGTH)
    before, after = data[:start], data[start + len(length) : end]
    is_kept = (
        end <= MAX_HEAD_BYTES
        and len(headers) <= MAX_HEADERS
        and headers[b"content-length"] == length
        and before[-len(_LENGTH_LINE) :].lower() == _LENGTH_LINE
        and data[end:] == body
    )
    return Head(before, after, url, headers) if is_kept else None
