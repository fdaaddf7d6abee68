"""A channel that answers from a recording, in place of a server.

A request is answered by the first recorded request with the same method and parameters that was not used yet.
Metadata and ids may differ. Messages that the server sent before its response come before it again. A request
without a recorded response gets the messages that name it, and then waits. Answers to questions of the server
must be the recorded ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from msgspec import UNSET

from antiphon.errors import BadAnswer, RequestError, Unreachable
from antiphon.instrumentation.facts import MessageFacts
from antiphon.model.request import RequestId
from antiphon.transport.client.channel import Receiver
from antiphon.transport.client.decoding import decode
from antiphon.transport.client.recording_file import RecordedLine
from antiphon.wire import jsonrpc
from antiphon.wire.client.dialect import Message
from antiphon.wire.client.replayed import (
    comparable_params,
    is_same_reply,
    is_same_request,
    owner_of,
    renumbered,
)
from antiphon.wire.client.segments import is_partial
from antiphon.wire.jsonrpc import Frame, excerpt

__all__ = ["ReplayChannel"]


class _Line:
    """A recorded line, its message, and whether it was replayed."""

    __slots__ = ("failure", "frame", "id", "is_client", "used")

    def __init__(self, line: RecordedLine) -> None:
        try:
            self.frame = None if line.failure else decode(bytes(line.message))
        except RequestError as error:
            raise ValueError(f"The recording has a line that is not a message: {error}") from None
        self.failure = line.failure
        self.id = line.id if self.frame is None else self.frame.request_id
        self.is_client = line.sender == "client"
        self.used = False

    @property
    def is_request(self) -> bool:
        return self.frame is not None and self.frame.method is not UNSET and self.id is not None

    @property
    def owner(self) -> RequestId | None:
        """The id of the request that a message of the server names, if it names one."""
        return None if self.is_client or self.frame is None else owner_of(self.frame)

    @property
    def is_response(self) -> bool:
        return self.frame is not None and self.frame.method is UNSET

    def ends(self, request_id: RequestId | None) -> bool:
        """Return whether this is the last response of the server to a request, or its failure."""
        if self.is_client or self.id != request_id:
            return False
        return self.frame is None or (self.is_response and not is_partial(self.frame))


class ReplayChannel:
    """A channel to a recorded server. Raises `ValueError` for lines that are not messages."""

    has_streams = True
    has_headers = False
    remark = ""

    def __init__(self, lines: Sequence[RecordedLine], name: str) -> None:
        self.peer = name
        self._lines = [_Line(line) for line in lines]
        self._owners = {line.id: line for line in self._lines if line.is_client and line.is_request}
        self._replaying: set[RequestId | None] = set()
        """The recorded ids of the requests that are under way."""
        self._current: dict[RequestId | None, RequestId | None] = {}
        """The ids that requests have now, by the recorded ones."""
        self._replies: dict[RequestId, asyncio.Future[Frame]] = {}
        """The answers of the client to questions of the server."""
        self._askers: dict[RequestId, RequestId | None] = {}
        """The recorded ids of the requests that handed on the questions."""
        self._receive: Receiver | None = None

    def facts(self, method: str) -> MessageFacts:
        """Return the facts about a message that goes nowhere."""
        return MessageFacts(method)

    async def open(self, receive: Receiver) -> None:
        """Start to replay."""
        self._receive = receive

    async def request(self, message: Message) -> Frame:
        """Return the recorded response; raises `BadAnswer` if there is none to such a request."""
        position = self._find(message)
        asked = self._lines[position]
        asked.used = True
        self._current[asked.id] = message.id
        self._replaying.add(asked.id)
        try:
            return await self._answer(asked, self._lines[position + 1 :])
        finally:
            self._replaying.discard(asked.id)

    async def _answer(self, asked: _Line, following: Sequence[_Line]) -> Frame:
        """Replay what followed a request, and return its response; raises `Unreachable` if it had failed."""
        if not any(line.ends(asked.id) for line in following):
            # A stream that was open until the end of the recording. Other messages belong to other requests.
            for line in following:
                if line.owner == asked.id:
                    await self._replay(line, asked)
            await asyncio.Event().wait()
        for line in following:
            if line.ends(asked.id):
                if line.frame is None:
                    raise Unreachable(line.failure)
                return renumbered(line.frame, asked.id, self._current[asked.id])
            await self._replay(line, asked)
        raise AssertionError("unreachable")

    async def send(self, message: Message) -> None:
        """Note a response to a question of the server. Notifications of the client are not compared."""
        frame = jsonrpc.decode(message.body)
        if frame.method is UNSET and frame.request_id is not None:
            reply = self._reply_to(frame.request_id)
            if not reply.done():
                reply.set_result(frame)

    async def listen(
        self,
        headers: Mapping[str, str],
        *,
        on_reopened: Callable[[], None],
        on_session_lost: Callable[[], None],
    ) -> None:
        """Do nothing: all messages come with the requests."""

    async def end(self, headers: Mapping[str, str]) -> None:
        """Do nothing."""

    async def close(self) -> None:
        """Do nothing."""

    def _find(self, message: Message) -> int:
        wanted = jsonrpc.decode(message.body)
        for position, line in enumerate(self._lines):
            if not line.is_client or not line.is_request or line.used or line.frame is None:
                continue
            if is_same_request(line.frame, wanted):
                return position
        params = excerpt(comparable_params(wanted), 200)
        raise BadAnswer(
            f"{self.peer} has no further request {message.method} with the params {params}. Record the "
            "messages again, or repeat the recorded ones."
        )

    async def _replay(self, line: _Line, asked: _Line) -> None:
        """Hand one line on, unless it belongs to another request that will do so."""
        assert self._receive is not None
        if line.used or line.frame is None:
            return
        if line.is_client:
            if line.is_response and line.id in self._askers and self._askers[line.id] == asked.id:
                line.used = True
                self._compare(line.frame, await self._reply_to(line.id))
            return
        owner = line.owner
        if owner != asked.id and (line.is_response or self._is_awaited(owner)):
            return
        line.used = True
        if line.is_request and line.id is not None:
            self._askers[line.id] = asked.id
        await self._receive(renumbered(line.frame, owner, self._current.get(owner, owner)))

    def _is_awaited(self, owner: RequestId | None) -> bool:
        """Return whether a request is under way or still to come, and so gets its messages itself."""
        asked = self._owners.get(owner)
        return asked is not None and (not asked.used or owner in self._replaying)

    def _compare(self, recorded: Frame, made: Frame) -> None:
        """Raise `BadAnswer` if a question was answered in another way than in the recording."""
        if not is_same_reply(recorded, made):
            given = made.result if made.error is UNSET else made.error
            raise BadAnswer(
                f"{self.peer} has another answer to a question than {excerpt(given, 200)}. Record the "
                "messages again, or answer as recorded."
            )

    def _reply_to(self, request_id: RequestId) -> asyncio.Future[Frame]:
        if request_id not in self._replies:
            self._replies[request_id] = asyncio.get_running_loop().create_future()
        return self._replies[request_id]
