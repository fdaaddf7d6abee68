"""What versions of the library have left: stores, states, sessions, logins, recordings and files.

Each version has a folder, which never changes. This module copies a store from it, looks at the tasks in the
copy, and goes on with them. `write.py` writes down what came of that, and `test_kept.py` compares.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import asyncpg
import httpx2
import msgspec

from antiphon import AntiphonError, Client, wall_clock
from antiphon.client import Elicitation
from antiphon.model.task import EntryKind
from antiphon.model.task_history import TaskHistory
from antiphon.model.task_status import TaskStatus
from antiphon.store.contract import Store, TaskFilter
from antiphon.store.postgres import PostgresStore
from antiphon.store.sqlite import SQLiteStore
from antiphon.wire.versions import VERSIONS
from tests.support.serving import serving
from tests.upgrade.desk import CONSOLE, Desk

HERE = Path(__file__).parent
FOLDERS = {path.name: path for path in sorted(HERE.glob("[0-9]*.[0-9]*"))}
"""The folders, by the version that wrote them."""

MOMENT = datetime(2026, 1, 15, 12, tzinfo=UTC).timestamp()
"""When everything was written. The clock of the tests stands near it, so that nothing has expired."""
AN_HOUR, A_MONTH = 3600.0, 30 * 24 * 3600.0

SCHEMA = "kept"
"""The schema of the dump."""


@contextmanager
def at(moment: float) -> Iterator[None]:
    """Move the time of day of this process."""
    before = wall_clock.ahead
    wall_clock.ahead += moment - wall_clock.now()
    try:
        yield
    finally:
        wall_clock.ahead = before


# Stores


@dataclass
class Place:
    """A store that a test may change: a copy of a file, or a schema of a database."""

    url: str

    def store(self) -> Store:
        """Return the store, whose clock is the one of this process."""
        if self.url.startswith("sqlite"):
            return SQLiteStore(self.url.removeprefix("sqlite:///"))
        return PostgresStore(self.url, clock=wall_clock.now)

    def desk(self, **options: Any) -> Desk:
        """Return a server on the store."""
        return Desk(self.store(), artifacts=self.url, **options)


def copy_of_file(folder: Path, to: Path) -> Place:
    """Return a copy of the SQLite store in a folder."""
    path = to / "store.sqlite"
    path.write_bytes(gzip.decompress((folder / "sqlite" / "store.sqlite.gz").read_bytes()))
    path.chmod(0o600)
    return Place(f"sqlite:///{path}")


async def load_dump(folder: Path, dsn: str) -> Place:
    """Load the dump of a PostgreSQL store into a database, in place of the one before."""
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")
        packed = (folder / "postgres" / "store.sql.gz").read_bytes()
        await connection.execute(gzip.decompress(packed).decode())
    finally:
        await connection.close()
    return Place(f"{dsn}?schema={SCHEMA}")


# Looking


@dataclass
class Kept:
    """What belongs to one store of a folder: its tasks, and what clients hold of it. It is a file of JSON."""

    tasks: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By name: `id`, `tool`, `owner` (a token), `protocol`, `ends` (a name in `ENDS`), and what the writer
    found: `seen`, `log`, `journal`, `record` and `outcome`."""
    rounds: list[dict[str, Any]] = field(default_factory=list)
    """Requests with a sealed state: `name`, `server`, `headers`, `body`, and then `outcome` and `effects`."""
    sessions: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By name: `id`, `owner`, `protocol`."""
    cookies: dict[str, str] = field(default_factory=dict)
    """The cookies of the console, by the token of the person."""
    cursors: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The cursors of lists that clients read in pages, and of lists of a store, by name."""
    artifacts: dict[str, str] = field(default_factory=dict)
    """The ids of artifacts, by name."""
    visits: dict[str, Any] = field(default_factory=dict)
    """What came of the sessions, cookies, cursors and artifacts, by name."""
    effects: dict[str, list[str]] = field(default_factory=dict)
    """What steps did outside when the tasks went on, by when that was."""

    @classmethod
    def read(cls, path: Path) -> Kept:
        """Read the file."""
        return cls(**json.loads(path.read_text(encoding="utf-8")))

    def write(self, path: Path) -> None:
        """Write the file, for people to read."""
        path.write_text(json.dumps(vars(self), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def authorized(token: str) -> dict[str, str]:
    """Return the header of a person; nothing for a stranger."""
    return {"authorization": f"Bearer {token}"} if token else {}


class Wire:
    """Requests by hand, so that they are the same whichever version of the library sends them."""

    def __init__(self, http: httpx2.AsyncClient, url: str) -> None:
        self.http, self.url = http, url

    async def post(self, body: Any, headers: Mapping[str, str]) -> httpx2.Response:
        """Post a message."""
        always = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
        return await self.http.post(self.url, json=body, headers={**always, **headers}, timeout=60)

    async def frames(self, body: Any, headers: Mapping[str, str]) -> list[dict[str, Any]]:
        """Return all messages that answer a request."""
        answer = await self.post(body, headers)
        if not answer.headers.get("content-type", "").startswith("text/event-stream"):
            return [answer.json()]
        lines = answer.text.splitlines()
        return [json.loads(line[5:]) for line in lines if line.startswith("data:") and line[5:].strip()]

    async def ask(self, token: str, method: str, **params: Any) -> dict[str, Any]:
        """Return the result of a request of 2026-07-28, or its error."""
        key = "io.modelcontextprotocol/"
        params["_meta"] = {
            f"{key}protocolVersion": "2026-07-28",
            f"{key}clientInfo": {"name": "kept", "version": "1"},
            f"{key}clientCapabilities": {"extensions": {f"{key}tasks": {}}},
        }
        headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": method, **authorized(token)}
        if name := params.get("taskId") or params.get("uri") or params.get("name"):
            headers["mcp-name"] = name
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        frame = (await self.frames(body, headers))[-1]
        return dict(frame["result"]) if "result" in frame else {"error": frame["error"]}


@asynccontextmanager
async def served(desk: Desk, *, console: bool = False) -> AsyncIterator[Wire]:
    """Serve a desk, and yield a client by hand."""
    options = {"console": CONSOLE} if console else {}
    async with serving(desk.server, **options) as address, httpx2.AsyncClient() as http:
        yield Wire(http, address.url)


async def look(place: Place, tasks: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return what callers and operators see of tasks, on a server that runs none of them."""
    found: dict[str, dict[str, Any]] = {}
    with at(MOMENT + AN_HOUR):
        store = place.store()
        await store.open()
        try:
            for name, kept in tasks.items():
                found[name] = await _stored(store, kept["id"])
        finally:
            await store.close()
        desks = place.desk(only=()), place.desk(only=(), signed_in=False)
        async with served(desks[0]) as signed, served(desks[1]) as open:
            for name, kept in tasks.items():
                wire = signed if kept["owner"] else open
                seen = await wire.ask(kept["owner"], "tasks/get", taskId=kept["id"])
                if not found[name].pop("has_message"):
                    seen.pop("statusMessage", None)  # it is a sentence of this version
                found[name]["seen"] = {key: value for key, value in seen.items() if key != "_meta"}
    return found


async def _stored(store: Store, id: str) -> dict[str, Any]:
    """Return what a store has of a task."""
    record, log, kinds = await store.get(id), TaskHistory(), list[str]()
    assert record is not None, id
    for entry in await store.read(id):
        log.add(cast(EntryKind, entry.kind), entry.at, entry.data)
        kinds.append(entry.kind)
    return {
        "log": kinds,
        "journal": sorted(log.journal),
        "record": {
            "server": record.server,
            "phase": record.phase,
            "wakes": record.wakes,
            "tags": list(record.tags),
            "sharer": record.sharer,
        },
        "has_message": "message" in record.head,
    }


# Going on

ENDS = {"before": 0.0, "lost": AN_HOUR, "hour": AN_HOUR, "month": A_MONTH}
"""When a task ends, after it was written. The lost ones, which are not run again, take as long as two leases:
they are apart, on servers with short leases."""

ANSWERS: dict[str, dict[str, Any]] = {
    "Who pays?": {"value": "Ada"},
    "Who are you?": {"name": "Ada", "age": 36},
    "Where?": {"x": 1, "y": 2.5},
    "How?": {"value": "fast"},
    "How many?": {"value": 3},
    "Which one?": {"which": "that"},
    "A word?": {"value": "word"},
    "A number of at least 10?": {"value": 12},
    "Why?": {"value": "because"},
    "A name?": {"value": "Eve"},
    "Your name?": {"name": "Ada"},
    "A small number?": {"number": 3},
    "Still there?": {"value": "here"},
    "Your wish?": {"value": "peace"},
    "Your advice?": {"value": "wait"},
    "Who is there?": {"value": "Bob"},
    "What then?": {"value": "zero"},
    "After?": {"value": "that"},
    "What next?": {"value": "this"},
    "To whom?": {"value": "Ada"},
    "For whom?": {"value": "Ada"},
}
"""The answers of the person at the client. Any other question is answered with yes."""


def elicit(question: Elicitation) -> dict[str, Any]:
    """Answer a question."""
    if question.mode == "url":
        return {}
    return ANSWERS.get(question.message.partition("\n")[0], {"value": True})


def client(wire: Wire, token: str, protocol: str, **options: Any) -> Client:
    """Return a client that answers every question."""
    return Client(
        wire.url,
        protocol=protocol,
        auth=token or None,
        elicit=elicit,
        sample=lambda params: "42",
        roots=["file:///home"],
        **options,
    )


async def go_on(place: Place, kept: Kept, when: str) -> tuple[dict[str, Any], list[str]]:
    """Open the store later, answer everything, and return how the tasks ended that end then.

    Also returns what steps have done outside meanwhile.
    """
    tasks = {name: task for name, task in kept.tasks.items() if task["ends"] == when}
    options: dict[str, Any] = {"only": {task["tool"] for task in tasks.values()}}
    if when == "lost":
        options["lease"] = 1.0
    desk, open_desk = place.desk(**options), place.desk(signed_in=False, **options)
    for each in (desk, open_desk):
        each.world.is_down = False
        each.world.gate.set()
    with at(MOMENT + ENDS[when]):
        async with served(desk) as signed, served(open_desk) as open:
            if when == "hour":
                await desk.server.send_event("arrived", "o1", "at the door")
                await desk.server.send_event("sent", "o2", {"colour": "red", "sizes": [4]})
                await desk.server.send_event("arrived", "o2", "at the gate")
                await _answer_for_others(signed)
            wires = {name: signed if task["owner"] else open for name, task in tasks.items()}
            async with asyncio.TaskGroup() as group:
                ends = {
                    name: group.create_task(_end_of(wires[name], tasks[name], tasks[name]["id"]))
                    for name in tasks
                }
    outcomes = json.loads(json.dumps({name: end.result() for name, end in ends.items()}))
    return outcomes, sorted(desk.world.effects + open_desk.world.effects)


async def _end_of(wire: Wire, task: Mapping[str, Any], id: str) -> Any:
    async with client(wire, task["owner"], task["protocol"]) as asking:
        try:
            result = await asking.task(id).result(timeout=120, check=False)
        except AntiphonError as error:
            return type(error).__name__  # the sentences are those of each version
    return {
        "content": msgspec.to_builtins(result.content),
        **({"data": result.data} if result.structured else {}),
        **({"failed": True} if result.is_error else {}),
    }


async def _answer_for_others(wire: Wire) -> None:
    """Answer what others are asked, until they are asked nothing more."""
    for token in ("bob-token", "carol-token"):
        async with client(wire, token, "2026-07-28") as asked:
            for item in await asked.inbox():
                await item.answer(ANSWERS.get(item.message.partition("\n")[0], {"value": True}))


# Rounds

_STATE = ("requestState", "dev.antiphon/request-state")


def has_state(data: Any) -> bool:
    """Return whether a request brings a sealed state."""
    if isinstance(data, dict):
        return any(
            (name in _STATE and isinstance(value, str)) or has_state(value) for name, value in data.items()
        )
    return isinstance(data, list) and any(map(has_state, data))


def without_states(data: Any) -> Any:
    """Return an answer without sealed states, which are different each time."""
    if isinstance(data, dict):
        return {
            name: "…" if name in _STATE else without_states(value)
            for name, value in data.items()
            if name != "serverInfo" and not name.endswith("/serverInfo")
        }
    return [*map(without_states, data)] if isinstance(data, list) else data


async def redeem(place: Place, rounds: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Make the next round of calls that asked, and return the answers and what steps have done."""
    found = []
    with at(MOMENT + AN_HOUR):
        desks = {
            "desk": Desk("memory:", lease=1.0),  # a process that was lost is missed after a lease
            "open desk": Desk("memory:", signed_in=False),
            "careful desk": place.desk(single_use_state=True),
        }
        for name, desk in desks.items():
            async with served(desk) as wire:
                for each in rounds:
                    if each["server"] == name:
                        desk.world.effects.clear()
                        frames = await wire.frames(each["body"], each["headers"])
                        found.append({"answer": _answer_in(frames[-1]), "effects": [*desk.world.effects]})
    return found


def _answer_in(frame: dict[str, Any]) -> Any:
    """Return the answer in a frame, without the sentences of this version and without states."""
    if "error" in frame:
        return {"code": frame["error"]["code"]}
    if frame.get("result", {}).get("isError"):
        return {"isError": True}
    return without_states({key: frame[key] for key in ("method", "params", "result") if key in frame})


def missing(expected: Any, found: Any, place: str = "") -> list[str]:
    """Return what is expected and was not found. Later versions may add members to an object."""
    if isinstance(expected, dict) and isinstance(found, dict):
        return [
            problem
            for key, value in expected.items()
            for problem in missing(value, found.get(key), f"{place}/{key}")
        ]
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        return [
            problem
            for number, (one, other) in enumerate(zip(expected, found, strict=True))
            for problem in missing(one, other, f"{place}/{number}")
        ]
    return [] if expected == found else [f"{place}: {expected!r} is expected, and {found!r} was found"]


# Sessions, cookies, cursors and artifacts


async def visit(place: Place, kept: Kept) -> dict[str, Any]:
    """Use what clients hold besides tasks and states, and return what came of it."""
    found: dict[str, Any] = {}
    with at(MOMENT + AN_HOUR):
        desks = place.desk(only=("total",)), place.desk(only=("total",), signed_in=False)
        async with served(desks[0], console=True) as signed, served(desks[1]) as open:
            body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
            for name, session in kept.sessions.items():
                headers = {"mcp-session-id": session["id"], "mcp-protocol-version": session["protocol"]}
                wire = signed if session["owner"] else open
                answer = await wire.post(body, {**headers, **authorized(session["owner"])})
                found[f"session {name}"] = answer.status_code
            for token, cookie in kept.cookies.items():
                page = signed.url.replace("/mcp", "/console/api/session")
                answer = await signed.http.get(page, headers={"host": "localhost", "cookie": cookie})
                session = answer.json()
                found[f"cookie of {token}"] = [session["user"]["name"], session["mayOperate"]]
            for name, id in kept.artifacts.items():
                read = await signed.ask("ada-token", "resources/read", uri=f"artifact://desk/{id}")
                found[f"artifact {name}"] = _digest(read["contents"])
            total = {"report": kept.artifacts["report"]}
            summed = await signed.ask("ada-token", "tools/call", name="total", arguments=total)
            found["total"] = summed["structuredContent"]
            for name, cursor in kept.cursors.items():
                if "method" in cursor:
                    listed = await signed.ask("ada-token", cursor["method"], cursor=cursor["cursor"])
                    found[f"cursor {name}"] = sorted(item["name"] for item in listed["resources"])
        store = place.store()
        await store.open()
        try:
            for name, cursor in kept.cursors.items():
                if "method" not in cursor:
                    filter = TaskFilter(**cursor["filter"])
                    oldest_first = cursor["oldest_first"]
                    page = await store.list(
                        cursor["of"], cursor=cursor["cursor"], filter=filter, oldest_first=oldest_first
                    )
                    found[f"cursor {name}"] = [record.id for record in page.records]
        finally:
            await store.close()
    return found


def _digest(contents: list[dict[str, Any]]) -> list[Any]:
    """Return what is in a resource; the digest of what is long."""
    texts = [content.get("text") or content["blob"] for content in contents]
    return [
        text if len(text) < 200 else {"sha256": hashlib.sha256(text.encode()).hexdigest()} for text in texts
    ]


def protocols() -> list[str]:
    """Return every version that the client speaks."""
    return [*VERSIONS.spoken_by_client]


async def settled(wire: Wire, token: str, id: str, *statuses: str) -> TaskStatus:
    """Return the status of a task once it is one of these."""
    async with client(wire, token, "2026-07-28") as watching:
        async for status in watching.task(id).updates():
            if status.status in statuses:
                return status
    raise AssertionError(f"{id} ended as {status.status}")
