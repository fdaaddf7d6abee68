"""Reads the headers of a request: which may occur once, how many there may be, and how large.

Knows nothing about the meaning of a header.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from antiphon.errors import HeadTooLarge, InvalidRequest
from antiphon.runtime.limits import Limits

__all__ = ["NO_TRAILERS", "check_head", "read_headers"]

_SINGLE = frozenset(
    (b"authorization", b"content-length", b"content-type", b"host", b"last-event-id", b"origin")
)
"""Headers that may occur once. A proxy and the server could each believe another one of two."""
_SINGLE_PREFIX = b"mcp-"


def read_headers(lines: Sequence[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Return the headers by name, with the values of a repeated header joined by commas.

    Raises `InvalidRequest` if a header is repeated that may occur only once.
    """
    headers = dict(lines)
    return headers if len(headers) == len(lines) else _join_repeated(lines)


def _join_repeated(lines: Sequence[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    headers: dict[bytes, list[bytes]] = {}
    for name, value in lines:
        headers.setdefault(name, []).append(value)
    for name, values in headers.items():
        if len(values) > 1 and (name in _SINGLE or name.startswith(_SINGLE_PREFIX)):
            raise InvalidRequest(
                f"The request has {len(values)} headers {name.decode('latin-1')!r}: send it once."
            )
    return {name: b", ".join(values) for name, values in headers.items()}


def check_head(scope: Mapping[str, Any], limits: Limits) -> None:
    """Check the number and the size of the headers of a request, and its path; raises `HeadTooLarge`."""
    lines = scope["headers"]
    if len(lines) > limits.max_headers:
        raise HeadTooLarge(f"A request has at most {limits.max_headers} headers.")
    size = len(scope["path"]) + len(scope.get("query_string", b""))
    if size + sum(len(name) + len(value) + 4 for name, value in lines) > limits.max_head_bytes:
        raise HeadTooLarge(f"The head of a request has at most {limits.max_head_bytes} bytes.")


class _NoTrailers(list[tuple[bytes, bytes]]):
    """A list of headers that takes none."""

    def append(self, item: tuple[bytes, bytes]) -> None:
        """Refuse a header."""
        raise ValueError("Trailers are not supported.")


NO_TRAILERS = _NoTrailers()
"""Takes the headers that follow the body of a request."""
