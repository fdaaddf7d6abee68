"""Writes what this version leaves to later ones, into a folder of its own: `python -m tests.upgrade.write`.

Run it when a format changes: raise the version first, or name the folder. A folder that exists is not
written again. The clock of everything written is set to one moment, which the tests set their clock to.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2

from antiphon import AntiphonError, Client
from antiphon.errors import Unreachable
from antiphon.runtime.relay import Relay
from antiphon.runtime.tasks.inbox_feed import InboxFeed
from antiphon.runtime.tasks.operating import operating_service
from antiphon.store.contract import TaskFilter
from antiphon.version import VERSION
from tests.support.polling import until
from tests.support.postgres import Postgres, postgres
from tests.upgrade.clients import write_all
from tests.upgrade.desk import OLD_SECRET, TOKENS
from tests.upgrade.kept import (
    AN_HOUR,
    HERE,
    MOMENT,
    SCHEMA,
    Kept,
    Place,
    Wire,
    at,
    client,
    copy_of_file,
    elicit,
    go_on,
    has_state,
    load_dump,
    look,
    protocols,
    redeem,
    served,
    settled,
    visit,
)

MODERN = "2026-07-28"
RUNNING = ("killed", "killed_once", "one_by_one", "held", "stubborn")
"""The tools of the server whose process is lost."""
LATER = ("urgent", "soon", "nap", "naps", "one_of", "flaky", "nested")
"""The tools whose tasks wait for more than an hour."""

RETRIED = {
    "failed and retried": "failed and retried",
    "cancelled and retried": "going on for a cancelled one",
    "cancelled and still cleaning up": "going on later",
}
"""Tasks that an operator retries, and the tasks that run for them."""


class Writer:
    """Fills one store."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.kept = Kept()

    async def submit(
        self,
        wire: Wire,
        name: str,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        protocol: str = MODERN,
        owner: str = "ada-token",
        until: str = "",
        ends: str = "",
        **options: Any,
    ) -> str:
        """Submit a task, and wait until it has a status."""
        async with client(wire, owner, protocol) as asking:
            id = (await asking.submit(tool, arguments, **options)).id
        assert id, name
        when = ends or ("before" if until in ("completed", "failed") else "hour")
        self.kept.tasks[name] = {"id": id, "tool": tool, "owner": owner, "protocol": protocol, "ends": when}
        if until:
            await settled(wire, owner, id, until)
        return id

    async def fill(self) -> None:
        """Write what a server leaves that was stopped in order, and then what one leaves that was lost."""
        with at(MOMENT - 48 * AN_HOUR):
            async with served(self.place.desk()) as wire:
                await self.submit(wire, "too late", "soon", until="input_required", ends="hour")
                await self.submit(wire, "reminded", "review")
                await self.parked(wire)
        first, open_desk = self.place.desk(secrets=[OLD_SECRET]), self.place.desk(signed_in=False)
        async with served(first, console=True) as wire, served(open_desk) as stranger:
            await self._fill_waiting(wire, stranger)
            await self._fill_ended(wire)
            await self._fill_sessions(wire, stranger)
            await self._fill_artifacts(wire)
        await self._fill_rounds()

    async def _fill_waiting(self, wire: Wire, stranger: Wire) -> None:
        asking = "input_required"
        for protocol in protocols():
            if "-06-" not in protocol and "-03-" not in protocol and "2024" not in protocol:
                amount = {"amount": protocols().index(protocol)}
                await self.submit(wire, f"pay {protocol}", "pay", amount, protocol=protocol, until=asking)
        await self.submit(stranger, "of a stranger", "pay", {"amount": 50}, owner="", until=asking)
        half = await self.submit(wire, "half", "pay", {"amount": 51}, until=asking)
        await self.answer(wire, half, approve=True)
        for tool in ("forms", "same", "web", "think", "folders", "everything", "explicit"):
            await self.submit(wire, tool, tool, until=asking)
        for tool in ("values", "large", "tired", "beside", "both", "told", "ask_bob", "changing"):
            await self.submit(wire, tool, tool, until=asking)
        unfit = await self.submit(wire, "checked", "checked", until=asking)
        async with client(wire, "ada-token", MODERN) as person:
            await person.task(unfit).answer({"number": {"value": 5}})
        declined = await self.submit(wire, "declining", "declining", until=asking)
        async with client(wire, "ada-token", MODERN) as person:
            await person.task(declined).answer({"really": "decline"})
        again = await self.submit(wire, "asked again", "same", until=asking)
        async with client(wire, "ada-token", MODERN) as person:
            key = next(iter((await person.task(again).status()).questions))
            await person.task(again).answer({key: {"value": "first"}})
        await self.submit(wire, "with a lifetime", "pay", {"amount": 52}, protocol="2025-11-25", ttl=A_YEAR)

        trace = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01", "tracestate": "vendor=1"}
        await self.submit(wire, "traced", "pay", {"amount": 53}, until=asking, meta=trace)
        strict = await self.submit(wire, "strict", "strict", until=asking)
        async with client(wire, "ada-token", MODERN) as person:
            await person.task(strict).answer({"small": {"number": 1000}})

        for name in ("approve", "approved by one", "approved by nobody yet"):
            await self.submit(wire, name, "approve", {"what": name})
        for name in ("advised", "advised while nobody runs"):
            await self.submit(wire, name, "ask_bob", until=asking)
        for tool in ("urgent", "naps", "one_of", "flaky", "nested"):
            await self.submit(wire, tool, tool, ends="month")
        await self.submit(wire, "soon", "soon", until=asking, ends="month")
        await self.submit(wire, "nap", "nap", {"days": 20}, ends="month")
        await self.submit(wire, "parcel", "parcel", {"order": "o1"})
        await self.submit(wire, "no parcel", "parcel", {"order": "o2"})
        await self.submit(wire, "misfit", "misfit")
        desk = self.place.desk(only=())
        async with served(desk):
            await desk.server.send_event("number", "one", "none")
            await desk.server.send_event("sent", "o1", {"colour": "blue", "sizes": [1, 2]}, id="event-1")
            await desk.server.send_event("sent", "nobody waits", None, id="event-2")
            await desk.server.send_event("sent", "a long key" * 100, "kept all the same", id="event-3")
        await self.parked(wire)
        await settled(wire, "ada-token", self.kept.tasks["misfit"]["id"], asking)
        async with client(wire, "bob-token", MODERN) as bob:
            for item in await bob.inbox():
                task = self.kept.tasks["approved by one"]["id"], self.kept.tasks["advised"]["id"]
                if item.task_id in task:
                    await item.answer(True if item.message.startswith("Approve") else "wait")
                elif item.task_id == self.kept.tasks["reminded"]["id"]:
                    await item.answer({"number": 1000})
                elif item.task_id == self.kept.tasks["approve"]["id"]:
                    with suppress(AntiphonError):
                        await item.answer({"value": "neither yes nor no"})
        await self.parked(wire)

    async def parked(self, wire: Wire) -> None:
        """Wait until no task is ready or runs."""
        store = self.place.store()
        await store.open()
        try:
            async with store.watch_all() as watch:
                while await store.count("ready"):
                    await watch.wait(30)
        finally:
            await store.close()

    async def answer(self, wire: Wire, id: str, **values: Any) -> None:
        """Answer questions of a task of Ada's, whose forms have one field."""
        async with client(wire, "ada-token", MODERN) as person:
            await person.task(id).answer({key: {"value": value} for key, value in values.items()})

    async def _fill_ended(self, wire: Wire) -> None:
        await self.submit(wire, "count", "count", until="completed")
        await self.submit(wire, "structured", "structured", until="completed")
        await self.submit(wire, "short-lived", "structured", protocol="2025-11-25", ttl=24 * AN_HOUR)
        await self.submit(wire, "failed as a tool", "fail", {"how": "tool"}, until="completed")
        await self.submit(wire, "failed as a request", "fail", {"how": "request"}, until="failed")
        await self.submit(wire, "failed for want", "fail", {"how": "unable"}, until="failed")
        await self.submit(wire, "failed by mistake", "fail", {"how": "mistake"}, until="completed")
        await self.submit(wire, "given up", "hopeless", until="completed")
        declined = await self.submit(wire, "declined", "fail", {"how": "declined"}, until="input_required")
        async with client(wire, "ada-token", MODERN) as person:
            await person.task(declined).answer({"shall": "decline"})
        await settled(wire, "ada-token", declined, "completed", "failed")
        for name in ("cancelled", "cancelled and retried"):
            cancelled = await self.submit(wire, name, "pay", {"amount": 60}, until="input_required")
            await self.answer(wire, cancelled, approve=True)
            async with client(wire, "ada-token", MODERN) as person:
                await person.task(cancelled).cancel()
        await self.submit(wire, "failed and retried", "hopeless", until="completed")
        for name in ("short-lived", "declined", "cancelled", "cancelled and retried"):
            self.kept.tasks[name]["ends"] = "before"

    async def _fill_sessions(self, wire: Wire, stranger: Wire) -> None:
        for protocol in protocols():
            if protocol == MODERN or "DRAFT" in protocol:
                continue
            for name, owner, at_desk in (("Ada", "ada-token", wire), ("a stranger", "", stranger)):
                id = await open_session(at_desk, owner, protocol)
                self.kept.sessions[f"{protocol} of {name}"] = {"id": id, "owner": owner, "protocol": protocol}
        ended = await open_session(wire, "ada-token", "2025-11-25")
        headers = {
            "mcp-session-id": ended,
            "authorization": "Bearer ada-token",
            "mcp-protocol-version": "2025-11-25",
        }
        assert (await wire.http.delete(wire.url, headers=headers)).is_success
        self.kept.sessions["ended"] = {"id": ended, "owner": "ada-token", "protocol": "2025-11-25"}
        for token in TOKENS:
            # Without a port, which would be in the name of the cookie.
            page = {"host": "localhost", "origin": "http://localhost"}
            sign_in = wire.url.replace("/mcp", "/console/sign-in")
            signed = await wire.http.post(sign_in, data={"token": token}, headers=page)
            self.kept.cookies[token] = signed.headers["set-cookie"].partition(";")[0]
        wire.http.cookies.clear()

    async def _fill_artifacts(self, wire: Wire) -> None:
        async with client(wire, "ada-token", MODERN) as ada:
            for name, tool, arguments in (
                ("report", "report", {"title": "Sales"}),
                ("the same report", "report", {"title": "Sales"}),
                ("picture", "picture", {}),
            ):
                made = await ada.call(tool, arguments)
                self.kept.artifacts[name] = made.data["artifact_id"]
        await self.submit(wire, "report", "report", {"title": "From a task"}, until="completed")

    # Rounds

    async def _fill_rounds(self) -> None:
        """Let clients make calls that ask, and keep each request that brings a state."""
        desks = {
            "desk": self.place.desk(secrets=[OLD_SECRET]),
            "open desk": self.place.desk(signed_in=False, secrets=[OLD_SECRET]),
            "careful desk": self.place.desk(single_use_state=True, secrets=[OLD_SECRET]),
        }
        tools = (
            "pay",
            "forms",
            "same",
            "everything",
            "explicit",
            "values",
            "large",
            "beside",
            "told",
            "held",
        )
        for server, desk in desks.items():
            desk.world.is_down = False
            token = "" if server == "open desk" else "ada-token"
            async with served(desk) as wire:
                for protocol in protocols():
                    is_main = server == "desk" and protocol in (MODERN, "DRAFT-2026-v1")
                    for tool in tools if is_main else ("pay", "same"):
                        arguments = {"amount": 3} if tool == "pay" else {}
                        name = f"{tool}, {protocol}, {server}"
                        await self._keep(wire, server, name, token, protocol, tool, arguments)
                if server == "desk":
                    await self._keep(wire, server, "a prompt", token, MODERN, "letter", None)
                    await self._keep(wire, server, "a resource", token, MODERN, "note://today", None)

    async def _keep(
        self, wire: Wire, server: str, name: str, token: str, protocol: str, what: str, arguments: Any
    ) -> None:
        requests: list[httpx2.Request] = []

        async def note(request: httpx2.Request) -> None:
            requests.append(request)
            if request.method == "DELETE" or (
                server == "careful desk"
                and len(arguments) == 0
                and has_state(json.loads(request.content or b"null"))
            ):
                raise httpx2.ConnectError("this client is lost", request=request)

        async with (
            httpx2.AsyncClient(event_hooks={"request": [note]}, timeout=60) as http,
            Client(
                wire.url,
                protocol=protocol,
                headers={"authorization": f"Bearer {token}"} if token else None,
                http=http,
                elicit=elicit,
                sample=lambda params: "42",
                roots=["file:///home"],
            ) as asking,
        ):
            if what == "letter":
                await asking.prompt(what)
            elif "://" in what:
                await asking.read(what)
            else:
                with suppress(Unreachable):
                    await asking.call(what, arguments, allow_task=False)
        for number, request in enumerate(requests):
            body = json.loads(request.content or b"null")
            if has_state(body):
                headers = {
                    key: value
                    for key, value in request.headers.items()
                    if key.startswith("mcp-") or key == "authorization"
                }
                self.kept.rounds.append(
                    {"name": f"{name}, {number}", "server": server, "headers": headers, "body": body}
                )

    # The process that is lost

    async def lose(self, snapshot: Any) -> None:
        """Let tasks run, write to others that no process runs, and copy the store in the middle of that."""
        lost = self.place.desk(only=RUNNING)
        async with served(lost) as wire:
            reached = lost.world.reached
            for name, tool in (
                ("killed", "killed"),
                ("killed_once", "killed_once"),
                ("cancelled in the middle", "killed"),
                ("cancelled and still cleaning up", "stubborn"),
            ):
                before = len(reached)
                await self.submit(wire, name, tool, ends="lost" if tool == "killed_once" else "hour")
                await until(lambda before=before: len(reached) > before)
            await self.submit(wire, "turn 1", "one_by_one", {"name": "first"})
            await until(lambda: "one_by_one" in lost.world.reached)
            await self.submit(wire, "turn 2", "one_by_one", {"name": "second"})
            await self.submit(wire, "held", "held", until="input_required", ends="lost")
            await self._write_without_worker(lost, wire)
            await self._find_cursors()
            await snapshot()
            lost.world.gate.set()

    async def _write_without_worker(self, lost: Any, wire: Wire) -> None:
        answered = self.kept.tasks["answered"] = {**self.kept.tasks["half"]}
        del self.kept.tasks["half"]
        await self.answer(wire, answered["id"], who="Grace")
        for name, key, value in (("both", "who", "Bob"),):
            await lost.server.send_event("ring", "door", "the bell")
            await self.answer(wire, self.kept.tasks[name]["id"], **{key: value})
        async with client(wire, "bob-token", MODERN) as bob:
            for item in await bob.inbox():
                if item.task_id == self.kept.tasks["advised while nobody runs"]["id"]:
                    await item.answer("wait")
        for name in ("cancelled in the middle", "cancelled and still cleaning up"):
            self.kept.tasks[name]["ends"] = "before"
            async with client(wire, "ada-token", MODERN) as ada:
                await ada.task(self.kept.tasks[name]["id"]).cancel()
        await until(lambda: lost.world.reached.count("stubborn") == 2)
        store = self.place.store()
        await store.open()
        service = operating_service(store, Relay("desk"), InboxFeed(Relay("desk")), server="desk")
        try:
            for name, new in RETRIED.items():
                retried = await service.retry(self.kept.tasks[name]["id"], TOKENS["ada-token"])
                self.kept.tasks[new] = {**self.kept.tasks[name], "id": retried.id, "ends": "hour"}
            # Another one is still cleaning up: the task that goes on for it is claimed and given back.
            waits = self.kept.tasks[RETRIED["cancelled and still cleaning up"]]["id"]
            async with store.watch(waits) as watch:
                while not (await store.get(waits)).head.get("quiet_releases"):  # type: ignore[union-attr]
                    await watch.wait(60)
        finally:
            await store.close()

    async def _find_cursors(self) -> None:
        """Keep the cursors of lists."""
        every: dict[str, Any] = {"of": "ada", "filter": {}, "oldest_first": False}
        some = {"of": None, "filter": {"phase": "ended", "tool": "structured"}, "oldest_first": True}
        store = self.place.store()
        await store.open()
        try:
            for name, wanted in (("of tasks", every), ("of some tasks", some)):
                page = await store.list(
                    wanted["of"],
                    limit=1,
                    filter=TaskFilter(**wanted["filter"]),
                    oldest_first=wanted["oldest_first"],
                )
                self.kept.cursors[name] = {"cursor": page.cursor, **wanted}
        finally:
            await store.close()
        desk = self.place.desk(only=())
        async with served(desk) as wire:
            cursor = None
            for name in ("of resources", "of artifacts"):
                listed = await wire.ask(
                    "ada-token", "resources/list", **({} if cursor is None else {"cursor": cursor})
                )
                cursor = listed["nextCursor"]
                self.kept.cursors[name] = {"cursor": cursor, "method": "resources/list"}


A_YEAR = 365 * 24 * AN_HOUR


async def open_session(wire: Wire, owner: str, protocol: str) -> str:
    """Open a session, and return its id."""
    params = {
        "protocolVersion": protocol,
        "capabilities": {"elicitation": {}},
        "clientInfo": {"name": "kept", "version": "1"},
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    answer = await wire.post(body, {"authorization": f"Bearer {owner}"} if owner else {})
    return str(answer.headers["mcp-session-id"])


# Copies


def pack(content: bytes, to: Path) -> None:
    """Write a compressed file, the same for the same content."""
    to.write_bytes(gzip.compress(content, mtime=0))


def copy_file(place: Place, to: Path) -> None:
    """Copy a SQLite store that is in use into one small file."""
    file = to.with_name("copying")
    source, copy = sqlite3.connect(place.url.removeprefix("sqlite:///")), sqlite3.connect(file)
    source.backup(copy)
    copy.execute("UPDATE clocks SET boot = 'a start of another machine', namespace = ''")
    copy.commit()
    copy.execute("PRAGMA journal_mode = DELETE")
    copy.execute("VACUUM")
    copy.close()
    source.close()
    pack(file.read_bytes(), to)
    file.unlink()


def dump(server: Postgres, to: Path) -> None:
    """Dump the schema of a store as SQL, without the commands of psql."""
    words = ["--no-owner", "--no-privileges", "--rows-per-insert=50", "--schema", SCHEMA, server.dsn]
    text = subprocess.run(
        [server.program("pg_dump"), *words], check=True, capture_output=True, text=True
    ).stdout
    skipped = ("--", "\\", "SET transaction_timeout")
    lines = [line for line in text.splitlines() if line and not line.startswith(skipped)]
    pack(("\n".join(lines) + "\n").encode(), to)


async def expect(writer: Writer, copy: Any) -> None:
    """Write down what this version makes of a copy of the store."""
    kept = writer.kept
    for name, found in (await look(await copy(), kept.tasks)).items():
        kept.tasks[name] |= found
    for when in ("lost", "hour", "month"):
        outcomes, kept.effects[when] = await go_on(await copy(), kept, when)
        for name, outcome in outcomes.items():
            kept.tasks[name]["outcome"] = outcome
    kept.visits = await visit(await copy(), kept)
    for each, found in zip(kept.rounds, await redeem(await copy(), kept.rounds), strict=True):
        each |= found


async def write_sqlite(folder: Path) -> None:
    """Write the store of SQLite."""
    (folder / "sqlite").mkdir()
    with tempfile.TemporaryDirectory() as name:
        live, copies = Path(name, "live"), iter(range(100))
        live.mkdir()
        writer = Writer(Place(f"sqlite:///{live}/store.sqlite"))

        async def snapshot() -> None:
            copy_file(writer.place, folder / "sqlite" / "store.sqlite.gz")

        async def copy() -> Place:
            place = Path(name, str(next(copies)))
            place.mkdir()
            return copy_of_file(folder, place)

        await _write(writer, snapshot, copy)
    writer.kept.write(folder / "sqlite" / "kept.json")


async def write_postgres(folder: Path) -> None:
    """Write the dump of PostgreSQL."""
    (folder / "postgres").mkdir()
    with postgres() as server:
        writer = Writer(Place(f"{server.dsn}?schema={SCHEMA}"))

        async def snapshot() -> None:
            dump(server, folder / "postgres" / "store.sql.gz")

        async def copy() -> Place:
            return await load_dump(folder, server.dsn)

        await _write(writer, snapshot, copy)
    writer.kept.write(folder / "postgres" / "kept.json")


async def write_clients(folder: Path) -> None:
    """Write what clients and the command line leave."""
    (folder / "clients").mkdir()
    kept = Kept.read(folder / "sqlite" / "kept.json")
    with tempfile.TemporaryDirectory() as name:
        place = copy_of_file(folder, Path(name))
        await write_all(folder / "clients", place.url, kept.tasks["values"]["id"])


async def _write(writer: Writer, snapshot: Any, copy: Any) -> None:
    with at(MOMENT):
        await writer.fill()
        await writer.lose(snapshot)
    await expect(writer, copy)


def checksums(folder: Path) -> str:
    """Return the checksums of the files of a folder, as `sha256sum` writes them."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "SHA256SUMS")
    lines = (
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(folder).as_posix()}"
        for path in files
    )
    return "\n".join(lines) + "\n"


async def main(name: str = VERSION) -> None:
    """Write a folder."""
    folder = HERE / name
    if folder.exists():
        raise SystemExit(f"{folder} exists: a folder is never written again. Name another one.")
    folder.mkdir()
    try:
        await write_sqlite(folder)
        await write_postgres(folder)
        await write_clients(folder)
        (folder / "SHA256SUMS").write_text(checksums(folder), encoding="utf-8")
    except BaseException:
        shutil.rmtree(folder)
        raise


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
