"""What carries a client's messages to one server and back. No implementation, and no protocol version.

A channel sends what it is given and matches responses to requests. Whatever else the server says,
notifications and requests of its own, and responses that are not the last where a message says that there
may be several, goes to the receiver, in the order in which it came; what came before a response is received
before `request` returns it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol, TypeAlias

from antiphon.wire.client.dialect import Message
from antiphon.wire.jsonrpc import Frame

__all__ = ["Channel", "Receiver"]

Receiver: TypeAlias = Callable[[Frame], Awaitable[None]]
"""Takes what is not a last response. It raises nothing."""


class Channel(Protocol):
    """A way to one server. It is opened once and closed once, also where opening failed."""

    @property
    def has_streams(self) -> bool:
        """Whether each request has a stream of its own, which giving it up closes."""

    @property
    def has_headers(self) -> bool:
        """Whether it carries the headers of messages."""

    @property
    def peer(self) -> str:
        """What to call the other side in messages to people."""

    async def open(self, receive: Receiver) -> None:
        """Get ready; raises `Unreachable`."""

    async def request(self, message: Message) -> Frame:
        """Send a request and wait for its last response, which may be an error.

        Raises `Unreachable`, `BadAnswer`, `SessionLost`, `Unauthorized` or `Forbidden`. It waits as long
        as it is let: the caller sets the deadline, and cancelling is giving up.
        """

    async def send(self, message: Message) -> None:
        """Send a notification or a response; raises what `request` does."""

    async def listen(self, headers: Mapping[str, str]) -> None:
        """Hear what the server says outside of requests too, where that needs a stream of its own."""

    async def end(self, headers: Mapping[str, str]) -> None:
        """Tell the server that the session is over, where there is one. Raises nothing."""

    async def close(self) -> None:
        """Let go of everything. Raises nothing, and may be called twice."""
