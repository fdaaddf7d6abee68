"""Which functions can be steps, and how their results are read back."""

from __future__ import annotations

import functools
from datetime import date
from typing import Any

import pytest

from antiphon import Context, DefinitionError, Server
from antiphon.runtime.authoring import step as steps
from antiphon.runtime.execution.executor import ThreadExecutor
from tests.support.memory import in_memory


async def day(number: int, month: int = 1) -> date:
    return date(2026, month, number)


async def unknown(number: int) -> Nowhere:  # type: ignore[name-defined]  # noqa: F821
    return number


async def test_a_partial_is_a_step_under_the_name_of_its_function() -> None:
    step = steps.of(functools.partial(functools.partial(day, month=2), 3))
    value = await step.work(ThreadExecutor(1), (), {})()
    assert (step.name, value) == ("day", date(2026, 2, 3))
    assert step.dump(value) == "2026-02-03"
    assert step.load("2026-02-03") == value


async def label(number: int) -> str:
    return f"label {number}"


async def total(number: int) -> int:
    return number


def test_a_result_that_json_has_as_it_is_is_returned_unchanged() -> None:
    assert steps.of(label).load(steps.of(label).dump("three")) == "three"
    assert steps.of(total).load(steps.of(total).dump(2**70)) == 2**70


def test_a_recorded_result_of_another_type_is_still_validated() -> None:
    assert steps.of(total).load(3.0) == 3
    with pytest.raises(ValueError, match="valid integer"):
        steps.of(total).load("three")


def test_a_text_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(DefinitionError, match="cannot be written as JSON"):
        steps.of(label).dump("\udc80")


def test_the_result_of_a_step_with_an_unresolvable_annotation_is_returned_as_json() -> None:
    step = steps.of(unknown)
    assert step.load(step.dump({"a": 1})) == {"a": 1}


@pytest.mark.parametrize("given", ["called", 7])
async def test_a_step_takes_a_function_and_not_its_result(given: Any) -> None:
    server = Server("tests")

    @server.tool
    async def tool(ctx: Context) -> str:
        with pytest.raises(DefinitionError, match="ctx.step takes a function"):
            await ctx.step(day(1) if given == "called" else given)  # type: ignore[arg-type]
        return "told so"

    async with in_memory(server) as client:
        assert await client.text("tool") == "told so"
