"""Records the messages of a channel: what the client sent, what came back, and requests that failed.

Only the bodies are recorded. Headers, and so tokens and cookies, never are. Whoever keeps the messages
bounds them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Literal

import msgspec

from antiphon.errors import AntiphonError
from antiphon.instrumentation.facts import MessageFacts
from antiphon.model.request import RequestId
from antiphon.transport.client.channel import Channel, Receiver
from antiphon.wire import jsonrpc
from antiphon.wire.client.dialect import Message
from antiphon.wire.jsonrpc import Frame

__all__ = ["RecordedMessage", "RecordingChannel"]


class RecordedMessage(msgspec.Struct, frozen=True):
    """One message between a client and a server, or a request that failed on the way."""

    at: float
    """When the message was sent or received, in seconds since 1970."""
    sender: Literal["client", "server"]
    body: bytes
    """The message as JSON; empty if the request failed on the way."""
    method: str = ""
    """The method of a request or a notification; empty for a response."""
    id: RequestId | None = None
    """The id of a request, or of the request that a response answers; `None` for a notification."""
    is_error: bool = False
    """Whether the message is a response with an error."""
    failure: str = ""
    """Why the request has no response, if it failed on the way."""


class RecordingChannel:
    """A channel that calls a function with each message of another channel, before it is handled."""

    def __init__(self, channel: Channel, on_message: Callable[[RecordedMessage], None]) -> None:
        self._channel = channel
        self._on_message = on_message

    def stop(self) -> None:
        """Call the function no more. Messages still pass."""
        self._on_message = lambda message: None

    @property
    def has_streams(self) -> bool:
        """Whether each request has a stream of its own."""
        return self._channel.has_streams

    @property
    def has_headers(self) -> bool:
        """Whether the channel sends the headers of messages."""
        return self._channel.has_headers

    @property
    def peer(self) -> str:
        """The name of the server in error messages."""
        return self._channel.peer

    @property
    def remark(self) -> str:
        """A sentence that may explain why the server does not answer, or an empty text."""
        return self._channel.remark

    def facts(self, method: str) -> MessageFacts:
        """Return the facts that the other channel has about a message."""
        return self._channel.facts(method)

    async def open(self, receive: Receiver) -> None:
        """Open the channel; raises `Unreachable`."""

        async def record(frame: Frame) -> None:
            self._received(frame)
            await receive(frame)

        await self._channel.open(record)

    async def request(self, message: Message) -> Frame:
        """Send a request and return its last response; raises what the other channel raises."""
        self._sent(message)
        try:
            frame = await self._channel.request(message)
        except AntiphonError as error:
            self._on_message(
                RecordedMessage(time.time(), "server", b"", id=message.id, failure=str(error) or "failed")
            )
            raise
        self._received(frame)
        return frame

    async def send(self, message: Message) -> None:
        """Send a notification or a response; raises what the other channel raises."""
        self._sent(message)
        await self._channel.send(message)

    async def listen(
        self,
        headers: Mapping[str, str],
        *,
        on_reopened: Callable[[], None],
        on_session_lost: Callable[[], None],
    ) -> None:
        """Receive messages that belong to no request."""
        await self._channel.listen(headers, on_reopened=on_reopened, on_session_lost=on_session_lost)

    async def end(self, headers: Mapping[str, str]) -> None:
        """Tell the server that the session is over. Raises nothing."""
        await self._channel.end(headers)

    async def close(self) -> None:
        """Close the channel. Raises nothing."""
        await self._channel.close()

    def _sent(self, message: Message) -> None:
        request_id, is_error = message.id, False
        if not message.method:  # a response to the server, whose id is in the body only
            frame = jsonrpc.decode(message.body)
            request_id, is_error = frame.request_id, frame.error is not msgspec.UNSET
        self._on_message(
            RecordedMessage(time.time(), "client", message.body, message.method, request_id, is_error)
        )

    def _received(self, frame: Frame) -> None:
        self._on_message(
            RecordedMessage(
                time.time(),
                "server",
                jsonrpc.encode(frame),
                "" if frame.method is msgspec.UNSET else frame.method,
                frame.request_id,
                frame.error is not msgspec.UNSET,
            )
        )
