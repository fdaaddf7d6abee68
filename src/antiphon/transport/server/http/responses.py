"""Whole responses that the HTTP protocol writes itself, without ASGI: small JSON answers, and refusals.

Owns how these responses look. Knows nothing about connections.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TypeAlias

from antiphon.wire import jsonrpc

__all__ = ["Responses"]

RETRY_SECONDS = 1

Headers: TypeAlias = list[tuple[bytes, bytes]]


class Responses:
    """Writes the responses of one process. `headers` are those that uvicorn adds to every response."""

    def __init__(self) -> None:
        self._headers: Headers | None = None
        self._answer_head = b""

    def answer(self, headers: Headers, body: bytes) -> bytes:
        """Return a successful JSON response."""
        if headers is not self._headers:  # uvicorn makes a new list each second, because of the date
            self._headers = headers
            lines = [name + b": " + value for name, value in headers]
            lines += [b"content-type: application/json", b"content-length: "]
            self._answer_head = b"\r\n".join([b"HTTP/1.1 200 OK", *lines])
        return b"%b%d\r\n\r\n%b" % (self._answer_head, len(body), body)

    @staticmethod
    def refusal(headers: Headers, status: int, message: str) -> bytes:
        """Return the response to a request that no app can answer. The connection is closed after it."""
        body = jsonrpc.failure(None, -32600 if status < 500 else -32603, message)
        lines = [
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
            *(f"{name.decode()}: {value.decode()}" for name, value in headers),
            "content-type: application/json",
            f"content-length: {len(body)}",
            "connection: close",
        ]
        if status == HTTPStatus.SERVICE_UNAVAILABLE:
            lines.append(f"retry-after: {RETRY_SECONDS}")
        return "\r\n".join([*lines, "", ""]).encode() + body
