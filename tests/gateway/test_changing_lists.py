"""A server whose lists change all the time costs its gateway little: counted in work, and never in time."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from antiphon import Client, Principal, RequestError, Result, Server
from antiphon.gateway import provider
from antiphon.runtime.authoring.foreign import ForeignTool
from antiphon.testing import Clock
from tests.support.polling import turns, until
from tests.support.serving import serving

SCRIPT = str(Path(__file__).with_name("hostile_upstream.py"))
MANY = 500
MOST_AT_ONCE = 20
"""How many tools may be made before other work has its turn."""


class Counted(ForeignTool):
    """A tool that counts how many were made."""

    __slots__ = ()
    made = 0

    def __init__(self, *arguments: Any, **options: Any) -> None:
        type(self).made += 1
        super().__init__(*arguments, **options)


@pytest.fixture(autouse=True)
def counted(monkeypatch: pytest.MonkeyPatch) -> type[Counted]:
    """The tools that providers make, counted from zero."""
    Counted.made = 0
    monkeypatch.setattr(provider, "ForeignTool", Counted)
    return Counted


@pytest.mark.parametrize(
    ("first", "for_each_item", "delays"), [(1000, 0, (1000, 2000, 4000)), (1, 10, (10 * MANY, 10 * MANY))]
)
async def test_a_server_that_renames_its_tools_after_each_list_is_read_ever_more_rarely(
    monkeypatch: pytest.MonkeyPatch, first: int, for_each_item: int, delays: tuple[int, ...]
) -> None:
    monkeypatch.setattr(provider, "CHANGES_SECONDS", first)
    monkeypatch.setattr(provider, "LONGEST_CHANGES_SECONDS", 3600)
    monkeypatch.setattr(provider, "SECONDS_PER_ITEM", for_each_item)
    gateway = Server("gateway")
    gateway.mount("bad", [sys.executable, SCRIPT, "renames", str(MANY - 1)])
    async with Client(gateway) as client:

        async def lists() -> int:
            return int((await client.call("bad_do")).text)

        async def is_read(times: int) -> bool:
            return await lists() == times

        await until(lambda: is_read(2))  # at the start, and with the first change
        with Clock() as clock:
            for number, delay in enumerate(delays, 2):
                await until(lambda number=number: Counted.made >= number * (MANY - 1) + 1)
                await clock.advance(delay / 2)
                assert await lists() == number
                await clock.advance(delay / 2)
                await until(lambda number=number: is_read(number + 1))
        assert Counted.made <= (len(delays) + 2) * (MANY - 1) + 1  # `do` is made once, and not with each list


async def test_names_that_are_gone_leave_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider, "LONGEST_CHANGES_SECONDS", 0.1)
    inner = Server("inner")
    inner.add_tool(lambda: "stays", name="stays")
    async with serving(inner) as address:
        gateway = Server("gateway")
        gateway.mount("up", address.url)
        async with Client(gateway) as client:
            await client.call("up_stays")
            for number in range(5):
                name = f"t{number}"
                inner.add_tool(lambda: "fine", name=name)
                await until(lambda name=name: f"up_{name}" in gateway.tools)
                await client.call(f"up_{name}")
                assert any(key.tool == f"up_{name}" for key in gateway.counters)
                inner.remove_tool(name)
                await until(lambda name=name: f"up_{name}" not in gateway.tools)
            assert {key.tool for key in gateway.counters} == {"up_stays"}
            assert "up_t" not in await gateway.metrics()
    assert {key.tool for key in inner.counters} == {"stays"}


async def test_only_what_has_changed_is_made_anew() -> None:
    inner = Server("inner")
    for number in range(MANY):
        inner.add_tool(lambda: "fine", name=f"t{number}")
    async with serving(inner) as address:
        middle, outer = Server("middle"), Server("outer")
        middle.mount("up", address.url)
        outer.mount("m", middle)
        async with Client(outer):
            assert Counted.made == MANY
            kept = outer.engine.registry.tools["m_up_t1"]
            inner.add_tool(lambda: "new", name="new")
            await until(lambda: "m_up_new" in outer.tools)
            inner.remove_tool("t0")
            await until(lambda: "m_up_t0" not in outer.tools)
            assert Counted.made == MANY + 1
            assert outer.engine.registry.tools["m_up_t1"] is kept  # a server that mounts the gateway, too


async def test_other_work_goes_on_while_thousands_of_tools_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two turns of other work, only a bounded number of tools is made."""
    gateway = Server("gateway")
    gateway.mount("bad", [sys.executable, SCRIPT, "renames", "3000"])
    most, stopped = 0, False

    async def other_work() -> None:
        nonlocal most
        before = Counted.made
        while not stopped:
            await turns()
            most, before = max(most, Counted.made - before), Counted.made

    working = asyncio.create_task(other_work())
    async with gateway.running():
        await until(lambda: Counted.made >= 6000)
    stopped = True
    await working
    assert 0 < most <= MOST_AT_ONCE


async def test_callers_of_other_servers_are_answered_while_one_changes_all_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(provider, "CHANGES_SECONDS", 3600)
    honest = Server("honest")
    honest.add_tool(lambda: "fine", name="fine")
    async with serving(honest) as address:
        gateway = Server("gateway")
        gateway.mount("good", address.url)
        gateway.mount("bad", [sys.executable, SCRIPT, "renames", "3000"])
        async with Client(gateway) as client:
            await until(lambda: Counted.made > 3002)  # the list that has changed is read
            for _ in range(50):
                result: Result = await client.call("good_fine")
                assert result.text == "fine"
            assert Counted.made <= 1 + 2 * 3001  # and not a list for every few calls


async def test_one_principal_has_at_most_its_share_of_the_subscriptions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(provider, "MAX_SUBSCRIPTIONS", 4)
    inner = Server("inner")
    inner.resource("notes://{day}")(lambda day: day)
    async with serving(inner) as address:
        gateway = Server("gateway")
        gateway.mount("up", address.url)
        options: dict[str, Any] = {"protocol": "2025-11-25"}
        async with (
            Client(gateway, principal=Principal("ada"), **options) as ada,
            Client(gateway, principal=Principal("bob"), **options) as bob,
        ):
            for day in ("monday", "tuesday"):
                await ada.subscribe(f"notes://{day}")
            with pytest.raises(
                RequestError, match="subscribed to 2 resources of the server 'up', which is your share"
            ):
                await ada.subscribe("notes://friday")
            await bob.subscribe("notes://friday")
            await bob.unsubscribe("notes://friday")
            await ada.unsubscribe("notes://monday")
            await ada.subscribe("notes://friday")
