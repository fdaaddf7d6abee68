"""A channel of a test's own: a function answers what the client sends, in this process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from antiphon.transport.client.channel import Receiver
from antiphon.wire import jsonrpc
from antiphon.wire.client.dialect import Message
from antiphon.wire.jsonrpc import Frame
from tests.client.fakes import META, MODERN

LEGACY = "2025-11-25"
DONE: dict[str, Any] = {"result": {"content": [{"type": "text", "text": "Done."}]}}
NOTHING: dict[str, Any] = {"result": {}}


def refusal(code: int, message: str = "No.", **data: Any) -> dict[str, Any]:
    """The fields of an error."""
    return {"error": {"code": code, "message": message, **({"data": data} if data else {})}}


class Line:
    """Speaks one version. `answer` gets what is asked after the handshake, and gives what is answered."""

    peer = "the line"
    has_headers = False
    remark = ""

    def __init__(
        self,
        answer: Callable[[Line, dict[str, Any]], Awaitable[dict[str, Any]]],
        *,
        version: str = MODERN,
        has_streams: bool = False,
        welcomes: bool = True,
        **capabilities: Any,
    ) -> None:
        self.has_streams = has_streams
        self.sent: list[dict[str, Any]] = []
        self.streams = 0
        """How often it was asked for what a server says outside of requests."""
        self.is_closed = False
        self._answer = answer
        self._version = version
        self._welcomes = welcomes
        self._capabilities = capabilities
        self._receive: Receiver

    async def say(self, **fields: Any) -> None:
        """Let the server say something by itself."""
        await self._receive(_frame(fields))

    def asked(self, method: str) -> list[dict[str, Any]]:
        """The parameters of all messages with a method."""
        return [message.get("params", {}) for message in self.sent if message.get("method") == method]

    def replies(self) -> list[dict[str, Any]]:
        """What the client answered."""
        return [message for message in self.sent if "method" not in message]

    async def open(self, receive: Receiver) -> None:
        self._receive = receive

    async def request(self, message: Message) -> Frame:
        asked = json.loads(message.body)
        self.sent.append(asked)
        fields = self._welcome(asked["method"]) if self._welcomes else None
        return _frame({"id": asked["id"], **(fields or await self._answer(self, asked))})

    async def send(self, message: Message) -> None:
        self.sent.append(json.loads(message.body))

    async def listen(
        self,
        headers: Mapping[str, str],
        *,
        on_reopened: Callable[[], None],
        on_session_lost: Callable[[], None],
    ) -> None:
        self.streams += 1

    async def end(self, headers: Mapping[str, str]) -> None:
        pass

    async def close(self) -> None:
        self.is_closed = True

    def _welcome(self, method: str) -> dict[str, Any] | None:
        if method == "server/discover":
            welcome = {"supportedVersions": [MODERN], "capabilities": self._capabilities}
            return {"result": welcome} if self._version == MODERN else refusal(-32601)
        if method == "initialize":
            return {"result": {"protocolVersion": self._version, "capabilities": self._capabilities}}
        return None


class Telling:
    """Answers requests for changes: each is acknowledged, and then open until it is told to break."""

    def __init__(self) -> None:
        self.opened = 0
        self.breaking = asyncio.Event()

    async def __call__(self, line: Line, asked: dict[str, Any]) -> dict[str, Any]:
        if asked["method"] != "subscriptions/listen":
            return {"result": {"tools": [], "ttlMs": 60_000}}
        self.opened += 1
        await acknowledge(line, asked)
        await self.breaking.wait()
        self.breaking.clear()
        return NOTHING


async def acknowledge(line: Line, asked: dict[str, Any]) -> None:
    """Say that all changes will be told that were asked for."""
    params = {
        "notifications": asked["params"]["notifications"],
        "_meta": {META + "subscriptionId": asked["id"]},
    }
    await line.say(method="notifications/subscriptions/acknowledged", params=params)


def _frame(fields: dict[str, Any]) -> Frame:
    return jsonrpc.decode(json.dumps({"jsonrpc": "2.0", **fields}))
