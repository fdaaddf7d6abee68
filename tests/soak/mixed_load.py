"""Mixed load for one server, in rounds: calls, sessions, tasks, questions, and slow and broken clients.

Each round is the same amount of load, however long it takes. Each client of a round has left at its end.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.asking.driving import EVERYTHING, accept
from tests.promises.speaking import Patient, begin
from tests.soak.growth import Sample
from tests.support import http
from tests.support.polling import DEADLINE, Stopwatch, pause, until
from tests.support.process import ROOT, environment, free_port
from tests.support.speakers import Modern, Session

__all__ = ["Instance", "MixedLoad"]

SERVICE = Path(__file__).parent / "growing.py"
REST_SECONDS = 30.0
"""How long a server may take to come to rest after a round."""
UNREAD_BYTES = 3_000_000
_LOST = (OSError, asyncio.IncompleteReadError, TimeoutError)
"""What a client sees whose connection the server drops."""


class Instance:
    """One process of the service."""

    def __init__(self, folder: Path, number: int, *, leaks: bool = False) -> None:
        self.port = free_port()
        self._log = folder.parent / f"growing-{number}.log"
        self._environment = {
            "ANTIPHON_STORE": f"sqlite:///{folder}/tasks.db",
            "GROWTH_FOLDER": str(folder),
            **({"GROWTH_LEAK": "1"} if leaks else {}),
        }
        self.start()

    def start(self) -> None:
        """Start the process."""
        with self._log.open("ab") as sink:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "antiphon", "run", str(SERVICE), "--port", str(self.port)],
                cwd=ROOT,
                env=environment(self._environment),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
            )

    async def ready(self) -> None:
        """Wait until the process accepts connections."""

        async def listens() -> bool:
            assert self.process.poll() is None, self.log
            try:
                async with http.connect(self.port):
                    return True
            except OSError:
                return False

        await until(listens)

    @property
    def log(self) -> str:
        """The output of the process."""
        return self._log.read_text(errors="replace")

    def kill(self) -> None:
        """Kill the process, as a machine that fails does."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """End the process."""
        self.process.terminate()
        try:
            self.process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            self.kill()


class MixedLoad:
    """The clients of one measured process. `size` is how many of each kind a round has."""

    def __init__(self, port: int, *, size: int = 4, seed: int = 1) -> None:
        self.port = port
        self.size = size
        self._random = random.Random(seed)

    async def round(self) -> Sample:
        """Put load on the server, wait until it is at rest, and return its measurements."""
        kinds: Sequence[Callable[[int], Awaitable[None]]] = [
            self._call,
            self._open_session,
            self._run_task,
            self._ask,
            self._leave_early,
            self._send_rubbish,
            self._read_nothing,
            self._listen,
        ]
        clients = [kind(number) for kind in kinds for number in range(self.size)]
        self._random.shuffle(clients)
        async with asyncio.timeout(60 + 10 * self.size):
            await asyncio.gather(*clients)
        return await self._at_rest()

    async def kinds(self) -> Mapping[str, int]:
        """Return the number of objects of each type."""
        return dict((await Modern(self.port).call("kinds")).result["structuredContent"])

    async def _at_rest(self) -> Sample:
        """Return measurements once two of them have the same connections and coroutines."""
        watch = Stopwatch()
        before: tuple[int, int] | None = None
        while True:
            await pause(0.15)
            taken = dict((await Modern(self.port).call("measure")).result["structuredContent"])
            now = taken["descriptors"], taken["coroutines"]
            if now == before or watch.seconds > REST_SECONDS:
                return taken
            before = now

    # Clients that do what they should

    async def _call(self, number: int) -> None:
        for place in range(10):
            assert (await Modern(self.port).call("add", a=number, b=place)).text == str(number + place)
        assert (await Modern(self.port).call("wait")).text == "waited"

    async def _open_session(self, number: int) -> None:
        session = Session(self.port)
        await session.open()
        await session.ask("resources/subscribe", {"uri": f"u://{number}"})
        await session.call("say", {"progressToken": 1}, size=100)
        async with session.listening() as connection:
            await connection.receive_head()
            if number % 2:
                connection.vanish()
        if number % 2 == 0:
            await session.end()

    async def _run_task(self, number: int) -> None:
        speaker = Patient(self.port)
        for place in range(3):
            task = await begin(speaker, "job", number=place)
            if place == 1:
                await speaker.ask("tasks/cancel", {"taskId": task["taskId"]})
                continue
            while (answer := await speaker.ask("tasks/get", {"taskId": task["taskId"]})).status == 200:
                if "error" in answer.frame:
                    assert "not found" in answer.error["message"], answer.error
                    break  # it has ended, and is not kept for long
                seen = answer.result
                if seen["status"] in ("completed", "failed"):
                    break
                if seen["status"] == "input_required":
                    answers = {key: accept(value="yes") for key in seen["inputRequests"]}
                    await speaker.ask("tasks/update", {"taskId": task["taskId"], "inputResponses": answers})
                await pause(0.02)

    async def _ask(self, number: int) -> None:
        speaker = Modern(self.port)
        speaker.capabilities = EVERYTHING
        params: dict[str, Any] = {"name": "ask", "arguments": {}}
        asked = (await speaker.ask("tools/call", params)).result
        if number % 2:  # the others never come back
            answers = {key: accept(value="Ada") for key in asked["inputRequests"]}
            params["inputResponses"] = answers
            if "requestState" in asked:
                params["requestState"] = asked["requestState"]
            assert (await speaker.ask("tools/call", params)).text == "Hello Ada"

    async def _listen(self, number: int) -> None:
        params = {"notifications": {"resourceSubscriptions": [f"u://{number}"]}}
        async with Modern(self.port).asking("subscriptions/listen", params) as connection:
            await connection.receive_head()
            connection.vanish()

    # Clients that do not

    async def _leave_early(self, number: int) -> None:
        headers, frame = Modern(self.port).build("tools/call", {"name": "say", "arguments": {"size": 9}})
        body = json.dumps(frame).encode()
        request = http.head("POST", "/mcp", headers, len(body)) + body
        for cut in (10, len(request) - len(body), len(request) - 5, len(request)):
            async with http.connect(self.port) as connection:
                await connection.write(request[:cut])
                await pause(0.02 * (number % 3))
                connection.vanish()

    async def _send_rubbish(self, number: int) -> None:
        headers, _ = Modern(self.port).build("tools/call", {"name": "add"})
        for body in (b"{", b"[]", b"\xff" * 100, b'{"jsonrpc":"2.0","id":1,"method":"x"}', b"[" * 5000):
            refused = await http.request(self.port, "POST", headers, body)
            assert refused.status in (400, 404), refused
        async with http.connect(self.port) as connection:
            await connection.write(b"\0\x16\x03 no http\r\n\r\n")
            try:
                await connection.receive_head()
            except _LOST:
                pass

    async def _read_nothing(self, number: int) -> None:
        params = {"name": "say", "arguments": {"size": UNREAD_BYTES}}
        async with Modern(self.port).asking("tools/call", params) as connection:
            connection.writer.transport.pause_reading()  # type: ignore[attr-defined]
            await pause(0.1)
            connection.vanish()
