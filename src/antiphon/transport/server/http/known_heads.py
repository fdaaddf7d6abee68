"""Heads of plain requests that were parsed before, so that each is parsed once.

A client sends the same head with every call, except for the length of the body. A client that looks at tasks
sends another id each time, too: the head of such a request is kept without the id. Owns which heads are kept,
and which of them the connections of a process share. Knows nothing about the meaning of headers, except which
of them may hold secrets, and which one holds the id of a task.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from antiphon.runtime.budget import share_of
from antiphon.wire.mirrored_headers import names_only_tool, task_id_in

__all__ = [
    "MAX_MISSES",
    "ConnectionHeads",
    "Head",
    "KnownHeaders",
    "KnownHeads",
    "PlainRequest",
    "read_head",
]

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
_NAME_LINE = b"\r\nmcp-name: "
_NAME = b"ame: "
"""How the name of that header ends in its usual spellings."""
_is_task_id = re.compile(rb"[A-Za-z0-9_.-]{1,256}").fullmatch
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


class KnownHeaders(dict[bytes, bytes]):
    """The headers of a plain request. If its head is kept, they are checked once."""

    __slots__ = ("usual_in",)

    def __init__(self, headers: Mapping[bytes, bytes] | Iterable[tuple[bytes, bytes]]) -> None:
        super().__init__(headers)
        self.usual_in: Any = None
        """The scope in which the headers have passed all checks; `None` before that."""


class Head(NamedTuple):
    """The head of a plain request, without the digits of its content length."""

    before: bytes
    """The bytes up to the digits."""
    after: bytes
    """The bytes behind the digits, with the empty line."""
    url: bytes
    headers: KnownHeaders
    lacks_task_id: bool = False
    """Whether the head is kept without the id of the task that its request names."""

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
    """The heads that all connections of a process share. Clients at one address may add a part of them."""

    def __init__(self, share: float = 1.0) -> None:
        self._most_of_share = share_of(MAX_HEADS, share)
        self._heads: dict[bytes, Head] = {}
        self._by_share: dict[str, dict[bytes, None]] = {}
        """The heads that the clients at each address have added, the oldest first."""

    def __len__(self) -> int:
        return len(self._heads)

    @property
    def kept(self) -> Collection[bytes]:
        """The heads that are kept, as they were sent, without the digits of the content length."""
        return self._heads.keys()

    def find(self, data: bytes) -> Head | None:
        """Return the head that the data may begin with, which `Head.body_of` checks; `None` if unknown."""
        start = data.find(_LENGTH, 0, MAX_HEAD_BYTES) + len(_LENGTH)
        end = data.find(b"\r", start, MAX_HEAD_BYTES)
        body = data.find(_END, end, MAX_HEAD_BYTES) + len(_END)
        return self._heads.get(data[:start] + data[end:body])

    def add(self, head: Head, share: str = "") -> None:
        """Keep a head that a client at an address has sent.

        If there are too many, it takes the place of its oldest one, or of the one who has added most.
        """
        key = head.before + head.after
        if key in self._heads:
            self._heads[key] = head
            return
        own = self._by_share.get(share, {})
        if len(own) >= self._most_of_share:
            self._remove_oldest(share)
        elif len(self._heads) >= MAX_HEADS:
            self._remove_oldest(max(self._by_share, key=lambda each: len(self._by_share[each])))
        self._heads[key] = head
        self._by_share.setdefault(share, {})[key] = None

    def _remove_oldest(self, share: str) -> None:
        keys = self._by_share[share]
        oldest = next(iter(keys))
        del keys[oldest], self._heads[oldest]
        if not keys:
            del self._by_share[share]


class PlainRequest(NamedTuple):
    """A plain request whose head was parsed before."""

    url: bytes
    headers: Mapping[bytes, bytes]
    """The headers. The content length is the one of the request that was parsed."""
    body: bytes


class ConnectionHeads:
    """The heads that one connection knows: those that it has kept itself, and the shared ones.

    A head with a secret is forgotten with its connection.
    """

    __slots__ = ("_last", "_last_of_task", "_misses", "_share", "_shared")

    def __init__(self, shared: KnownHeads, share: str = "") -> None:
        self._shared = shared
        self._share = share
        self._last: Head | None = None
        self._last_of_task: Head | None = None
        """The last head that was kept without the id of a task."""
        self._misses = 0
        """How many plain requests in a row had heads that were not known."""

    @property
    def is_useful(self) -> bool:
        """Whether to look for heads: the client has repeated one lately."""
        return self._misses < MAX_MISSES

    def close(self) -> None:
        """Find no head any more."""
        self._misses = MAX_MISSES

    def find(self, data: bytes) -> PlainRequest | None:
        """Return the plain request that the data are, if its head is known."""
        head, body = self._match(self._last, data)
        if head is not None and not head.lacks_task_id:
            self._last, self._misses = head, 0
            return PlainRequest(head.url, head.headers, body)
        if (split := _split_task_id(data)) is None:
            return None
        id, rest = split
        head, body = self._match(self._last_of_task, rest)
        if head is None or not head.lacks_task_id:
            return None
        self._last_of_task, self._misses = head, 0
        return PlainRequest(head.url, {**head.headers, b"mcp-name": id}, body)

    def _match(self, last: Head | None, data: bytes) -> tuple[Head | None, bytes]:
        """Return the head of the data, which may be the last one, and the body; no head if it is unknown."""
        if last is not None and (body := last.body_of(data)) is not None:
            return last, body
        head = self._shared.find(data)
        if head is not None and (body := head.body_of(data)) is not None:
            return head, body
        return None, b""

    def keep(
        self, data: bytes, url: bytes, headers: Mapping[bytes, bytes], body: bytes, *, share: bool
    ) -> None:
        """Keep the head of a plain request, and `share` it unless it may hold a secret."""
        self._misses += 1
        head = read_head(data, url, headers, body)
        if head is not None and head.lacks_task_id:
            self._last_of_task = head
        else:
            self._last = head
        if head is not None and share and not head.is_private:
            self._shared.add(head, self._share)


def _split_task_id(data: bytes) -> tuple[bytes, bytes] | None:
    """Return the id in the line of the data that names a task, and the data without the id.

    The line may be in the body. Only a head that is known without its id shows that it is not: if the data
    without the id begin with such a head, the id was in the place where the head lacks it.
    """
    start = data.find(_NAME, 0, MAX_HEAD_BYTES) + len(_NAME)
    if start < len(_NAME_LINE) or data[start - len(_NAME_LINE) : start].lower() != _NAME_LINE:
        return None
    end = data.find(b"\r", start, MAX_HEAD_BYTES)
    return (data[start:end], data[:start] + data[end:]) if _is_task_id(data, start, end) else None


def read_head(data: bytes, url: bytes, headers: Mapping[bytes, bytes], body: bytes) -> Head | None:
    """Return the head of a request, after the parser has read it from these data and nothing else.

    Returns `None` for a head that is not kept, because it is long or has an unusual content length.
    """
    split, lacks_task_id = _split_task_id(data), False
    if split is not None and split[0] == task_id_in(headers):
        data, headers, lacks_task_id = split[1], {**headers, b"mcp-name": b""}, True
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
    if not is_kept:
        return None
    known = headers if isinstance(headers, KnownHeaders) else KnownHeaders(headers)
    return Head(before, after, url, known, lacks_task_id)
