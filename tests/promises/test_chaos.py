"""Killed processes: acknowledged tasks survive, and completed steps do not run again."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from antiphon.model.task_history import TaskHistory
from antiphon.store import open_store
from tests.promises.flood import flood
from tests.promises.speaking import Patient, answer, begin, look, reach, wanted
from tests.streaming.speaking import Follower, numbered, reading
from tests.support.fork_server import PythonProcess
from tests.support.leases import end_delay, end_leases
from tests.support.polling import DEADLINE, until
from tests.support.process import ServerProcess, started
from tests.support.sizes import size

FOREVER = float("inf")
ANSWERS = {"first": "a", "second": "b", "third": "c"}
TOLD = ["off", "ONE", "first a", "TWO A", "THREE B C"]
RESULT = "ONE / TWO A / THREE B C"


@pytest.fixture(autouse=True, params=["sqlite", "postgres"])
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The kind of store that all processes of a test share."""
    url = f"sqlite:///{tmp_path}/tasks.db"
    if request.param == "postgres":
        url = request.getfixturevalue("database").url()
    (tmp_path / "place").write_text(url)
    return str(request.param)


def place(tmp_path: Path) -> str:
    """The URL of the store."""
    return (tmp_path / "place").read_text()


@contextmanager
def serving(tmp_path: Path, **environment: str) -> Iterator[ServerProcess]:
    common = {"ANTIPHON_STORE": place(tmp_path), "EFFECTS": str(tmp_path / "effects")}
    with started("promising.py", tmp_path, env={**common, **environment}) as server:
        yield server


@asynccontextmanager
async def succeeded(tmp_path: Path, victim: ServerProcess, lives: Path) -> AsyncIterator[None]:
    """Let others take up the tasks of a process as soon as it has died: end its leases, and remove a file."""

    async def succeed() -> None:
        await until(lambda: victim.process.poll() is not None, within=FOREVER)
        await end_leases(place(tmp_path))
        lives.unlink()

    succeeding = asyncio.create_task(succeed())
    try:
        yield
    finally:
        succeeding.cancel()
        await asyncio.wait({succeeding})
        if not succeeding.cancelled():
            succeeding.result()


async def travel(ports: list[int], id: str) -> list[str]:
    """Follow a task to its end through any live process; return its segments and its result."""
    speakers = [Patient(port) for port in ports]

    async def one_round() -> list[str] | None:
        for speaker in speakers:
            try:
                task = await look(speaker, id)
                if task["status"] == "input_required":
                    await answer(speaker, id, **{key: ANSWERS[key] for key in task["inputRequests"]})
                elif task["status"] != "working":
                    return [block["text"] for block in task["result"]["content"]]
                return None
            except (OSError, asyncio.IncompleteReadError):
                continue
        raise AssertionError("nobody is alive")

    return await wanted(one_round)


def check(told: list[str]) -> None:
    """Check that every segment arrived once and in order."""
    assert [words.partition(" @")[0] for words in told] == [*TOLD, RESULT]


class Witness:
    """Reads the segments of a task, again from the start after each kill, and compares."""

    def __init__(self, ports: list[int], id: str) -> None:
        self._clients = [Follower(port) for port in ports]
        self._id = id
        self.seen: dict[int, str] = {}
        self.looked = 0

    async def watch(self) -> None:
        """Read until the task has ended."""
        await until(self._has_read_all, within=FOREVER)

    async def _has_read_all(self) -> bool:
        for client in self._clients:
            with suppress(OSError, asyncio.IncompleteReadError):
                if await self._read(client):
                    return True
        return False

    async def _read(self, client: Follower) -> bool:
        self.looked += 1
        async with reading(client, "tasks/stream", {"taskId": self._id}) as stream:
            while (frame := await stream.next()) is not None:
                for number, words in numbered([frame]):
                    assert self.seen.setdefault(number, words) == words, "a number has two contents"
                if "result" in frame:
                    return True
        return False


async def log_of(tmp_path: Path, id: str) -> list[tuple[str, int, object]]:
    store = open_store(place(tmp_path))
    await store.open()
    try:
        return [(entry.kind, entry.at, entry.data) for entry in await store.read(id)]
    finally:
        await store.close()


async def test_a_worker_that_is_killed_after_any_single_write_loses_nothing(
    tmp_path: Path,
) -> None:
    victim_lives = tmp_path / "victim lives"
    with serving(tmp_path, YIELD_WHILE=str(victim_lives)) as survivor:
        died = looked = 0
        for write in range(1, 40):
            (tmp_path / "effects").write_text("")
            victim_lives.touch()
            with serving(tmp_path, DIE_AFTER=str(write)) as victim:
                async with succeeded(tmp_path, victim, victim_lives):
                    try:
                        id = (await begin(Patient(victim.port), "journey"))["taskId"]
                    except (OSError, asyncio.IncompleteReadError):
                        assert write == 1  # it died before it could answer: nothing was acknowledged
                        died += 1
                        # Whoever takes that task up writes to the store, and the writes of a victim count.
                        await until(lambda: _nobody_wants_a_worker(tmp_path))
                        continue
                    ports = [victim.port, survivor.port]
                    witness = Witness(ports, id)
                    watching = asyncio.create_task(witness.watch())
                    told = await travel(ports, id)
                    await asyncio.wait_for(watching, DEADLINE)
                    check(told)
                    assert witness.seen == dict(enumerate(told, 1))
                    dead = victim.process.poll() is not None
            await _check_the_log(tmp_path, id)
            if not dead:
                break
            died += 1
            looked += witness.looked > 1
    assert died >= 10, "the tool writes more often than that"
    assert looked >= 5, "the witness has seen others die"


async def _nobody_wants_a_worker(tmp_path: Path) -> bool:
    store = open_store(place(tmp_path))
    await store.open()
    try:
        return await store.count("ready") == 0
    finally:
        await store.close()


async def _check_the_log(tmp_path: Path, id: str) -> None:
    log = await log_of(tmp_path, id)
    folding = TaskHistory()
    for kind, at, data in log:
        folding.add(kind, at, data)  # type: ignore[arg-type]
    assert folding.task is not None
    assert folding.task.state == "done"
    recorded = Counter(key for _, _, data in log for key in data.get("journal", {}))  # type: ignore[attr-defined]
    assert [key for key, times in recorded.items() if times > 1] == []
    assert {key for key in recorded if key.startswith("step:")} == {
        "step:happen",
        "step:happen#2",
        "step:happen#3",
    }
    number = 1
    for _, _, data in (entry for entry in log if entry[0] == "emitted"):
        assert data["first"] == number  # type: ignore[index]
        number += len(data["blocks"])  # type: ignore[index]


async def test_a_worker_that_stalls_loses_its_task_and_its_late_writes_are_refused(tmp_path: Path) -> None:
    goes_on = tmp_path / "goes on"
    with serving(tmp_path) as staller:
        id = (await begin(Patient(staller.port), "drip", path=str(goes_on)))["taskId"]
        await until(lambda: _has(tmp_path / "effects", "began"))
        await until(lambda: _has_told(tmp_path, id, 2))
        await _stop_between_writes(staller.process, tmp_path)
        try:
            with serving(tmp_path) as other:
                await end_leases(place(tmp_path))
                goes_on.touch()
                task = await reach(Patient(other.port), id, "completed")
                told = [block["text"] for block in task["result"]["content"]]
                mark = f"@{other.process.pid}"
                assert told == ["1", "2", f"3 {mark}", f"4 {mark}", "slow"]
                before = await log_of(tmp_path, id)
                staller.process.send_signal(signal.SIGCONT)
                # It goes on, and learns that the task is not its own any more. Then it does another one.
                await until(lambda: _has(tmp_path / "effects", f"left {staller.process.pid}"))
                await _complete(Patient(staller.port))
                assert await log_of(tmp_path, id) == before
                assert (await look(Patient(staller.port), id))["result"] == task["result"]
        finally:
            staller.process.send_signal(signal.SIGCONT)


async def _stop_between_writes(process: PythonProcess | subprocess.Popen[Any], folder: Path) -> None:
    """Stop a process at a moment when it does not hold the lock of the SQLite file."""

    def is_stopped() -> bool:
        process.send_signal(signal.SIGSTOP)
        try:
            for path in folder.glob("*.db"):
                with closing(sqlite3.connect(path, timeout=0.2, isolation_level=None)) as probe:
                    probe.execute("BEGIN IMMEDIATE")
                    probe.execute("ROLLBACK")
        except sqlite3.OperationalError:
            process.send_signal(signal.SIGCONT)
            return False
        return True

    await until(is_stopped)


def _has(path: Path, text: str) -> bool:
    return path.exists() and text in path.read_text()


async def _has_told(tmp_path: Path, id: str, count: int) -> bool:
    """Whether a task has so many segments in its log."""
    emitted = [data["blocks"] for kind, _, data in await log_of(tmp_path, id) if kind == "emitted"]  # type: ignore[index]
    return sum(map(len, emitted)) == count


async def _says(speaker: Patient, id: str, text: str) -> bool:
    return text in ((await look(speaker, id)).get("statusMessage") or "")


async def _complete(speaker: Patient) -> None:
    """Let a process do a task."""
    await reach(speaker, (await begin(speaker, "quick", number=1))["taskId"], "completed")


async def test_a_task_that_cannot_be_run_again_says_so_when_its_worker_is_lost(tmp_path: Path) -> None:
    with serving(tmp_path) as victim:
        id = (await begin(Patient(victim.port), "fragile"))["taskId"]
        await _kill(victim, tmp_path)
    with serving(tmp_path) as other:
        # It is given up after a while in which the worker that was lost may report an outage.
        await until(lambda: _says(Patient(other.port), id, "No attempt is left."))
        await end_delay(place(tmp_path), id)
        task = await reach(Patient(other.port), id, "failed")
        assert "its worker was lost" in task["error"]["message"]


async def test_a_process_that_is_asked_to_end_hands_its_tasks_over(tmp_path: Path) -> None:
    goes_on = tmp_path / "goes on"
    with serving(tmp_path) as first, serving(tmp_path) as second:
        id = (await begin(Patient(first.port), "slow", path=str(goes_on)))["taskId"]
        await until(lambda: _has(tmp_path / "effects", "began"))
        first.terminate()
        first.process.wait(DEADLINE)
        goes_on.touch()
        # Nobody ends the long lease by hand: whoever waits for its end is not done in time.
        task = await reach(Patient(second.port), id, "completed")
        assert task["result"]["content"][0]["text"] == "slow"
    effects = (tmp_path / "effects").read_text().splitlines()
    assert effects.count("began") == 1


@pytest.mark.parametrize("answered", [False, True])
async def test_a_task_waits_for_its_answer_across_a_restart(tmp_path: Path, answered: bool) -> None:
    with serving(tmp_path) as first:
        id = (await begin(Patient(first.port), "journey"))["taskId"]
        await reach(Patient(first.port), id, "input_required")
        if answered:
            await answer(Patient(first.port), id, first="a")
        await _kill(first, tmp_path)
    with serving(tmp_path) as second:
        check(await travel([second.port], id))


async def _kill(server: ServerProcess, tmp_path: Path) -> None:
    """Kill a process, and end its leases."""
    server.process.kill()
    server.process.wait()
    await end_leases(place(tmp_path))


@pytest.mark.long
async def test_many_processes_share_one_store_and_every_task_ends_once(tmp_path: Path, kind: str) -> None:
    tasks, processes = (size(3_200, long=20_000), 8) if kind == "sqlite" else (size(800, long=2_000), 4)
    with ExitStack() as stack:
        servers = [stack.enter_context(serving(tmp_path)) for _ in range(processes)]
        ids = await _create(servers, tasks)
        assert len(set(ids)) == tasks
        store = open_store(place(tmp_path))
        await store.open()
        try:

            async def have_ended() -> bool:
                return await store.count("ended") == tasks

            await until(have_ended, within=600)
            for id in ids[:: tasks // 200]:
                kinds = [entry.kind for entry in await store.read(id)]
                assert kinds.count("ended") == 1
                assert kinds[-1] == "ended"
            assert await store.count("ready") == 0
        finally:
            await store.close()


async def _create(servers: list[ServerProcess], tasks: int) -> list[str]:
    """Create tasks through all processes at once, on open connections."""
    share = tasks // (len(servers) * 2)
    made = await asyncio.gather(*(flood(server.port, share) for server in servers for _ in range(2)))
    return [id for ids in made for id in ids]
