"""The load of promises: each connection makes a task, looks until it has ended, and begins again.

A process of its own, pinned to a core. Prints what it measured as JSON. Everything it reads is checked. If
nothing else needs its core it polls, for the reason that `load.py` gives.
"""

import asyncio
import json
import statistics
import sys
import time
from typing import Any

from processes import cpu_seconds, pin
from traffic import promise_request

NAP = 0.005
"""Seconds between two looks at a task that is not done."""


class Caller:
    """One keep-alive connection."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._ids = 0

    async def open(self) -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)

    async def ask(self, method: str, params: dict[str, Any], name: str) -> dict[str, Any]:
        """The result of a request; raises RuntimeError for anything else."""
        self._ids += 1
        self._writer.write(promise_request(self._port, self._ids, method, params, name))
        head = await self._reader.readuntil(b"\r\n\r\n")
        at = head.lower().index(b"content-length:") + 15
        body = await self._reader.readexactly(int(head[at : head.index(b"\r", at)]))
        frame = json.loads(body)
        if "result" not in frame:
            raise RuntimeError(f"{method}: {body[:300]!r}")
        return dict(frame["result"])

    async def redeem(self, number: int) -> float:
        """Make a task and wait for its result; the seconds that took."""
        begun = time.perf_counter()
        made = await self.ask("tools/call", {"name": "add", "arguments": {"a": number, "b": 4000}}, "add")
        id = made["taskId"]
        task = await self._ended(id)
        if str(number + 4000) not in json.dumps(task["result"]):
            raise RuntimeError(f"a wrong result: {task}")
        return time.perf_counter() - begun

    async def resume(self, number: int) -> float:
        """Answer a task that waits; the seconds from the answer to the end."""
        made = await self.ask("tools/call", {"name": "ask", "arguments": {"number": number}}, "ask")
        id = made["taskId"]
        await self._ended(id)
        begun = time.perf_counter()
        answers = {"copies": {"action": "accept", "content": {"value": 1}}}
        await self.ask("tasks/update", {"taskId": id, "inputResponses": answers}, id)
        task = await self._ended(id, "working", "input_required")
        if task["status"] != "completed":
            raise RuntimeError(f"a task failed: {task}")
        return time.perf_counter() - begun

    async def _ended(self, id: str, *under_way: str) -> dict[str, Any]:
        """The task, once it is no longer under way."""
        for _ in range(10_000):
            task = await self.ask("tasks/get", {"taskId": id}, id)
            if task["status"] not in (under_way or ("working",)):
                return task
            await asyncio.sleep(NAP)
        raise RuntimeError(f"a task does not end: {id}")


async def measure(
    port: int, server: int, seconds: float, connections: int, what: str, *, polls: bool
) -> dict[str, float]:
    """Keep all connections busy for so long."""
    callers = [Caller(port) for _ in range(connections)]
    for caller in callers:
        await caller.open()
    for caller in callers:
        await getattr(caller, what)(1)
    taken: list[float] = []
    begun, cpu = time.perf_counter(), cpu_seconds(server)
    loop, is_over = asyncio.get_running_loop(), False

    def poll() -> None:
        if polls and not is_over:
            loop.call_soon(poll)

    async def busy(caller: Caller, number: int) -> None:
        while time.perf_counter() - begun < seconds:
            taken.append(await getattr(caller, what)(number))

    poll()
    await asyncio.gather(*(busy(caller, 100 + number) for number, caller in enumerate(callers)))
    spent = time.perf_counter() - begun
    is_over = True
    return {
        "per_second": len(taken) / spent,
        "median_ms": statistics.median(taken) * 1000,
        "cpu_us": (cpu_seconds(server) - cpu) / len(taken) * 1e6,
    }


if __name__ == "__main__":
    job = json.loads(sys.argv[1])
    pin(0, job.pop("core"))
    print(json.dumps(asyncio.run(measure(**job))))
