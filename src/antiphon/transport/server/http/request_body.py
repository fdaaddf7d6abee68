"""Reads the body of a request, within the memory budget of the process if the body is not small.

Owns the estimate of the memory that a body needs. Small bodies are bounded by the number of calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

from antiphon.errors import BodyTooLarge
from antiphon.runtime.budget import Account, decoded_size
from antiphon.transport.server.http.asgi import Receive

__all__ = ["LATE_BODY", "ClientGone", "read_body"]

LATE_BODY = "The request did not arrive in time."
"""The message of the error for a body that did not arrive within `Limits.body_timeout`."""


class ClientGone(Exception):
    """The client closed the connection before its request was complete."""


async def read_body(
    receive: Receive,
    headers: Mapping[bytes, bytes],
    max_bytes: int,
    small_bytes: int,
    open_account: Callable[[], Account],
) -> bytes | bytearray:
    """Return the body of a request.

    Raises `BodyTooLarge`, `Busy` or `ClientGone`. Memory is reserved unless the body is small.
    """
    length = headers.get(b"content-length", b"")
    if length.isdigit() and int(length[:20]) > max_bytes:
        raise _too_large(max_bytes)
    message = await receive()
    body: bytes | None = message.get("body")
    if body is not None and len(body) <= small_bytes and not message.get("more_body"):
        return body
    return await _read_parts(message, receive, max_bytes, open_account())


async def _read_parts(
    message: MutableMapping[str, Any], receive: Receive, max_bytes: int, account: Account
) -> bytes | bytearray:
    """Return a body, whose first part is in `message`.

    Reserves memory for the parts as they arrive, and in the end for the decoded message.
    """
    body: bytes | bytearray = b""
    while True:
        if message["type"] == "http.disconnect":
            raise ClientGone
        part = message.get("body", b"")
        if len(body) + len(part) > max_bytes:
            raise _too_large(max_bytes)
        account.reserve(len(part), "the body of this request", held=len(body))
        more = message.get("more_body", False)
        if not body and not more:
            body = part
        elif isinstance(body, bytearray):
            body += part
        else:
            body = bytearray(part)
        if not more:
            rest = decoded_size(body) - len(body)
            account.reserve(rest, "the decoded body of this request", held=len(body))
            return body
        message = await receive()


def _too_large(max_bytes: int) -> BodyTooLarge:
    return BodyTooLarge(f"A request has at most {max_bytes} bytes.")
