"""The protocol of channels, which carry a client's messages to one server and back.

A channel sends messages and matches responses to requests. All other messages of the server go to the
receiver in order: notifications, requests, and partial responses. Messages that came before a response are
received before `request` returns the response. A channel knows no protocol version.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol, TypeAlias

from antiphon.instrumentation.facts import MessageFacts
from antiphon.wire.client.dialect import Message
from antiphon.wire.jsonrpc import Frame

__all__ = ["Channel", "Receiver"]

Receiver: TypeAlias = Callable[[Frame], Awaitable[None]]
"""Receives a message that is not the last response to a request. Raises nothing."""


class Channel(Protocol):
    """A channel to one server. It is closed even if opening failed, and may be opened again after that."""

    @property
    def has_streams(self) -> bool:
        """Whether each request has a stream of its own, which closes if the request is given up."""

    @property
    def has_headers(self) -> bool:
        """Whether the channel sends the headers of messages."""

    @property
    def peer(self) -> str:
        """The name of the server in error messages."""

    @property
    def remark(self) -> str:
        """A sentence that may explain why the server does not answer, or an empty text."""

    def facts(self, method: str) -> MessageFacts:
        """Return the facts about a message of this method for its span."""

    async def open(self, receive: Receiver) -> None:
        """Open the channel; raises `Unreachable`."""

    async def request(self, message: Message) -> Frame:
        """Send a request and return its last response, which may be an error.

        Raises `Unreachable`, `BadAnswer`, `SessionLost`, `Unauthorized` or `Forbidden`. It has no deadline of
        its own; the caller gives a request up by cancelling.
        """

    async def send(self, message: Message) -> None:
        """Send a notification or a response; raises the same errors as `request`."""

    async def listen(
        self,
        headers: Mapping[str, str],
        *,
        on_reopened: Callable[[], None],
        on_session_lost: Callable[[], None],
    ) -> None:
        """Receive messages that belong to no request, if the channel needs a stream for them.

        A stream that breaks is opened again for as long as the channel is open; then `on_reopened` is called,
        because messages may have been lost meanwhile. `on_session_lost` is called if the server no longer
        knows the session. Then the stream ends.
        """

    async def end(self, headers: Mapping[str, str]) -> None:
        """Tell the server that the session is over, if there is one. Raises nothing."""

    async def close(self) -> None:
        """Close the channel. Raises nothing, and may be called twice."""
