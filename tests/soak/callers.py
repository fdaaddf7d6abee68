"""The callers: they create tasks, answer, cancel, read streams and send events, and write down what they saw.

A request whose response is lost is not repeated where the repetition would hide what happened. Responses are
read without our client.
"""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from tests.asking.driving import accept
from tests.promises.speaking import Patient
from tests.soak.fleet import Fleet, Process
from tests.soak.notes import History
from tests.streaming.speaking import Follower, numbered, reading
from tests.support.http import Response
from tests.support.polling import DEADLINE, pause
from tests.support.speakers import Bare, Speaker

__all__ = ["Callers"]

_LOST = (OSError, asyncio.IncompleteReadError, AssertionError, ValueError, TimeoutError, KeyError)
"""What a request raises whose process is killed, stopped or restarted meanwhile."""
_WATCHERS = 4
_INVALID_PARAMS = -32602
ENDS = ("completed", "failed", "cancelled")


class Callers:
    """All callers of one run."""

    def __init__(
        self, fleet: Fleet, history: History, random: random.Random, *, answers_at_once: int, readers: int
    ) -> None:
        self.tasks: dict[str, int] = {}
        """The tasks that were acknowledged, and their numbers."""
        self.open: set[str] = set()
        """The tasks whose end nobody has seen."""
        self._fleet = fleet
        self._history = history
        self._random = random
        self._answers_at_once = answers_at_once
        self._readers = readers
        self._asked: dict[str, list[str]] = {}
        self.held = ""
        """The question that nobody answers."""
        self._beside: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Watch all tasks, and answer what they ask."""
        for number in range(_WATCHERS):
            self._begin(self._watch(f"watcher {number}"))

    async def stop(self) -> None:
        """Leave."""
        for task in self._beside:
            task.cancel()
        await asyncio.gather(*self._beside, return_exceptions=True)

    def _begin(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._beside.add(task)

    def _process(self) -> Process:
        return self._random.choice(self._fleet.processes)

    # Creating

    async def give(
        self, number: int, tool: str, *, at: Process | None = None, **arguments: Any
    ) -> str | None:
        """Create a task. A request whose answer is lost is not repeated: the task may exist or not."""
        while True:
            process = at or self._process()
            try:
                async with asyncio.timeout(DEADLINE):
                    called = await Patient(process.port).call(tool, number=number, **arguments)
                id = str(called.result["taskId"])
            except ConnectionRefusedError:
                await pause(0.1)
                continue
            except _LOST:
                return None
            self._history.add("created", id, "giver", "acknowledged", number)
            self.tasks[id] = number
            self.open.add(id)
            if tool == "stream":
                for reader in range(self._readers):
                    self._begin(self._read(id, f"reader {reader}"))
            elif tool == "stoppable":
                self._begin(self._stop_task(id))
            return id

    def adopt(self, id: str, number: int) -> None:
        """Watch a task whose acknowledgement was lost."""
        if id not in self.tasks:
            self.tasks[id] = number
            self.open.add(id)

    # Watching and answering

    async def _watch(self, caller: str) -> None:
        """Look at each task that is open, and answer what it asks, again and again."""
        while True:
            for id in self._random.sample(sorted(self.open), min(len(self.open), 25)):
                status = await self._look(id, caller)
                if status == "input_required":
                    await self._answer(id)
                elif status in ENDS:
                    await self._look(id, f"{caller}, elsewhere")
            await pause(0.2)

    async def look_at_all(self) -> None:
        """Look at each task once more."""
        for id in self.tasks:
            await self._look(id, "the last caller")

    async def _look(self, id: str, caller: str) -> str | None:
        """Return the status of a task; `None` if nobody says."""
        outcome, value = await self._send(Patient(self._process().port), "tasks/get", {"taskId": id})
        if outcome == "refused":
            self._history.add("missing", id, caller, outcome, value)
        if outcome != "acknowledged":
            return None
        status = str(value["status"])
        if status in ENDS:
            self._history.add("ended", id, caller, status, value.get("result", value.get("error")))
            self.open.discard(id)
        elif status == "input_required":
            self._asked[id] = [key for key in value["inputRequests"] if key != self.held]
        return status

    async def _answer(self, id: str) -> None:
        """Answer the questions of a task, by several callers at once with different answers perhaps."""
        keys, self._asked[id] = self._asked.get(id, []), []
        if not keys:
            return  # another watcher has answered
        names = [f"v{secrets.token_hex(3)}" for _ in range(self._answers_at_once)]
        if len(names) == 1:
            names = ["Ada"]
        await asyncio.gather(*(self._answer_by(id, keys, name) for name in names))

    async def _answer_by(self, id: str, keys: Sequence[str], name: str) -> None:
        responses = {key: accept(value=name) for key in keys}
        params = {"taskId": id, "inputResponses": responses}
        outcome, value = await self._send(Patient(self._process().port), "tasks/update", params)
        self._history.add("answered", id, name, outcome, value)

    # Cancelling

    async def _stop_task(self, id: str) -> None:
        """Cancel a task by two callers at once, when it may just be ending.

        The core refuses to cancel a task that has ended. In 2026-07-28, it is acknowledged too: `taken`.
        """
        await pause(self._random.uniform(0, 0.8))

        async def cancel(caller: str, dialect: type[Speaker]) -> None:
            outcome, value = await self._send(dialect(self._process().port), "tasks/cancel", {"taskId": id})
            if dialect is Patient and outcome == "acknowledged":
                outcome = "taken"
            self._history.add("cancelled", id, caller, outcome, value)

        await asyncio.gather(cancel("stopper 0", Bare), cancel("stopper 1", Patient))

    # Reading

    async def _read(self, id: str, caller: str) -> None:
        """Read the stream of a task to its end, from the next segment on whenever it breaks off."""
        after = 0
        while True:
            client = Follower(self._process().port)
            stops_after = self._random.choice([1, 2, 100])
            try:
                params = {"taskId": id, "after": after}
                async with reading(client, "tasks/stream", params) as stream:
                    while (frame := await stream.next()) is not None:
                        if found := numbered([frame]):
                            self._history.add("segments", id, caller, "acknowledged", found)
                            after = max(after, found[-1][0])
                        if frame.get("result", {}).get("status") in ENDS:
                            self._history.add("segments", id, caller, "ended", [])
                            return
                        if len(stream.frames) > stops_after:
                            break
            except _LOST:
                pass
            await pause(self._random.uniform(0.05, 0.3))

    # Events

    async def send_events(self, topic: str, texts: Sequence[str], longest: float) -> None:
        """Send events, each until it is acknowledged."""
        for text in texts:
            outcome = "lost"
            while outcome != "acknowledged":
                await pause(self._random.uniform(0, longest))
                params = {"name": "tell", "arguments": {"topic": topic, "text": text}}
                outcome, value = await self._send(Patient(self._process().port), "tools/call", params)
                if outcome == "acknowledged" and value.get("isError"):
                    outcome = "lost"  # the store was away
                self._history.add("sent", topic, "sender", outcome, text)

    async def _send(self, client: Speaker, method: str, params: Mapping[str, Any]) -> tuple[str, Any]:
        """Send a request; return whether it was acknowledged, refused or lost, and what came back."""
        try:
            async with asyncio.timeout(DEADLINE):
                response = await client.ask(method, params)
        except _LOST as error:
            return "lost", repr(error)
        return _outcome(response)


def _outcome(response: Response) -> tuple[str, Any]:
    """Return what a response says. A server that cannot reach its store says nothing about the task."""
    frame = response.frame if response.frames else {}
    if "result" in frame:
        return "acknowledged", frame["result"]
    error = frame.get("error", {"code": None, "message": f"status {response.status}"})
    return "refused" if error["code"] == _INVALID_PARAMS else "lost", error
