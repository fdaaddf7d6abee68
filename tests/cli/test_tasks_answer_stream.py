"""`antiphon tasks answer` at a server that sends the questions of a task on a stream."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.cli.command import antiphon
from tests.client.fakes import Reply, serving

TASK = {
    "taskId": "t1",
    "status": "input_required",
    "createdAt": "2026-07-28T09:00:00Z",
    "lastUpdatedAt": "2026-07-28T09:00:00Z",
    "ttl": None,
    "pollInterval": 60_000,
}
SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


class AskingServer:
    """A server with a task that asks in rounds. Its status stays `input_required` between them."""

    def __init__(self, *rounds: tuple[str, ...]) -> None:
        self._rounds = rounds
        self._answered = asyncio.Condition()
        self.answers: dict[str, Any] = {}

    async def __call__(self, reply: Reply) -> None:
        """Respond to one request."""
        request = reply.request
        if request.method == "initialize":
            offers = {"tools": {}, "tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}}
            info = {"name": "asking", "version": "1"}
            given = {"protocolVersion": "2025-11-25", "capabilities": offers, "serverInfo": info}
            await reply.result(given, mcp_session_id="s1")
        elif request.method == "tasks/get":
            await reply.result(TASK)
        elif request.method == "tasks/result":
            await self._ask(reply)
        elif request.verb == "POST" and not request.method:
            await reply.head(202, None, content_length="0")
            async with self._answered:
                self.answers[request.id] = request.body.get("result", {}).get("content")
                self._answered.notify_all()
        else:
            await reply.head(202 if request.verb == "POST" else 405, None, content_length="0")

    async def _ask(self, reply: Reply) -> None:
        await reply.events()
        for keys in self._rounds:
            for key in keys:
                params = {"mode": "form", "message": f"{key}?", "requestedSchema": SCHEMA}
                await reply.event({"id": key, "method": "elicitation/create", "params": params})
            async with self._answered:
                await self._answered.wait_for(lambda keys=keys: self.answers.keys() >= set(keys))
        await reply.hang()


async def _answer(server: AskingServer, *given: str) -> tuple[int, str]:
    async with serving(server) as fake:
        done = await asyncio.to_thread(
            antiphon, "tasks", "answer", fake.url, "t1", *given, "--protocol", "2025-11-25"
        )
    return done.returncode, done.stdout + done.stderr


async def test_leaves_questions_of_the_next_round_open() -> None:
    server = AskingServer(("first",), ("last",))
    assert await _answer(server, "name=Ada") == (0, "Answered the questions of t1.\n")
    assert server.answers["first"] == {"name": "Ada"}
    assert server.answers.get("last") is None


async def test_answers_all_questions_of_a_round() -> None:
    server = AskingServer(("first", "last"), ("more",))
    assert await _answer(server, "name=Ada", "name=Byron") == (0, "Answered the questions of t1.\n")
    given = [server.answers[key]["name"] for key in ("first", "last")]
    assert sorted(given) == ["Ada", "Byron"]
    assert server.answers.get("more") is None
