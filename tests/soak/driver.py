"""Runs the service in several processes, gives it tasks, and disturbs it by a seeded plan.

Everything is bounded: the number of tasks, the seconds of trouble, and the seconds of peace afterwards, in
which all tasks must end. The processes are ended by their ids.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import socket
import sqlite3
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import asyncpg

from tests.asking.driving import accept
from tests.promises.speaking import Patient, begin, look
from tests.soak.judge import Stored, judge, read_store
from tests.soak.notes import Note, read_notes
from tests.support.fork_server import start_process
from tests.support.process import ROOT, environment, free_port

__all__ = ["TOOLS", "TROUBLES", "Plan", "Process", "Soak", "Trouble", "report"]

SERVICE = Path(__file__).parent / "service.py"
LEASE_SECONDS = 1.0
_LOST = (OSError, asyncio.IncompleteReadError, AssertionError, ValueError)
"""What a request raises whose process is killed, stopped or restarted meanwhile."""

Trouble = str
TOOLS: Sequence[str] = ("chain", "chain", "ask", "stream", "long", "once", "extra")
TROUBLES: Sequence[Trouble] = ("kill", "stop", "pause", "outage", "jump")


class Plan:
    """How much, how long, and which troubles."""

    def __init__(
        self,
        store: str,
        *,
        tasks: int = 60,
        processes: int = 3,
        seconds: float = 10.0,
        peace: float = 90.0,
        seed: int = 1,
        troubles: Sequence[Trouble] = TROUBLES,
        versions: Sequence[str] = ("a", "b"),
        fenced: bool = True,
        tools: Sequence[str] = TOOLS,
    ) -> None:
        self.store = store
        self.tasks = tasks
        self.processes = processes
        self.seconds = seconds
        self.peace = peace
        self.seed = seed
        self.troubles = troubles
        self.versions = versions
        self.fenced = fenced
        self.tools = tools


class Process:
    """One process of the service, restarted at the same port."""

    def __init__(self, plan: Plan, directory: Path, number: int, version: str) -> None:
        self.port = free_port()
        self.version = version
        self.clock = directory / f"clock-{number}"
        self._log = directory / f"service-{number}.log"
        self._environment = {
            "ANTIPHON_STORE": plan.store,
            "SOAK_NOTES": str(directory / "notes"),
            "SOAK_CLOCK": str(self.clock),
            "SOAK_LEASE": str(LEASE_SECONDS),
            **({} if plan.fenced else {"SOAK_UNFENCED": "1"}),
        }
        self.clock.write_text("0")
        self.start()

    @property
    def log(self) -> str:
        """The output of all processes at this port."""
        return self._log.read_text(errors="replace")

    @property
    def is_listening(self) -> bool:
        """Whether the process accepts connections."""
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def start(self, version: str | None = None) -> None:
        """Start the process, of another version perhaps."""
        self.version = version or self.version
        with self._log.open("ab") as sink:
            self.process = start_process(
                [sys.executable, str(SERVICE), str(self.port)],
                cwd=ROOT,
                env=environment({**self._environment, "SOAK_VERSION": self.version}),
                stdout=sink,
                stderr=sink,
            )

    def signal(self, number: int) -> None:
        """Send a signal to the process, if it is alive."""
        if self.process.poll() is None:
            self.process.send_signal(number)

    async def ended(self, within: float = 15.0) -> None:
        """Wait until the process has ended; kill it if that takes too long."""
        deadline = time.monotonic() + within
        while self.process.poll() is None:
            if time.monotonic() > deadline:
                self.signal(signal.SIGKILL)
            await asyncio.sleep(0.05)


class Soak:
    """One run: the processes, the tasks that were acknowledged, and what was done to the processes."""

    def __init__(self, plan: Plan, directory: Path) -> None:
        self.plan = plan
        self.directory = directory
        self.acknowledged: dict[str, int] = {}
        self.done: list[str] = []
        """The troubles, in order."""
        self._random = random.Random(plan.seed)
        self._ended: set[str] = set()
        (directory / "notes").touch()
        self.processes = [
            Process(plan, directory, number, plan.versions[number % len(plan.versions)])
            for number in range(plan.processes)
        ]

    async def run(self) -> list[str]:
        """Give tasks, make trouble, make peace, end everything; return the violations."""
        try:
            await self._ready()
            giving = asyncio.create_task(self._give_tasks())
            answering = asyncio.create_task(self._answer())
            async with asyncio.timeout(self.plan.seconds + 60):
                await self._make_trouble(time.monotonic() + self.plan.seconds)
                await self._make_peace()
            with contextlib.suppress(TimeoutError):  # a slow machine gives fewer: the report says how many
                await asyncio.wait_for(giving, 60)
            await self.all_ended(time.monotonic() + self.plan.peace)
            answering.cancel()
        finally:
            await self.stop()
        return await self.violations()

    async def violations(self) -> list[str]:
        """Compare the store with what really happened."""
        return judge(await self.stored(), self.acknowledged, self.notes())

    async def _ready(self) -> None:
        """Wait until every process accepts connections."""
        for process in self.processes:
            while not process.is_listening:
                assert process.process.poll() is None, process.log
                await asyncio.sleep(0.05)

    async def stored(self) -> dict[str, Stored]:
        """Return what the store has."""
        return await read_store(self.plan.store)

    def notes(self) -> Sequence[Note]:
        """Return what really happened."""
        return read_notes(self.directory / "notes")

    # Giving tasks and answering

    async def _give_tasks(self) -> None:
        pause = self.plan.seconds / self.plan.tasks
        for number in range(self.plan.tasks):
            await self.give(number, self._random.choice(self.plan.tools))
            await asyncio.sleep(pause / 2)

    async def give(self, number: int, tool: str) -> None:
        """Create a task. A request whose answer is lost is not repeated: the task may exist or not."""
        while True:
            process = self._random.choice(self.processes)
            try:
                async with asyncio.timeout(5):
                    task = await begin(Patient(process.port), tool, number=number)
                self.acknowledged[task["taskId"]] = number
                return
            except ConnectionRefusedError:
                await asyncio.sleep(0.1)
            except (*_LOST, KeyError):
                return

    async def _answer(self) -> None:
        """Answer every question that is open, again and again."""
        while True:
            for id in list(self.acknowledged):
                if id not in self._ended:
                    await self._look_at(id)
            await asyncio.sleep(0.2)

    async def _look_at(self, id: str) -> None:
        speaker = Patient(self._random.choice(self.processes).port)
        try:
            async with asyncio.timeout(3):
                task = await look(speaker, id)
                if task["status"] == "input_required":
                    responses = {key: accept(value="Ada") for key in task["inputRequests"]}
                    await speaker.ask("tasks/update", {"taskId": id, "inputResponses": responses})
                elif task["status"] != "working":
                    self._ended.add(id)
        except (*_LOST, KeyError):
            return

    async def all_ended(self, deadline: float) -> None:
        """Wait until the store has no task under way. The judge says which do not end."""
        while time.monotonic() < deadline:
            stored = await self.stored()
            if all(task.phase == "ended" for task in stored.values()) and stored:
                return
            for task in stored.values():  # also those whose acknowledgement was lost
                self.acknowledged.setdefault(task.id, task.number)
            await asyncio.sleep(0.5)

    # Trouble and peace

    async def _make_trouble(self, until: float) -> None:
        kinds: dict[Trouble, Callable[[Process], Awaitable[None]]] = {
            "kill": self._kill,
            "stop": self._terminate,
            "pause": self._pause,
            "outage": self._outage,
            "jump": self._jump,
        }
        under_way: set[asyncio.Task[None]] = set()
        while time.monotonic() < until and self.plan.troubles:
            await asyncio.sleep(self._random.uniform(0.3, 1.2))
            trouble = self._random.choice(self.plan.troubles)
            process = self._random.choice(self.processes)
            self.done.append(f"{trouble} {self.processes.index(process)}")
            task = asyncio.ensure_future(kinds[trouble](process))
            under_way.add(task)
            task.add_done_callback(under_way.discard)
        if under_way:
            await asyncio.wait(under_way)

    async def _kill(self, process: Process) -> None:
        process.signal(signal.SIGKILL)
        await process.ended()
        process.start()

    async def _terminate(self, process: Process) -> None:
        """Stop in order, and start again as another version, as a rollout does."""
        process.signal(signal.SIGTERM)
        await process.ended()
        process.start(self._random.choice(self.plan.versions))

    async def _pause(self, process: Process) -> None:
        process.signal(signal.SIGSTOP)
        await asyncio.sleep(LEASE_SECONDS * self._random.uniform(1.5, 3))
        process.signal(signal.SIGCONT)

    async def _outage(self, process: Process) -> None:
        async with outage(self.plan.store):
            await asyncio.sleep(LEASE_SECONDS * self._random.uniform(1.5, 3))

    async def _jump(self, process: Process) -> None:
        process.clock.write_text(str(self._random.choice([-3600, 3600, -5, 5])))

    async def _make_peace(self) -> None:
        for process in self.processes:
            process.clock.write_text("0")
            process.signal(signal.SIGCONT)
            if process.process.poll() is not None:
                process.start()

    async def stop(self) -> None:
        """End all processes."""
        for process in self.processes:
            process.signal(signal.SIGCONT)
            process.signal(signal.SIGTERM)
        await asyncio.gather(*(process.ended() for process in self.processes))


@asynccontextmanager
async def outage(store: str) -> AsyncIterator[None]:
    """Lock the whole store from outside: for its clients it is as if it were gone."""
    if store.startswith("sqlite:///"):
        with closing(
            sqlite3.connect(store.removeprefix("sqlite:///"), timeout=5, isolation_level=None)
        ) as db:
            try:
                db.execute("BEGIN EXCLUSIVE")
            except sqlite3.OperationalError:  # another outage is under way
                pass
            yield
        return
    address, _, schema = store.partition("?schema=")
    connection = await asyncpg.connect(address)
    try:
        async with connection.transaction():
            await connection.execute(f"LOCK TABLE {schema}.tasks IN ACCESS EXCLUSIVE MODE")
            yield
    finally:
        await connection.close()


def report(soak: Soak, violations: Sequence[str]) -> dict[str, Any]:
    """Return what a run did, for people."""
    return {
        "store": soak.plan.store.partition(":")[0],
        "seed": soak.plan.seed,
        "tasks": len(soak.acknowledged),
        "troubles": soak.done,
        "violations": list(violations),
    }
