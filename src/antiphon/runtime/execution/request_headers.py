"""The HTTP headers of a request, as an author's function sees them.

Leaves out credentials: a function learns from the principal who calls, and a token must not be passed on. It
must not know where the headers come from.
https://modelcontextprotocol.io/specification/2025-06-18/basic/security_best_practices#token-passthrough
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

__all__ = ["RequestHeaders"]

_HIDDEN = frozenset(
    (b"authorization", b"cookie", b"mcp-session-id", b"proxy-authorization", b"content-length")
)
"""Credentials, and the length of the body: a head that was parsed before has the length of another body."""


class RequestHeaders(Mapping[str, str]):
    """A read-only mapping of headers, by names in any case. Names that it yields are in lower case."""

    __slots__ = ("_lines",)

    def __init__(self, lines: Mapping[bytes, bytes]) -> None:
        self._lines = lines

    def __getitem__(self, name: str) -> str:
        key = name.lower().encode("latin-1", "replace")
        if key in _HIDDEN:
            raise KeyError(name)
        try:
            return self._lines[key].decode("latin-1")
        except KeyError:
            raise KeyError(name) from None

    def __iter__(self) -> Iterator[str]:
        return (name.decode("latin-1") for name in self._lines if name not in _HIDDEN)

    def __len__(self) -> int:
        return sum(name not in _HIDDEN for name in self._lines)

    def __repr__(self) -> str:
        return f"RequestHeaders({', '.join(self)})"  # without the values, which may be secrets
