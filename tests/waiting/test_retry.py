"""`ctx.step(retry=…)` and `ctx.map`: steps that are tried again, and many steps side by side."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from antiphon import Context, DefinitionError, RetriesExhausted, Retry, Server
from antiphon.store.contract import Store
from antiphon.store.memory import MemoryStore
from antiphon.store.sqlite import SQLiteStore
from tests.support.polling import turns, until
from tests.waiting.support import Clock, client_of, status_of


class Unstable:
    """Fails so many times, then answers."""

    def __init__(self, failures: int, error: Exception | None = None) -> None:
        self.left, self.calls = failures, 0
        self.error = error or OSError("no route")

    async def fetch(self, url: str) -> str:
        self.calls += 1
        if self.left:
            self.left -= 1
            raise self.error
        return f"page of {url}"


def fetching(store: Store, service: Unstable, retry: Retry) -> Server:
    server = Server("shop", store=store)

    async def fetch(url: str) -> str:
        return await service.fetch(url)

    @server.tool(task="required", poll_interval=0.02)
    async def load(ctx: Context) -> str:
        try:
            page = await ctx.step(fetch, "a", retry=retry)
        except RetriesExhausted as error:
            page = f"{error.attempts}: {error.message}"
        await ctx.sleep(seconds=0.01)
        return page

    return server


async def test_a_step_is_tried_again_after_short_waits(store: Store) -> None:
    service = Unstable(2)
    server = fetching(store, service, Retry(attempts=3, first=0.01, on=(OSError,)))
    async with client_of(server) as client:
        assert (await (await client.submit("load")).result(timeout=60)).text == "page of a"
    assert service.calls == 3


async def test_a_task_is_parked_between_attempts_that_are_far_apart(store: Store, clock: Clock) -> None:
    service = Unstable(2)
    server = fetching(store, service, Retry(attempts=3, first=60.0, factor=2.0))
    async with client_of(server) as client:
        handle = await client.submit("load")
        for minutes in (1, 2):

            async def is_parked(count: int = minutes) -> bool:
                return (service.calls, server.engine.tasks.running) == (count, 0)

            await until(is_parked)
            await status_of(handle, "Sleeping")
            clock.forward(minutes=minutes)
        assert (await handle.result(timeout=60)).text == "page of a"


async def test_after_the_last_attempt_the_step_has_failed_in_every_run(store: Store, clock: Clock) -> None:
    service = Unstable(99)
    server = Server("shop", store=store)

    async def fetch(url: str) -> str:
        return await service.fetch(url)

    @server.tool(task="required", poll_interval=0.02)
    async def load(ctx: Context) -> str:
        with pytest.raises(RetriesExhausted, match="failed 2 times, last with OSError: no route"):
            await ctx.step(fetch, "a", retry=Retry(attempts=2, first=0.01))
        await ctx.sleep(hours=1)
        return "went on"

    async with client_of(server) as client:
        handle = await client.submit("load")
        await status_of(handle, "Sleeping")
        clock.forward(hours=1)
        assert (await handle.result(timeout=60)).text == "went on"
    assert service.calls == 2


async def test_a_step_that_another_version_has_given_up_is_not_tried_again(
    tmp_path: Path, clock: Clock
) -> None:
    service, undone = Unstable(1), list[str]()

    def version(attempts: int) -> Server:
        server = Server("shop", store=SQLiteStore(tmp_path / "tasks.db"))

        async def fetch(url: str) -> str:
            return await service.fetch(url)

        @server.tool(task="required", poll_interval=0.02)
        async def load(ctx: Context) -> str:
            try:
                page = await ctx.step(fetch, "a", retry=Retry(attempts=attempts, first=60.0))
            except RetriesExhausted:
                await ctx.step(undone.append, "a")
                page = "undone"
            await ctx.sleep(hours=1)
            return page

        return server

    async with client_of(version(attempts=5)) as client:
        handle = await client.submit("load")
        await status_of(handle, "Sleeping")
    async with client_of(version(attempts=1)) as client:
        clock.forward(minutes=1)

        async def has_given_up() -> bool:
            return undone == ["a"]

        await until(has_given_up)
        await status_of(client.task(str(handle.id)), "Sleeping")
    async with client_of(version(attempts=5)) as client:
        clock.forward(hours=1)
        assert (await client.task(str(handle.id)).result(timeout=60)).text == "undone"
    assert service.calls == 1


async def test_an_error_that_is_not_named_is_not_tried_again(store: Store) -> None:
    service = Unstable(99, KeyError("x"))
    server = Server("shop", store=store)

    async def fetch(url: str) -> str:
        return await service.fetch(url)

    @server.tool
    async def load(ctx: Context) -> str:
        with pytest.raises(KeyError):
            await ctx.step(fetch, "a", retry=Retry(on=(OSError,)))
        return "failed"

    async with client_of(server) as client:
        assert (await client.call("load")).text == "failed"
    assert service.calls == 1


class Limited(Exception):
    retry_after: object = 120


class LimitedByTimedelta(Limited):
    retry_after = timedelta(minutes=3)


class LimitedByDatetime(Limited):
    retry_after = datetime(2100, 1, 1, tzinfo=UTC)


class Refused(Exception):
    def __init__(self, value: str) -> None:
        self.response = type("Response", (), {"headers": {"retry-after": value}})()


@pytest.mark.parametrize(
    ("error", "delay"),
    [
        (Limited(), 120),
        (LimitedByTimedelta(), 180),
        (LimitedByDatetime(), 7 * 86400),
        (Refused("30"), 30),
        (Refused("soon"), 1),
        (Refused("Fri, 01 Jan 2100 00:00:00 GMT"), 7 * 86400),
        (Refused("-5"), 1),
        (OSError(), 1),
    ],
)
def test_the_delay_that_an_error_asks_for_is_kept(error: Exception, delay: float) -> None:
    assert Retry().delay(1, error) == delay


def test_delays_grow_up_to_a_bound() -> None:
    retry = Retry(first=1, factor=3, longest=20)
    assert [retry.delay(failed, OSError()) for failed in (1, 2, 3, 4, 2000)] == [1, 3, 9, 20, 20]
    assert Retry(factor=10, longest=20).delay(400, OSError()) == 20
    assert Retry(first=0, factor=10).delay(400, OSError()) == 0


async def test_the_log_keeps_the_last_errors_of_many_attempts() -> None:
    store, service = MemoryStore(), Unstable(99, OSError("x" * 1000))
    server = fetching(store, service, Retry(attempts=100, first=0))
    async with client_of(server) as client:
        handle = await client.submit("load")
        assert (await handle.result(timeout=60)).text == "page of a"
        entries = await store.read(handle.id)
    assert sum(len(str(entry.data)) for entry in entries) < 250_000


@pytest.mark.parametrize(
    "options", [{"attempts": 0}, {"first": -1}, {"factor": 0.5}, {"on": ("OSError",)}, {"longest": -1}]
)
def test_a_retry_that_cannot_work_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError, match=f"{next(iter(options))}"):
        Retry(**options)


async def test_many_items_are_mapped_some_at_a_time(store: Store) -> None:
    server, running, most = Server("shop", store=store), 0, 0

    async def square(n: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await until(lambda: most == 5)  # the first five wait for each other
        running -= 1
        return n * n

    @server.tool
    async def squares(ctx: Context, count: int) -> list[int]:
        return await ctx.map(square, range(count), at_once=5)

    async with client_of(server) as client:
        assert (await client.call("squares", count=40)).data == [n * n for n in range(40)]
    assert most == 5


async def test_a_map_goes_on_where_it_stopped(store: Store, clock: Clock) -> None:
    server, done = Server("shop", store=store), []
    retry = Retry(first=60.0)

    async def visit(n: int) -> int:
        done.append(n)
        if n == 7 and done.count(7) == 1:
            raise OSError("away")
        return n

    @server.tool(task="required", poll_interval=0.02)
    async def visits(ctx: Context) -> list[int]:
        return await ctx.map(visit, range(20), at_once=3, retry=retry)

    async with client_of(server) as client:
        handle = await client.submit("visits")
        await status_of(handle, "Sleeping")
        clock.forward(minutes=1)
        assert (await handle.result(timeout=60)).data == list(range(20))
    assert sorted(done) == sorted([*range(20), 7])


async def test_the_first_failure_of_a_map_stops_the_others(store: Store) -> None:
    server, begun = Server("shop", store=store), []

    async def visit(n: int) -> int:
        begun.append(n)
        await turns()
        if n == 3:
            raise OSError("away")
        return n

    @server.tool
    async def visits(ctx: Context) -> str:
        with pytest.raises(OSError, match="away"):
            await ctx.map(visit, range(1000), at_once=2)
        return "stopped"

    async with client_of(server) as client:
        assert (await client.call("visits")).text == "stopped"
    assert len(begun) < 10
