"""One task in the console: status, timeline, log, output, result, and what a person can do with it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from antiphon import Artifact, BearerTokens, Client, Console, Context, Failure, Image, Principal, Server
from antiphon.console.sources import StoreSource
from antiphon.store.contract import Store
from antiphon.store.memory import MemoryStore
from tests.cli.stored_tasks import HOUR, create_task
from tests.console.people import PEOPLE, store_url
from tests.console.people import shop as people_shop
from tests.console.support import RunningConsole, serving_app, serving_console
from tests.console.test_tasks_api import LIST, console_of, finished, ids
from tests.support.polling import DEADLINE, until

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


class Shop:
    """A server with tools of every kind, and the console of its store."""

    def __init__(self) -> None:
        self.store: Store = MemoryStore()
        self.server = Server("shop", store=self.store)
        self.gate = asyncio.Event()
        self.is_open = False

        async def charge() -> str:
            return "charged"

        @self.server.tool(task="required", poll_interval=0.05)
        async def buy(item: str, ctx: Context) -> str:
            await ctx.step(charge)
            if not self.is_open:
                raise Failure("The shop is closed.")
            return f"# Bought\n\n{item}"

        @self.server.tool(task="required", poll_interval=0.05)
        async def tell(ctx: Context) -> Any:
            for number in range(300):
                await ctx.emit(f"line {number}\n")
            await self.gate.wait()
            await ctx.emit("the end")

        @self.server.tool(task="required", poll_interval=0.05)
        async def draw() -> Any:
            return Image(PIXEL, "image/png")

        @self.server.tool(task="required", poll_interval=0.05)
        async def report() -> Artifact[Any]:
            return Artifact([{"city": "Oslo", "count": 3}], type="table", title="Cities")

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[tuple[Client, RunningConsole]]:
        """Run the server, and serve a console of its store."""
        async with Client(self.server, principal=Principal("ann")) as client:
            source = StoreSource(
                "s", "shop", self.store, is_own=False, artifacts=self.server.engine.artifacts.open_store
            )
            async with serving_console(stores=[source]) as console:
                yield client, console


async def until_shown(console: RunningConsole, path: str, condition: Callable[[Any], bool]) -> None:
    """Wait until what the console shows at a path fulfils a condition."""

    async def is_shown() -> bool:
        return condition(await console.get(path))

    await until(is_shown)


async def test_a_failed_task_says_why_and_can_be_retried_and_run_again() -> None:
    shop = Shop()
    async with shop.opened() as (client, console):
        handle = await client.submit("buy", {"item": "tea"})
        await handle.result(check=False)
        path = f"{LIST}/{handle.id}"
        view = await console.get(path)
        assert view["failure"] == {"title": "The tool failed", "text": "The shop is closed."}
        assert [action["name"] for action in view["actions"]] == ["retry", "again"]
        assert view["arguments"]["value"] == {"item": "tea"}
        assert [row["label"] for row in (await console.get(f"{path}/timeline"))["rows"]] == [
            "Run 1",
            "charge",
        ]
        shop.is_open = True
        again = await console.post(f"{path}/again")
        result = await client.task(again["id"]).result()
        assert result.text == "# Bought\n\ntea"
        await console.post(f"{path}/retry")
        await until_shown(console, path, lambda view: view["task"]["status"] == "done")
        assert [action["name"] for action in (await console.get(path))["actions"]] == ["again"]
        assert (
            "only a task that has failed"
            in (await console.post(f"{path}/retry", status=409))["message"].lower()
        )
        assert (await console.post(f"{path}/cancel", status=409))["message"]


async def test_the_owner_of_a_cancelled_task_lets_it_go_on_and_nobody_else_does(tmp_path: Path) -> None:
    server = people_shop(store_url(tmp_path), authenticate=BearerTokens(PEOPLE))
    app = server.asgi(console=Console(operators=["max"]))
    async with serving_app(app) as url, AsyncExitStack() as stack:

        async def browser_of(token: str) -> RunningConsole:
            headers = {"authorization": f"Bearer {token}"}
            http = await stack.enter_async_context(aiohttp.ClientSession(headers=headers))
            return RunningConsole(f"{url}/console", app, http)

        ada, bob, max = [await browser_of(f"{name}-token") for name in "abm"]
        async with Client(server, principal=PEOPLE["a-token"]) as client:
            handle = await client.submit("greet")
            path = f"/api/stores/own/tasks/{handle.id}"
            await until_shown(ada, path, lambda view: view["questions"] == ["name"])
            refused = await ada.post(f"{path}/retry", status=403)
            assert "You can retry a cancelled one" in refused["message"]
            await ada.post(f"{path}/cancel")
            assert [action["name"] for action in (await ada.get(path))["actions"]] == ["retry"]
            assert [action["name"] for action in (await max.get(path))["actions"]] == ["retry", "again"]
            await bob.post(f"{path}/retry", status=404)
            again = await ada.post(f"{path}/retry")
            assert again["id"] != handle.id
            assert await max.post(f"{path}/retry") == again
            await until_shown(
                ada, f"/api/stores/own/tasks/{again['id']}", lambda view: view["questions"] == ["name"]
            )


async def test_a_task_is_copied_with_its_whole_result() -> None:
    shop = Shop()
    shop.gate.set()
    async with shop.opened() as (client, console):
        handle = await client.submit("tell", {})
        await handle.result()
        copied = await console.get(f"{LIST}/{handle.id}/json")
        assert copied["status"] == "done"
        assert len(copied["result"]["content"]) == 301


async def test_output_is_streamed_as_it_comes() -> None:
    shop = Shop()
    async with shop.opened() as (client, console):
        handle = await client.submit("tell", {})
        path = f"{LIST}/{handle.id}"
        await until_shown(console, path, lambda view: view["segments"] == 300)
        texts: list[str] = []
        async with console.http.get(f"{console.url}{path}/stream", params={"after": 5}) as response:
            async with asyncio.timeout(DEADLINE):
                async for line in response.content:
                    if not line.startswith(b"data:"):
                        continue
                    data = json.loads(line.removeprefix(b"data:"))
                    texts += [block["text"] for block in data.get("blocks", ())]
                    shop.gate.set()
        # The last segments may be written with the result.
        texts += [block["text"] for block in (await console.get(path))["result"]["rest"]]
        assert texts == [*(f"line {n}\n" for n in range(5, 300)), "the end"]


async def test_pictures_and_artifacts_are_shown() -> None:
    shop = Shop()
    async with shop.opened() as (client, console):
        drawn, reported = await client.submit("draw", {}), await client.submit("report", {})
        await drawn.result()
        await reported.result()
        content = (await console.get(f"{LIST}/{drawn.id}"))["result"]["content"]
        assert content == [{"type": "image", "data": PIXEL, "mimeType": "image/png"}]
        view = await console.get(f"{LIST}/{reported.id}")
        assert view["result"]["artifact"]
        artifact = await console.get(f"{LIST}/{reported.id}/artifact")
        assert json.loads(artifact["text"]) == [{"city": "Oslo", "count": 3}]
        assert (artifact["title"], artifact["mimeType"]) == ("Cities", "application/json")
        async with console.http.get(f"{console.url}{LIST}/{drawn.id}/artifact") as response:
            assert response.status == 404


async def test_a_task_of_another_person_is_not_found_and_the_log_is_for_operators() -> None:
    shop = Shop()
    shop.is_open = True
    async with shop.opened() as (client, console):
        handle = await client.submit("buy", {"item": "tea"})
        await handle.result()
        path = f"{console.url}{LIST}/{handle.id}"
        console.app.sign_in = _SignedIn("ann")  # type: ignore[assignment]
        assert (await console.get(f"{LIST}/{handle.id}"))["entries"] is None
        for part in ("log", "timeline", "log/1"):
            async with console.http.get(f"{path}/{part}") as response:
                assert response.status == 404
        console.app.sign_in = _SignedIn("eve")  # type: ignore[assignment]
        for part in ("", "/json", "/stream", "/artifact"):
            async with console.http.get(path + part) as response:
                assert response.status == 404
        await console.post(f"{LIST}/{handle.id}/cancel", status=404)
        assert ids(await console.get(LIST)) == []


async def test_people_need_the_scopes_of_the_tool() -> None:
    store = MemoryStore()
    await store.open()
    await create_task(store, "done1", age=HOUR, tool="secret", principal="ann")
    await create_task(store, "done2", age=HOUR, tool="open", principal="ann")
    await create_task(store, "waiting1", age=HOUR, tool="secret", principal="ann")

    async def allows(id: str, principal: Principal, tool: str) -> bool:
        return tool == "open"

    source = StoreSource("s", "the store", store, is_own=False, allows=allows)
    async with serving_console(stores=[source]) as console:
        console.app.sign_in = _SignedIn("ann")  # type: ignore[assignment]
        for status in ("", "done", "waiting"):
            found = await console.get(LIST, status=status)
            assert ids(found) == ([] if status == "waiting" else ["done2"])
            # No number tells that there are others.
            assert {name: count for name, count in found["counts"].items() if count != "0"} == {
                "all": "1",
                "done": "1",
            }
        assert not found["mayCancel"]
        assert (await console.get("/api/stores/s/cancellable"))["count"] == 0
        async with console.http.get(f"{console.url}{LIST}/done1") as response:
            assert response.status == 404
        job = (await console.post("/api/stores/s/cancellations", {"ids": ["done1"], "count": 1}))["job"]
        assert "1 task had ended before" in (await finished(console, job))["words"]
    await store.close()


async def test_a_long_log_is_read_from_either_end_and_opens_at_once() -> None:
    store = MemoryStore()
    await store.open()
    await create_task(store, "queued1", age=HOUR)
    record = await store.get("queued1")
    assert record is not None
    entries = [("recorded", {"journal": {f"step:s#{n}": n}, "by": 1}) for n in range(99_999)]
    await store.append("queued1", entries, expect=1, phase="ready", head=record.head)
    reads: list[int] = []
    read = store.read

    async def counted(id: str, *, after: int = 0, limit: int = 1000) -> Any:
        found = await read(id, after=after, limit=limit)
        reads.append(len(found))
        return found

    store.read = counted  # type: ignore[method-assign]
    async with console_of(store) as console:
        path = f"{LIST}/queued1"
        view, timeline = await console.get(path), await console.get(f"{path}/timeline")
        last = await console.get(f"{path}/log")
        assert sum(reads) <= 1 + 1000 + 200
        assert view["entries"] == last["total"] == 100_000
        assert "99,000 entries in the middle are left out" in timeline["note"]
        assert len(timeline["rows"]) == 200
        assert [last["entries"][at]["number"] for at in (0, -1)] == [99_801, 100_000]
        before = await console.get(f"{path}/log", before=99_801)
        assert [before["entries"][at]["number"] for at in (0, -1)] == [99_601, 99_800]
        first = await console.get(f"{path}/log", after=0)
        assert [first["entries"][at]["number"] for at in (0, -1)] == [1, 200]
    await store.close()


async def test_a_large_entry_is_cut_and_read_on_demand() -> None:
    store = MemoryStore()
    await store.open()
    await create_task(store, "queued1", age=HOUR)
    record = await store.get("queued1")
    assert record is not None
    large = {"journal": {"step:large": "x" * 100_000}, "by": 1}
    await store.append("queued1", [("recorded", large)], expect=1, phase="ready", head=record.head)
    async with console_of(store) as console:
        page = await console.get(f"{LIST}/queued1/log")
        entry = page["entries"][1]
        assert "data" not in entry
        assert (len(entry["text"]), entry["size"]) == (200, "100.0 kB")
        assert (await console.get(f"{LIST}/queued1/log/2")) == {"data": large}
        for number in ("0", "3", "x"):
            async with console.http.get(f"{console.url}{LIST}/queued1/log/{number}") as response:
                assert response.status == 404
    await store.close()


class _SignedIn:
    """Signs everybody in as one person, who is no operator."""

    takes_tokens = True

    def __init__(self, id: str) -> None:
        from antiphon.console.routes import ConsoleUser

        self._user = ConsoleUser(id, Principal(id), may_operate=False, may_write=True)

    async def user(self, cookie: Any, headers: Any) -> Any:
        return self._user
