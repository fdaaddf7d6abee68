"""Runs a phase: starts the service, lets callers use it, and disturbs it by a seeded plan.

Everything is bounded: the number of tasks, the seconds of trouble, and the seconds of peace afterwards, in
which all tasks must end. The processes are ended by their ids.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import asyncpg

from tests.soak.callers import Callers
from tests.soak.faults import FAULTS, Fault, Scene, make_peace
from tests.soak.fleet import Fleet, Process, Settings
from tests.soak.judge import Evidence, Stored, Violation, judge, read_store
from tests.soak.notes import History, Note, Notes
from tests.soak.phases import CHANGED, Phase
from tests.soak.stores import Store
from tests.support.polling import DEADLINE, moment, pause

__all__ = ["ENOUGH", "Soak", "report"]

TOPICS = 5
_WAITING = frozenset({"waiter", "careful"})
"""The tools that wait for the events of a topic."""
ENOUGH = 1 / 3
"""The share of its tasks that a phase has at least, however slow the machine is."""
GIVERS = 4
"""How many callers create tasks: one may wait for a process that does not respond."""
_FEWEST_LEFT = 2
"""How many attempts a task must have left for a fault that ends its run: only a deadly task is given up."""
_ATTEMPTS = 5


class Soak:
    """One phase: the processes, the callers, and what was done to the processes."""

    def __init__(
        self, phase: Phase, store: Store, folder: Path, *, seed: int, older: Path | None = None
    ) -> None:
        self.phase = phase
        self.store = store
        self.took = 0.0
        """How many seconds it all took."""
        self.done: Counter[str] = Counter()
        """The faults."""
        self._random = random.Random(f"{seed} {store.kind} {phase.name}")
        builds = [phase.builds[number % len(phase.builds)] for number in range(phase.processes)]
        self.fleet = Fleet(Settings(store.url, folder, older, phase.fenced), builds)
        self.history = History(folder / "history")
        self.callers = Callers(
            self.fleet,
            self.history,
            random.Random(self._random.random()),
            answers_at_once=phase.answers_at_once,
            readers=phase.readers,
        )
        self._scene = Scene(store, self.fleet, self._random, phase.builds, phase.jumps)
        self._notes = Notes(folder / "notes")
        self._store_is_hit = asyncio.Lock()

    async def run(self) -> list[Violation]:
        """Give tasks, make trouble, make peace, end everything; return the violations."""
        began = moment()
        try:
            await self.fleet.ready()
            supervising = asyncio.create_task(self.fleet.supervise())
            try:
                self.callers.start()
                await (self._deploy() if self.phase.kind == "deploy" else self._mix())
                await self.all_ended()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.callers.look_at_all(), 60)
            finally:
                supervising.cancel()
                await self.callers.stop()
        finally:
            await self.stop()
        self.took = moment() - began
        return await self.violations()

    async def violations(self) -> list[Violation]:
        """Compare the store with what really happened."""
        return judge(await self.evidence())

    async def stop(self) -> None:
        """End all processes."""
        await self.fleet.stop()
        self.history.close()

    async def evidence(self) -> Evidence:
        """Return everything that is known about the run."""
        return Evidence(
            await self.stored(),
            self.notes(),
            self.history.seen,
            self.fleet.deaths,
            has_right_clocks="jump" not in self.phase.faults,
        )

    def notes(self) -> Sequence[Note]:
        """Return what the tools did."""
        return self._notes.read()

    async def stored(self) -> dict[str, Stored]:
        """Return what the store has."""
        return await read_store(self.store.url)

    # The two kinds of phases

    async def _mix(self) -> None:
        """Give tasks and send events while there is trouble."""
        phase = self.phase
        topics = range(TOPICS if _WAITING.intersection(phase.tools) else 0)
        texts = [f"e{number}" for number in range(phase.events)]
        tools = enumerate(self._random.choices(phase.tools, k=phase.tasks))
        giving = asyncio.gather(*(self._give_tasks(tools) for _ in range(GIVERS)))
        if not phase.giving:
            await giving
        longest = phase.seconds / phase.events
        sending = (self.callers.send_events(f"topic{topic}", texts, longest) for topic in topics)
        working = asyncio.gather(giving, *sending)
        await self._make_trouble(phase.seconds)
        with contextlib.suppress(TimeoutError):  # the judge says what is missing
            await asyncio.wait_for(working, 10 * DEADLINE + phase.seconds)

    async def _give_tasks(self, tools: Iterator[tuple[int, str]]) -> None:
        phase = self.phase
        until = moment() + phase.seconds
        for number, tool in tools:
            more = dict(phase.arguments.get(tool, {}))
            if tool in _WAITING:
                more |= {"topic": f"topic{number % TOPICS}", "count": phase.events}
            await self.callers.give(number, tool, **more)
            if moment() > until and len(self.callers.tasks) > phase.tasks * ENOUGH:
                return  # a slow machine gives fewer: the report says how many
            await pause(GIVERS * phase.giving * phase.seconds / phase.tasks)

    async def _deploy(self) -> None:
        """Bring all tasks to their question, let version c arrive, answer under trouble, and roll back."""
        phase, changed = self.phase, self.fleet.processes[::2]
        self.callers.held = "who"
        await self.callers.send_events("prices", ["dear"], 0)
        for number in range(phase.tasks):
            await self.callers.give(number, phase.tools[number % len(phase.tools)])
        await self._until(lambda stored: all("who" in task.head.get("asks", {}) for task in stored.values()))
        for process in changed:
            await self._replace(process, CHANGED)
        await self.fleet.ready()
        self.callers.held = ""
        await self._make_trouble(phase.seconds)
        waiting = [task for task in (await self.stored()).values() if task.phase != "ended"]
        assert waiting, "no task waits for version a: the phase shows nothing"
        for process in changed:
            await self._replace(process, phase.builds[0])

    async def _replace(self, process: Process, build: Any) -> None:
        async with process.busy:
            process.signal(15, ends_it="deploy")
            await self.fleet.restart(process, build)

    async def all_ended(self, within: float | None = None) -> None:
        """Wait until the store has no task under way. The judge says which do not end."""
        await self._until(lambda stored: all(task.phase == "ended" for task in stored.values()), within)

    async def _until(self, holds: Callable[[dict[str, Stored]], bool], within: float | None = None) -> None:
        deadline = moment() + (self.phase.peace if within is None else within)
        while moment() < deadline:
            with contextlib.suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                stored = await self.stored()
                for task in stored.values():  # also those whose acknowledgement was lost
                    self.callers.adopt(task.id, task.number)
                if stored and holds(stored):
                    return
            await pause(0.5)

    # Trouble

    async def _make_trouble(self, seconds: float) -> None:
        """Let faults happen, also at the same time, and set right what they leave wrong."""
        until = moment() + seconds
        faults = [name for name in self.phase.faults if self.store.kind in FAULTS[name].stores]
        await asyncio.gather(
            self._let_happen([name for name in faults if FAULTS[name].hits_store], until),
            self._let_happen([name for name in faults if not FAULTS[name].hits_store], until),
        )
        make_peace(self._scene)

    async def _let_happen(self, faults: Sequence[str], until: float) -> None:
        """Let faults happen until a time, each as often as the others."""
        under_way: list[asyncio.Task[None]] = []
        left: list[str] = []
        while moment() < until:
            await pause(self._random.uniform(*self.phase.pauses))
            left = left or self._random.sample(faults, len(faults))
            process = self._random.choice(self.fleet.processes)
            name = next((name for name in left if self._may_happen(FAULTS[name], process)), None)
            if name is not None:
                left.remove(name)
                under_way.append(asyncio.create_task(self._happen(name, process)))
        for failed in await asyncio.gather(*under_way, return_exceptions=True):
            if isinstance(failed, BaseException):
                raise failed

    def _may_happen(self, fault: Fault, process: Process) -> bool:
        """Return whether nothing else happens to the process or the store, and the fault gives up no task."""
        lock = self._store_is_hit if fault.hits_store else process.busy
        return not lock.locked() and not (fault.ends_runs and self._has_last_attempts(process))

    async def _happen(self, name: str, process: Process) -> None:
        fault = FAULTS[name]
        async with self._store_is_hit if fault.hits_store else process.busy:
            self.done[name] += 1
            await fault.happen(self._scene, process)
            if fault.hits_store:
                await pause(self.phase.rest)

    def _has_last_attempts(self, process: Process) -> bool:
        """Return whether the process runs a step that has begun so often that its task may be given up."""
        begun: Counter[tuple[int, str]] = Counter()
        here: set[tuple[int, str, str]] = set()
        for note in self.notes():
            if note.event == "begin":
                begun[note.number, note.step] += 1
                if note.process == process.process.pid:
                    here.add((note.number, note.step, note.run))
            else:
                here.discard((note.number, note.step, note.run))
        return any(begun[number, step] > _ATTEMPTS - _FEWEST_LEFT for number, step, _ in here)


def report(soak: Soak, violations: Sequence[Violation]) -> str:
    """Return what a phase did, in a line."""
    faults = ", ".join(f"{times} × {name}" for name, times in sorted(soak.done.items()))
    seen = Counter(f"{each.event} {each.outcome}" for each in soak.history.seen)
    callers = ", ".join(f"{times} × {what}" for what, times in sorted(seen.items()))
    return (
        f"{soak.store.kind}, {soak.phase.name}: {soak.took:.0f} s, {len(soak.callers.tasks)} tasks; "
        f"{faults or 'no faults'}; "
        f"callers: {callers}; {len(violations)} violations"
    )
