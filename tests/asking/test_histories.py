"""Histories of tasks, as `antiphon tasks export` writes them, replayed against new code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from antiphon import Context, NotFound, Server
from antiphon.errors import ReplayMismatch
from antiphon.testing import ReplayedHistory, replay_history
from tests.asking.histories import HERE, charge, reserve, server

FINISHED, WAITING = HERE / "finished.json", HERE / "waiting.json"


def never(*args: Any) -> str:
    raise AssertionError("a replay runs no step")


def ship(address: str) -> str:
    return never(address)


def version(function: Any) -> Server:
    """A new version of the shop."""
    changed = Server("shop")
    changed.add_tool(function, name="order", task="required")
    return changed


async def test_the_version_that_recorded_a_history_replays_it() -> None:
    finished = await replay_history(server, FINISHED)
    assert finished == ReplayedHistory(
        None,
        "reserved 2 of tea, charged 5, sent to Oslo in 2026",
        [],
    )


async def test_a_history_that_waits_is_replayed_up_to_its_question() -> None:
    assert await replay_history(server, str(WAITING)) == ReplayedHistory("ask:address", None, [])


async def test_a_history_may_be_passed_as_its_content() -> None:
    content = json.loads(WAITING.read_text())
    assert (await replay_history(server, content)).next == "ask:address"


async def test_a_step_that_the_history_does_not_have_ends_the_replay_and_does_not_run() -> None:
    async def order(item: str, ctx: Context) -> str:
        count = await ctx.elicit("How many, please?", int, key="count")
        await ctx.step(reserve, item, count)
        address = await ctx.elicit("Where to?", str, key="address")
        await ctx.step(charge, 2.5 * count)
        return await ctx.step(ship, address)

    assert await replay_history(version(order), FINISHED) == ReplayedHistory("step:ship", None, [])


async def test_a_renamed_step_is_a_mismatch() -> None:
    async def order(item: str, ctx: Context) -> str:
        count = await ctx.elicit("How many?", int, key="count")
        return await ctx.step(ship, f"{count} {item}")

    for history in (FINISHED, WAITING):
        with pytest.raises(ReplayMismatch, match="the step 'ship', where the journal has the step 'reserve'"):
            await replay_history(version(order), history)


async def test_another_argument_is_a_mismatch() -> None:
    def order(item: str, ctx: Context) -> str:
        count = ctx.wait(ctx.elicit("How many?", int, key="count"))
        return ctx.wait(ctx.step(reserve, item, count + 1))

    with pytest.raises(ReplayMismatch, match="'reserve' with other arguments"):
        await replay_history(version(order), FINISHED)


async def test_entries_that_are_not_used_are_reported_and_failures_are_outcomes() -> None:
    async def order(item: str, ctx: Context) -> str:
        await ctx.elicit("How many?", int, key="count")
        raise ValueError("sold out")

    replayed = await replay_history(version(order), FINISHED)
    assert (replayed.next, str(replayed.outcome)) == (None, "sold out")
    assert replayed.unused == ["step:reserve", "ask:address", "step:charge"]


async def test_a_history_needs_its_tool_and_its_format(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="order"):
        await replay_history(Server("empty"), FINISHED)
    with pytest.raises(ValueError, match="antiphon tasks export"):
        await replay_history(server, {"log": []})
    with pytest.raises(ValueError, match="no entries"):
        await replay_history(server, {"format": 1, "log": []})


async def test_arguments_that_do_not_fit_the_new_version_are_a_mismatch() -> None:
    async def order(item: str, colour: str, ctx: Context) -> str:
        return never(item, colour)

    with pytest.raises(ReplayMismatch, match=r"do not fit the tool 'order': .*colour.* a default"):
        await replay_history(version(order), FINISHED)
