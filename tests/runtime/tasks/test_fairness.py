"""A server whose tasks are queued: no principal and no tool takes all the room of a worker."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from antiphon import Client, Context, DefinitionError, Limits, Server
from antiphon.errors import InternalError
from antiphon.store import open_store
from antiphon.store.contract import Store
from tests.support.polling import turns, until

LIMITS = Limits(max_running_tasks=4, drain_timeout=0.2, lease_seconds=60.0)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """Each kind of store."""
    if request.param == "postgres":
        yield open_store(request.getfixturevalue("database").url())
    else:
        yield open_store("memory:" if request.param == "memory" else f"sqlite:///{tmp_path / 'tasks.db'}")


class Shop:
    """A server whose tools run until the gate opens, and how many tasks of each tool run at once."""

    def __init__(self, store: Store | str, limits: Limits = LIMITS, max_running: int | None = None) -> None:
        self.server = Server("shop", store=store, limits=limits)
        self.gate = asyncio.Event()
        self.order: list[str] = []
        """The principals whose tasks have begun."""
        self.running: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        """How many tasks ran at once at most, by tool and by principal."""

        @self.server.tool(task="required")
        async def work(ctx: Context) -> None:
            await self.run(ctx, "work")

        @self.server.tool(task="required", max_running=max_running)
        async def print_label(ctx: Context) -> None:
            await self.run(ctx, "print_label")

    async def run(self, ctx: Context, tool: str) -> None:
        self.order.append(ctx.principal.id)
        for name in (tool, ctx.principal.id):
            self.running[name] += 1
            self.most[name] = max(self.most[name], self.running[name])
        await self.gate.wait()
        await turns()
        for name in (tool, ctx.principal.id):
            self.running[name] -= 1

    async def submit(self, principal: str, count: int, tool: str = "work") -> list[Any]:
        async with Client(self.server, principal=principal) as client:
            return await asyncio.gather(*(client.submit(tool) for _ in range(count)))


async def test_the_tasks_of_others_run_before_the_rest_of_a_long_queue(store: Store) -> None:
    shop = Shop(store)
    async with shop.server.engine.running():
        await shop.submit("flood", 300)
        await until(lambda: len(shop.order) == 4)  # the worker has no more room
        others = [f"other{n}" for n in range(99)]
        for other in others:
            await shop.submit(other, 10)
        shop.gate.set()
        await until(lambda: len(shop.order) == 300 + 990)
    last = max(place for place, name in enumerate(shop.order) if name != "flood")
    assert shop.order[: last + 1].count("flood") < 100
    for other in others[:10]:  # a principal's next task comes once per round
        assert shop.order[: len(shop.order) // 2].count(other) >= 4


async def test_tasks_that_are_created_during_a_claim_leave_it_its_room(store: Store) -> None:
    claim, begun, continues = store.claim, asyncio.Event(), asyncio.Event()
    claimed: list[int] = []

    async def slow_claim(*args: Any, **kwargs: Any) -> Any:
        begun.set()
        await continues.wait()
        claims = await claim(*args, **kwargs)
        claimed.append(len(claims))
        return claims

    store.claim = slow_claim  # type: ignore[method-assign]
    shop = Shop(store)
    async with shop.server.engine.running():
        await begun.wait()
        await shop.submit("ann", 20)
        already_begun = len(shop.order)
        continues.set()
        await until(lambda: claimed and len(shop.order) == already_begun + claimed[0])
        shop.gate.set()
        await until(lambda: len(shop.order) == 20)
    assert shop.most["work"] == 4


async def test_a_tool_runs_no_more_tasks_at_once_than_it_may(store: Store) -> None:
    shop = Shop(store, max_running=2)
    async with shop.server.engine.running():
        await shop.submit("ann", 20, "print_label")
        await until(lambda: shop.running["print_label"] == 2)
        await shop.submit("bob", 2, "work")
        await until(lambda: shop.running["work"] == 2)  # the other tools have the rest of the room
        shop.gate.set()
        await until(lambda: len(shop.order) == 22)
    assert shop.most["print_label"] == 2


async def test_a_tool_with_a_long_queue_leaves_room_for_the_others() -> None:
    limits = Limits(max_running_tasks=2, drain_timeout=0.2)
    shop = Shop("memory:", limits, max_running=2)
    async with shop.server.engine.running():
        await shop.submit("ann", 50, "print_label")
        await until(lambda: shop.running["print_label"] == 2)
        await shop.submit("bob", 5, "work")
        shop.gate.set()
        await until(lambda: len(shop.order) == 55)
    assert shop.order.index("bob") < 30
    assert [place for place, name in enumerate(shop.order) if name == "bob"][-1] < 40


async def test_a_tool_that_runs_one_task_at_a_time_begins_the_next_one_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("antiphon.runtime.tasks.worker.CLAIM_INTERVAL_SECONDS", 60.0)
    shop = Shop("memory:", max_running=1)
    shop.gate.set()
    async with shop.server.engine.running():
        await shop.submit("ann", 30, "print_label")
        await until(lambda: len(shop.order) == 30)  # far less than 60 seconds for each
    assert shop.most["print_label"] == 1


@pytest.mark.usefixtures("quick_claims")
async def test_a_principal_runs_no_more_tasks_at_once_than_it_may(store: Store) -> None:
    limits = Limits(max_running_tasks=6, max_running_tasks_per_principal=2, drain_timeout=0.2)
    shop = Shop(store, limits)
    async with shop.server.engine.running():
        await shop.submit("ann", 30)
        await until(lambda: shop.running["ann"] == 2)
        await shop.submit("bob", 5)
        await until(lambda: shop.running["bob"] == 2)  # the room that is left is for others
        shop.gate.set()
        await until(lambda: len(shop.order) == 35)
    assert (shop.most["ann"], shop.most["bob"]) == (2, 2)


@pytest.mark.usefixtures("quick_claims")
async def test_a_principal_at_its_limit_does_not_delay_the_others() -> None:
    limits = Limits(max_running_tasks=6, max_running_tasks_per_principal=2, drain_timeout=0.2)
    shop = Shop("memory:", limits)
    async with shop.server.engine.running():
        await shop.submit("ann", 200)
        await until(lambda: shop.running["ann"] == 2)  # and these do not end
        for n in range(20):
            await shop.submit(f"other{n}", 1)
            await until(lambda n=n: len(shop.order) == 2 + min(n + 1, 4))  # type: ignore[misc]
        assert shop.running["ann"] == 2
        shop.gate.set()
        await until(lambda: len(shop.order) == 220)
    assert shop.most["ann"] == 2


async def test_without_authentication_no_principal_has_a_limit() -> None:
    limits = Limits(max_running_tasks=6, max_running_tasks_per_principal=2, drain_timeout=0.2)
    shop = Shop("memory:", limits)
    async with shop.server.engine.running(), Client(shop.server) as client:
        await asyncio.gather(*(client.submit("work") for _ in range(5)))
        await until(lambda: shop.running["work"] == 5)
        shop.gate.set()
        await until(lambda: not shop.running["work"])


async def test_a_principal_queues_no_more_tasks_than_it_may(store: Store) -> None:
    shop = Shop(store, Limits(max_running_tasks=1, max_queued_tasks_per_principal=3, drain_timeout=0.2))
    async with shop.server.engine.running():
        for _ in range(3):
            await shop.submit("ann", 1)
        with pytest.raises(InternalError, match="You have 3 of at most 3 tasks that wait for a worker"):
            await shop.submit("ann", 1)
        await shop.submit("bob", 1)
        shop.gate.set()
        await until(lambda: len(shop.order) == 4)


@pytest.mark.parametrize("name", ["max_running_tasks_per_principal", "max_queued_tasks_per_principal"])
@pytest.mark.parametrize("value", [-1, float("nan"), "2"])
def test_an_invalid_limit_of_a_principal_is_refused(name: str, value: Any) -> None:
    with pytest.raises(DefinitionError, match=name):
        Limits(**{name: value})
    assert getattr(Limits(**{name: 5}), name) == 5


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "2"])
def test_an_invalid_number_of_running_tasks_is_refused(value: Any) -> None:
    server = Server("shop")
    with pytest.raises(
        DefinitionError, match=r"work: max_running=.* is invalid. Use a number of at least 1."
    ):

        @server.tool(task="required", max_running=value)
        async def work() -> None: ...
