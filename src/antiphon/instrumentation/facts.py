"""The facts about a message and its connection that spans and metrics show.

Transports fill them in for requests that are traced. The module must not import OpenTelemetry.
"""

from __future__ import annotations

import hashlib
from typing import Literal, NamedTuple

__all__ = ["MessageFacts", "hashed_session_id"]


class MessageFacts(NamedTuple):
    """The method of a message, and the connection that carries it."""

    method: str
    protocol: str | None = None
    """The protocol version."""
    transport: Literal["tcp", "pipe"] | None = None
    """`None` in memory."""
    is_http: bool = False
    session: str | None = None
    """An id of the session that gives no access to it."""
    address: str | None = None
    port: int | None = None
    """The address and the port of the server, as a client knows them."""


def hashed_session_id(token: str) -> str:
    """Return an id that names a session in traces and between processes.

    The token itself must not appear there: it gives access to the session.
    """
    return hashlib.sha256(token.encode()).hexdigest()[:32]
