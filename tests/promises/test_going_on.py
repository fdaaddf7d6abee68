"""A cancelled task goes on as a new task, which takes over its journal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from antiphon import Client, Context, Failure, Limits, RetriesExhausted, Retry, Server, Unanswered
from antiphon.cli.exit_codes import CommandError
from antiphon.cli.tasks.store_tasks import StoreTasks
from antiphon.client.tasks.handle import TaskHandle
from antiphon.errors import InvalidParams
from antiphon.store import open_store
from antiphon.store.contract import Record
from tests.support.polling import until


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a store that several processes share."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/tasks.db"
    return str(request.getfixturevalue("database").url())


class Shop:
    """A server whose tool asks twice, and then does a step that takes long."""

    def __init__(self, url: str) -> None:
        self.store = open_store(url)
        self.server = Server("shop", store=self.store, limits=Limits(unwind_timeout=60))
        self.did: list[str] = []
        self.keys: list[str] = []
        self.may_charge = asyncio.Event()
        self.may_clean = asyncio.Event()
        self.may_clean.set()

        @self.server.tool(task="required", poll_interval=0.02)
        async def buy(item: str, ctx: Context) -> str:
            async def charge() -> str:
                self.keys.append(ctx.idempotency_key)
                await self.may_charge.wait()
                self.did.append(f"charged {item}")
                return "paid"

            self.did.append("began")
            try:
                await ctx.emit("looking")
                await ctx.step(self.did.append, f"reserved {item}")
                await ctx.emit("reserved")
                color = await ctx.elicit("Which color?", str, key="color")
                size = await ctx.elicit("Which size?", str, key="size")
                paid = await ctx.step(charge)
                return f"{paid} for a {color} {item} of size {size}"
            finally:
                if not ctx.suspending:
                    self.did.append("cleaning")
                    await self.may_clean.wait()
                    self.did.append("cleaned")

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Client]:
        async with Client(self.server) as client:
            try:
                yield client
            finally:
                self.may_charge.set()
                self.may_clean.set()

    async def record(self, id: str) -> Record:
        found = await self.store.get(id)
        assert found is not None
        return found


async def asks(handle: TaskHandle, key: str) -> None:
    """Wait until a task asks a question."""

    async def is_asked() -> bool:
        return key in (await handle.status()).questions

    await until(is_asked)


async def ended(shop: Shop, id: str) -> None:
    """Wait until the function of a cancelled task has cleaned up."""

    async def has_ended() -> bool:
        return (await shop.record(id)).phase == "ended"

    await until(has_ended)


async def retry(url: str, id: str) -> str:
    """Retry a task as `antiphon tasks retry` does; return the id of the task that runs."""
    async with StoreTasks(url) as tasks:
        return (await tasks.retry(id)).id


async def test_what_is_done_is_not_done_again_and_what_is_answered_is_not_asked_again(url: str) -> None:
    shop = Shop(url)
    async with shop.opened() as client:
        handle = await client.submit("buy", item="coat")
        await asks(handle, "color")
        await handle.answer({"color": {"value": "red"}})
        await asks(handle, "size")
        await handle.cancel()
        await ended(shop, handle.id)
        again = client.task(await retry(url, handle.id))
        assert again.id != handle.id
        await asks(again, "size")
        with pytest.raises(InvalidParams, match="another answer"):
            await again.answer({"color": {"value": "blue"}})
        await again.answer({"size": {"value": "M"}})
        shop.may_charge.set()
        result = await again.result(timeout=60)
        assert [block.text for block in result.content] == [
            "looking",
            "reserved",
            "paid for a red coat of size M",
        ]
        assert shop.did.count("reserved coat") == 1
        assert (await handle.status()).status == "cancelled"
        created = (await shop.store.read(again.id, limit=1))[0].data
        assert created["continues"] == handle.id
        with pytest.raises(CommandError, match=r"failed or was cancelled.*Its status is completed"):
            await retry(url, again.id)


async def test_a_step_that_was_cut_short_has_the_same_idempotency_key(url: str) -> None:
    shop = Shop(url)
    async with shop.opened() as client:
        handle = await client.submit("buy", item="hat")
        await asks(handle, "color")
        await handle.answer({"color": {"value": "red"}})
        await asks(handle, "size")
        await handle.answer({"size": {"value": "M"}})
        await until(lambda: len(shop.keys) == 1)
        await handle.cancel()
        await ended(shop, handle.id)
        again = client.task(await retry(url, handle.id))
        await until(lambda: len(shop.keys) == 2)
        shop.may_charge.set()
        assert (await again.result(timeout=60)).content[-1].text == "paid for a red hat of size M"
        assert shop.keys[0] == shop.keys[1]
        assert shop.did.count("charged hat") == 1


async def test_it_begins_after_the_cancelled_task_has_cleaned_up(url: str) -> None:
    shop = Shop(url)
    shop.may_clean.clear()
    async with shop.opened() as client:
        handle = await client.submit("buy", item="hat")
        await asks(handle, "color")
        await handle.answer({"color": {"value": "red"}})
        await asks(handle, "size")
        await handle.answer({"size": {"value": "M"}})
        await until(lambda: len(shop.keys) == 1)
        await handle.cancel()
        await until(lambda: "cleaning" in shop.did)
        before = list(shop.did)
        again = client.task(await retry(url, handle.id))

        async def was_given_back() -> bool:
            return bool((await shop.record(str(again.id))).head.get("quiet_releases"))

        await until(was_given_back)
        assert shop.did == before
        shop.may_charge.set()
        shop.may_clean.set()
        assert (await again.result(timeout=60)).content[-1].text == "paid for a red hat of size M"
        assert shop.did[len(before) :] == ["cleaned", "began", "charged hat", "cleaning", "cleaned"]


async def test_a_task_that_was_cancelled_before_it_began_goes_on_without_a_worker_in_between(
    url: str,
) -> None:
    shop = Shop(url)
    shop.server.configure(run_tasks=False)
    async with shop.opened() as client:
        handle = await client.submit("buy", item="hat")
        await handle.cancel()
        id = await retry(url, handle.id)
        assert (await shop.record(id)).phase == "ready"
        assert (await client.task(id).status()).status == "working"


async def test_many_at_once_are_one_new_task(url: str) -> None:
    shop = Shop(url)
    async with shop.opened() as client, AsyncExitStack() as stack:
        handle = await client.submit("buy", item="coat")
        await asks(handle, "color")
        await handle.cancel()
        operators = [await stack.enter_async_context(StoreTasks(url)) for _ in range(4)]
        found = await asyncio.gather(*(each.retry(handle.id) for each in operators))
        assert len({task.id for task in found}) == 1
        assert {record.id for record in (await shop.store.list(None)).records} == {handle.id, found[0].id}
        assert (await operators[0].retry(handle.id)).id == found[0].id


async def test_a_task_that_went_on_and_was_cancelled_too_goes_on_again(url: str) -> None:
    shop = Shop(url)
    async with shop.opened() as client:
        handle = await client.submit("buy", item="coat")
        ids: list[Any] = [handle.id]
        for answer in ({"color": {"value": "red"}}, {"size": {"value": "M"}}):
            current = client.task(ids[-1])
            await asks(current, *answer)
            await current.answer(answer)
            await (asks(current, "size") if "color" in answer else until(lambda: shop.keys))
            await current.cancel()
            await ended(shop, current.id)
            ids.append(await retry(url, handle.id))
        assert len(set(ids)) == 3
        shop.may_charge.set()
        assert (await client.task(ids[-1]).result(timeout=60)).content[-1].text == (
            "paid for a red coat of size M"
        )
        assert len(set(shop.keys)) == 1
        assert shop.did.count("reserved coat") == 1


async def cancelled(url: str, handle: TaskHandle) -> str:
    """Cancel a task and retry it; return the id of the task that goes on."""
    await handle.cancel()
    return await retry(url, str(handle.id))


async def test_the_task_that_went_on_and_failed_is_the_one_to_retry(url: str) -> None:
    server, done = Server("shop", store=url), list[str]()

    @server.tool(task="required", poll_interval=0.02)
    async def buy(ctx: Context) -> str:
        await ctx.elicit("Sure?", bool, key="sure")
        await ctx.step(done.append, "paid")
        await ctx.elicit("Open?", bool, key="open")
        done.append("run")
        if done.count("run") == 1:
            raise Failure("The shop is closed.")
        return "bought"

    async with Client(server) as client:
        handle = await client.submit("buy")
        await asks(handle, "sure")
        again = client.task(await cancelled(url, handle))
        for key in ("sure", "open"):
            await asks(again, key)
            await again.answer({key: {"value": True}})
        with pytest.raises(Failure, match="closed"):
            await again.result(timeout=60)
        with pytest.raises(
            CommandError, match=f"task {again.id} went on for it, and has failed. Retry that one.$"
        ):
            await retry(url, str(handle.id))
        assert await retry(url, str(again.id)) == again.id
        await until(lambda: done.count("run") == 2)
        assert (await again.result(timeout=60)).text == "bought"
        assert done.count("paid") == 1
        with pytest.raises(CommandError, match=f"task {again.id} went on for it, and has completed.$"):
            await retry(url, str(handle.id))


@pytest.mark.parametrize("option", ["resume", "replay"])
async def test_a_tool_that_is_not_run_again_by_itself_goes_on_if_a_person_asks(url: str, option: str) -> None:
    server, done = Server("shop", store=url), list[str]()
    may_charge = asyncio.Event()
    options: dict[str, Any] = {option: False}

    @server.tool(task="required", poll_interval=0.02, **options)
    async def buy(ctx: Context) -> str:
        async def charge() -> str:
            done.append(ctx.idempotency_key)
            await may_charge.wait()
            return "paid"

        await ctx.step(done.append, "reserved")
        color = await ctx.elicit("Which color?", str, key="color")
        return f"{await ctx.step(charge)} for {color}"

    async with Client(server) as client:
        handle = await client.submit("buy")
        await asks(handle, "color")
        await handle.answer({"color": {"value": "red"}})
        await until(lambda: len(done) == 2)
        id = await cancelled(url, handle)
        may_charge.set()
        assert (await client.task(id).result(timeout=60)).text == "paid for red"
        assert done == ["reserved", done[1], done[1]]


@pytest.mark.parametrize("what", ["event", "question", "step"])
async def test_what_was_given_up_before_the_cancellation_stays_so(url: str, what: str) -> None:
    server, done = Server("shop", store=url), list[str]()

    async def fetch() -> str:
        done.append("fetched")
        if done.count("fetched") == 1:
            raise OSError
        return "page"

    @server.tool(task="required", poll_interval=0.02)
    async def buy(ctx: Context) -> str:
        try:
            if what == "event":
                await ctx.event("paid", key="1", within=0.05)
            elif what == "question":
                await ctx.elicit("Sure?", bool, key="sure", within=0.05)
            else:
                await ctx.step(fetch, retry=Retry(attempts=1))
        except (Unanswered, RetriesExhausted):
            await ctx.step(done.append, "withdrawn")
            await ctx.elicit("Sorry?", bool, key="sorry")
            done.append("run")
            if done.count("run") == 1:
                raise Failure("The shop is closed.") from None
            return "withdrawn"
        return "bought"

    async with Client(server) as client:
        handle = await client.submit("buy")
        await asks(handle, "sorry")
        await server.send_event("paid", "1")
        again = client.task(await cancelled(url, handle))
        await asks(again, "sorry")
        await again.answer({"sorry": {"value": True}})
        with pytest.raises(Failure, match="closed"):
            await again.result(timeout=60)
        await retry(url, str(again.id))
        await until(lambda: done.count("run") == 2)
        assert (await again.result(timeout=60)).text == "withdrawn"
        assert done.count("withdrawn") == 1
