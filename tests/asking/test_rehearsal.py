"""`antiphon.testing`: helpers for authors who test their own tools."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from pydantic import BaseModel

from antiphon import Context, Failure, Result, Server
from antiphon.errors import MissingCapability
from antiphon.model.notification import Log, Progress
from antiphon.testing import AskedQuestion, check_replay, rehearse


class Resolution(BaseModel):
    resolution: str


done: list[str] = []


@pytest.fixture(autouse=True)
def forget() -> None:
    done.clear()


def update(item: int, how: str) -> str:
    done.append(f"{item} {how}")
    return how


async def resolve_bug(item: int, ctx: Context) -> str:
    how = await ctx.elicit("How?", Resolution, key="resolution")
    await ctx.step(update, item, how.resolution)
    if how.resolution == "Duplicate":
        original = await ctx.elicit("Of which?", int, key="original")
        return f"#{item} is a duplicate of #{original}"
    return f"#{item} {how.resolution} {ctx.random()}"


def in_a_thread(ctx: Context) -> str:
    name = ctx.wait(ctx.elicit("Name?", str, key="name"))
    return f"{name} {ctx.wait(ctx.step(update, 1, name))}"


async def asks_by_chance(ctx: Context) -> str:
    await ctx.elicit("?", int, key=f"key_{random.random()}")
    return "done"


async def returns_by_chance(ctx: Context) -> str:
    await ctx.elicit("?", int, key="number")
    return str(random.random())


async def asks_less_the_second_time(ctx: Context) -> str:
    done.append("run")
    if len(done) == 1:
        await ctx.step(update, 1, "only in the first run")
    return "done"


async def test_a_tool_is_rehearsed_through_its_rounds() -> None:
    answers = {"resolution": {"resolution": "Duplicate"}, "original": 3}
    rehearsal = await rehearse(resolve_bug, arguments={"item": 7}, answers=answers)
    assert rehearsal.result is not None
    assert rehearsal.result.text == "#7 is a duplicate of #3"
    assert [(question.key, question.message) for question in rehearsal.questions] == [
        ("resolution", "How?"),
        ("original", "Of which?"),
    ]
    assert (rehearsal.rounds, done) == (3, ["7 Duplicate"])


async def test_a_tool_of_a_server_is_rehearsed_by_name() -> None:
    server = Server("bugs")
    server.add_tool(resolve_bug)
    rehearsal = await rehearse(
        server, "resolve_bug", {"item": 7}, answers={"resolution": Resolution(resolution="Fixed")}
    )
    assert rehearsal.result is not None
    assert rehearsal.result.text.startswith("#7 Fixed")
    with pytest.raises(TypeError, match="Pass the name of the tool"):
        await rehearse(server)


async def test_without_an_answer_the_question_stays_open() -> None:
    rehearsal = await rehearse(resolve_bug, arguments={"item": 7})
    assert rehearsal.result is None
    assert [question.key for question in rehearsal.open] == ["resolution"]


async def test_a_function_can_answer() -> None:
    def answer(question: AskedQuestion) -> Any:
        return "decline" if question.key == "resolution" else None

    rehearsal = await rehearse(resolve_bug, arguments={"item": 7}, answers=answer)
    assert rehearsal.result is not None
    assert rehearsal.result.is_error


async def test_models_and_roots_are_answered_too_and_progress_is_seen() -> None:
    async def tour(ctx: Context) -> str:
        await ctx.progress(1, 2)
        said, roots = await asyncio.gather(ctx.sample("?", key="said"), ctx.roots(key="roots"))
        await ctx.elicit("Go", url="https://example.com", key="go")
        return f"{said.text} {[root.uri for root in roots]}"

    answers = {"said": "hello", "roots": ["file:///a"], "go": True}
    rehearsal = await rehearse(tour, answers=answers)
    assert rehearsal.result is not None
    assert rehearsal.result.text == "hello ['file:///a']"
    assert isinstance(rehearsal.notifications[0], Progress)


async def test_an_answer_may_be_written_as_on_the_wire() -> None:
    async def count(ctx: Context) -> int:
        return await ctx.elicit("How many?", int, key="count")

    answer = {"action": "accept", "content": {"value": 3}}
    rehearsal = await rehearse(count, answers={"count": answer})
    assert rehearsal.result is not None
    assert rehearsal.result.text == "3"


async def test_what_a_tool_emits_is_in_its_result_and_no_notification() -> None:
    async def tell(ctx: Context) -> str:
        await ctx.emit("One.")
        await ctx.info("halfway")
        return "Two."

    rehearsal = await rehearse(tell)
    assert rehearsal.result is not None
    assert rehearsal.result.text == "One.\nTwo."
    assert [type(said) for said in rehearsal.notifications] == [Log]


async def test_what_the_client_cannot_do_is_refused() -> None:
    with pytest.raises(MissingCapability):
        await rehearse(resolve_bug, arguments={"item": 7}, capabilities={})


async def test_a_tool_that_never_stops_asking_is_stopped() -> None:
    async def curious(ctx: Context) -> str:
        number = 0
        while True:
            await ctx.elicit("More?", int, key=f"more_{number}")
            number += 1

    with pytest.raises(AssertionError, match="still asks"):
        await rehearse(curious, answers=lambda question: 1)


@pytest.mark.parametrize("tool", [resolve_bug, in_a_thread])
async def test_a_sound_tool_replays_everywhere_and_does_its_steps_once(tool: Any) -> None:
    answers = {"resolution": {"resolution": "Duplicate"}, "original": 3, "name": "Ada"}
    arguments = {"item": 7} if tool is resolve_bug else None
    assert await check_replay(tool, arguments=arguments, answers=answers) == []
    assert len(done) == 1


async def test_progress_is_nothing_that_a_replay_has_to_repeat() -> None:
    async def asks_and_reports(ctx: Context) -> str:
        name = await ctx.elicit("Name?", str, key="name")
        await ctx.progress(1, 1)
        return name

    assert await check_replay(asks_and_reports, answers={"name": "Ada"}) == []


async def test_a_question_left_to_chance_is_found() -> None:
    found = await check_replay(asks_by_chance, answers=lambda question: 1)
    assert len(found) == 2
    assert "at the start: the replay continued with 'ask:key_" in found[0]


async def test_a_result_left_to_chance_is_found() -> None:
    found = await check_replay(returns_by_chance, answers={"number": 1})
    assert len(found) == 1
    assert found[0].startswith("at the end: the replay returned")


async def test_a_run_that_does_less_is_found() -> None:
    found = await check_replay(asks_less_the_second_time)
    assert found == ["at the start: the replay ended, but the first run continued with 'step:update'."]


async def test_data_left_to_chance_is_found_beside_the_same_text() -> None:
    async def told(by_chance: bool) -> Result:
        done.append("run")
        return Result("Always.", data={"run": len(done) if by_chance else 0})

    assert await check_replay(told, arguments={"by_chance": False}) == []
    done.clear()
    (found,) = await check_replay(told, arguments={"by_chance": True})
    assert found.startswith("at the end: the replay returned Result(")
    assert "data={'run': 2}), but the first run Result(" in found
    assert found.endswith("data={'run': 1}).")


async def test_an_error_left_to_chance_is_found() -> None:
    async def fails() -> str:
        done.append("run")
        raise Failure(f"failed in run {len(done)}")

    assert await check_replay(fails) == [
        "at the end: the replay returned Failure: failed in run 2, "
        "but the first run Failure: failed in run 1."
    ]


async def test_a_question_without_an_answer_is_the_fault_of_the_test() -> None:
    with pytest.raises(AssertionError, match="'in_a_thread' asks the question 'name': add its answer"):
        await check_replay(in_a_thread, answers={"resolution": "Fixed"})
    with pytest.raises(AssertionError, match="'resolve_bug' asks the question 'resolution'"):
        await check_replay(resolve_bug, arguments={"item": 7})


async def test_replays_end_in_task_groups_too() -> None:
    server = Server("groups")

    @server.tool
    async def several(ctx: Context) -> int:
        async with asyncio.TaskGroup() as group:
            steps = [group.create_task(ctx.step(abs, number)) for number in (1, 2)]
            asked = group.create_task(ctx.elicit("Which?", int, key="which"))
        return sum(step.result() for step in steps) + asked.result()

    assert await check_replay(server, "several", answers={"which": 3}) == []
    with pytest.raises(AssertionError, match="'which'"):
        await check_replay(server, "several")
