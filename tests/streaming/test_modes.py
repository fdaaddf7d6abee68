"""Response modes: which are declared, offered and chosen, and the fallback."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import pytest_asyncio

from antiphon import Server
from antiphon.runtime.tasks import handlers
from tests.promises.speaking import Patient, reach
from tests.streaming.speaking import (
    ALL,
    CORE,
    FALLBACK,
    JSON_ONLY,
    RELATED,
    Listener,
    declaring,
    merged,
    reading,
    speaker,
    task_id,
    texts,
    wish,
)
from tests.streaming.tooling import LATE_SECONDS, Studio
from tests.support.http import Response
from tests.support.loop_time import LoopTime
from tests.support.serving import serving
from tests.support.speakers import DRAFT, Bare, Modern, Session, Speaker

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def kind() -> str:
    """One kind of store is enough: the choice of a mode does not depend on it."""
    return "memory"


@pytest_asyncio.fixture(loop_scope="module", params=CORE)
async def core(request: pytest.FixtureRequest, port: int) -> Speaker:
    """A client of each dialect with response modes."""
    return await speaker(request.param, port)


async def opened(port: int, *modes: str, version: str = "2025-11-25") -> Session:
    session = Session(port)
    await session.open(version, capabilities=declaring(*modes) if modes else {})
    return session


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a call that ends by itself end at once, however slow this machine is."""
    monkeypatch.setattr(handlers, "IMMEDIATE_ANSWER_SECONDS", 600.0)


def mode_of(response: Response) -> str:
    """Return the response mode of a response."""
    result = response.frames[0]["result"]
    if "partial-content" in result:
        return "streaming"
    return "task" if "task" in result else "immediate"


# Declared


@pytest.mark.parametrize("version", ["2025-11-25", DRAFT])
async def test_a_server_declares_its_modes(port: int, version: str) -> None:
    initialized = await Session(port).open(version)
    tasks = initialized.result["capabilities"]["tasks"]
    assert sorted(tasks["responses"]["modes"]) == sorted(ALL)
    assert tasks["requests"] == {"tools": {"call": {}}}


async def test_versions_without_tasks_have_no_modes(port: int) -> None:
    assert "tasks" not in (await Session(port).open("2025-06-18")).result["capabilities"]
    discovered = (await Patient(port).ask("server/discover")).result["capabilities"]
    assert "tasks" not in discovered


async def test_a_server_whose_tools_give_no_promises_declares_none() -> None:
    server = Server("none")

    @server.tool
    async def tool() -> str:
        """Gives no promises."""
        return "tool"

    async with serving(server) as address:
        assert "tasks" not in (await Session(address.port).open()).result["capabilities"]


# Chosen


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        ((), "task"),
        (("task",), "task"),
        (("immediate",), "immediate"),
        (("streaming",), "streaming"),
        (("task", "streaming"), "streaming"),
        (("task", "immediate"), "immediate"),
        (("streaming", "immediate"), "immediate"),
        (ALL, "immediate"),
        (("telepathy", "task"), "task"),
        (("telepathy", "streaming"), "streaming"),
        (("telepathy",), "task"),
    ],
)
async def test_the_first_in_the_order_immediate_streaming_task_that_was_offered_is_chosen(
    core: Speaker, offered: tuple[str, ...], chosen: str
) -> None:
    answered = await core.ask("tools/call", wish("count", *offered, n=3))
    assert mode_of(answered) == chosen
    result = answered.frames[0]["result"]
    assert (FALLBACK in result.get("_meta", {})) == (offered == ("telepathy",))
    if chosen == "immediate":
        assert [block["text"] for block in answered.result["content"]] == ["1", "2", "3"]
        assert not {"task", "partial-content", "isComplete"} & set(answered.result)
        assert RELATED not in answered.result.get("_meta", {})
    elif chosen == "streaming":
        assert texts(answered.frames) == ["1", "2", "3"]
        assert (answered.result["isComplete"], answered.result["isError"]) == (True, False)
    else:
        assert "partial-content" not in result
        whole = await merged(core, result["task"]["taskId"])
        assert [block["text"] for block in whole["content"]] == ["1", "2", "3"]


async def test_a_fallback_says_so_in_the_metadata(core: Speaker) -> None:
    result = (await core.ask("tools/call", wish("plain", "telepathy"))).result
    assert result["_meta"] == {FALLBACK: "task"}
    assert result["task"]["status"] == "working"
    result = (await core.ask("tools/call", wish("plain", "telepathy", "task"))).result
    assert "_meta" not in result


async def test_an_empty_list_is_as_good_as_none(core: Speaker) -> None:
    params = {"name": "plain", "task": {"responseModes": []}}
    result = (await core.ask("tools/call", params)).result
    assert result["task"]["status"] == "working"
    assert "_meta" not in result


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("modes", [(), ("task",), ("task", "immediate")])
@pytest.mark.parametrize("version", ["2025-11-25", DRAFT])
async def test_a_session_that_did_not_declare_streaming_gets_no_streams_whatever_a_request_says(
    port: int, modes: tuple[str, ...], version: str
) -> None:
    session = await opened(port, *modes, version=version)
    for offered in (("streaming",), ALL, ("telepathy",)):
        answered = await session.ask("tools/call", wish("count", *offered, n=3))
        assert mode_of(answered) == ("immediate" if "immediate" in modes and offered == ALL else "task")
        assert len(answered.frames) == 1
    plain = {"name": "count", "arguments": {"n": 3}}
    answered = await session.ask("tools/call", {**plain, "stream": {}})
    assert [block["text"] for block in answered.result["content"]] == ["1", "2", "3"]
    assert len(answered.frames) == 1
    id = (await session.ask("tools/call", {**plain, "task": {}})).result["task"]["taskId"]
    answered = await session.ask("tasks/result", {"taskId": id, "stream": {}})
    assert [block["text"] for block in answered.result["content"]] == ["1", "2", "3"]


async def test_a_session_of_the_draft_that_declared_them_gets_them(port: int) -> None:
    session = await opened(port, *ALL, version=DRAFT)
    answered = await session.ask("tools/call", wish("count", "streaming", n=3))
    assert mode_of(answered) == "streaming"
    assert answered.result["resultType"] == "complete"


async def test_the_extension_knows_no_modes(port: int) -> None:
    answered = await Patient(port).ask("tools/call", wish("count", *ALL, n=3))
    assert answered.result["resultType"] == "task"
    answered = await Modern(port).ask("tools/call", wish("count", *ALL, n=3))
    assert [block["text"] for block in answered.result["content"]] == ["1", "2", "3"]


# Immediate


async def test_immediate_falls_back_to_streaming_only_for_tools_that_emit(
    core: Speaker, studio: Studio
) -> None:
    async with reading(core, "tools/call", wish("gated", "immediate", "streaming", n=2)) as stream:
        first = await stream.next()
        assert first is not None
        assert first["result"]["task"]["status"] == "working"
        studio.allow(2)
        await stream.rest()
        assert texts(stream.frames) == ["1", "2"]
    answered = await core.ask("tools/call", wish("slow", "immediate", "streaming"))  # did not say so
    assert mode_of(answered) == "task"
    studio.allow(1)
    whole = await merged(core, answered.result["task"]["taskId"])
    assert [block["text"] for block in whole["content"]] == ["1", "2", "slow"]


async def test_immediate_falls_back_to_a_task_where_streaming_was_not_offered(
    core: Speaker, studio: Studio
) -> None:
    for offered in (("immediate",), ("immediate", "task")):
        answered = await core.ask("tools/call", wish("gated", *offered, n=1))
        assert mode_of(answered) == "task"
        assert FALLBACK not in answered.result.get("_meta", {})
        studio.allow(1)
        await reach(core, answered.result["task"]["taskId"], "completed")


async def test_what_was_emitted_before_the_fallback_is_in_the_stream_and_the_task(
    core: Speaker, studio: Studio
) -> None:
    studio.allow(2)
    async with reading(core, "tools/call", wish("gated", *ALL, n=3)) as stream:
        await stream.up_to(2)
        studio.allow(1)
        last = await stream.rest()
        assert texts(stream.frames) == ["1", "2", "3"]
    assert studio.ran["gated"] == 1
    whole = await merged(core, task_id(last["result"]))
    assert [block["text"] for block in whole["content"]] == ["1", "2", "3"]


@pytest.mark.parametrize(("tool", "within"), [("gated", 0.1), ("gated_or_late", LATE_SECONDS)])
async def test_how_long_at_once_is_is_said_by_the_tool_or_else_a_moment(
    core: Speaker, studio: Studio, tool: str, within: float
) -> None:
    time = LoopTime.here()
    with time.stopped():
        asking = asyncio.create_task(core.ask("tools/call", wish(tool, "immediate", n=1)))
        await time.let(lambda: studio.ran["gated"])
        time.advance(within * 0.9)
        assert (await core.call("plain")).text == "plain"  # the call would have been answered before
        assert not asking.done()
        time.advance(within * 0.2)
        answered = await asking
    assert mode_of(answered) == "task"
    studio.allow(1)
    await reach(core, answered.result["task"]["taskId"], "completed")


async def test_a_question_is_no_answer_so_immediate_makes_a_task_of_it(core: Speaker) -> None:
    result = (await core.ask("tools/call", wish("ask", "immediate"))).result
    assert "inputRequests" not in result
    await reach(core, result["task"]["taskId"], "input_required")


# What decides besides


@pytest.mark.usefixtures("patient")
async def test_a_caller_that_takes_no_event_stream_gets_no_stream(core: Speaker) -> None:
    answered = await core.ask("tools/call", wish("count", "streaming", n=3), headers=JSON_ONLY)
    assert (answered.is_stream, mode_of(answered)) == (False, "task")
    assert answered.result["_meta"] == {FALLBACK: "task"}
    answered = await core.ask("tools/call", wish("count", "streaming", "task", n=3), headers=JSON_ONLY)
    assert mode_of(answered) == "task"
    assert "_meta" not in answered.result
    answered = await core.ask("tools/call", wish("count", *ALL, n=3), headers=JSON_ONLY)
    assert mode_of(answered) == "immediate"
    plain = {"name": "count", "arguments": {"n": 3}, "stream": {}}
    answered = await core.ask("tools/call", plain, headers=JSON_ONLY)
    assert answered.is_stream is False
    assert [block["text"] for block in answered.result["content"]] == ["1", "2", "3"]


async def test_a_stream_is_one_of_a_task_exactly_where_a_task_was_wished_for(core: Speaker) -> None:
    before = len((await core.ask("tasks/list")).result["tasks"])
    plain = {"name": "count", "arguments": {"n": 3}, "stream": {}}
    without = await core.ask("tools/call", plain)
    assert texts(without.frames) == ["1", "2", "3"]
    assert all("task" not in frame["result"] for frame in without.frames)
    assert all(RELATED not in frame["result"].get("_meta", {}) for frame in without.frames)
    assert len((await core.ask("tasks/list")).result["tasks"]) == before
    within = await core.ask("tools/call", {**plain, "task": {}})
    assert texts(within.frames) == ["1", "2", "3"]
    assert len((await core.ask("tasks/list")).result["tasks"]) == before + 1


async def test_the_modes_of_a_request_that_also_says_stream_are_what_counts(
    core: Speaker, studio: Studio
) -> None:
    """Otherwise segments from before there was a task would be sent twice."""
    studio.allow(2)
    params = {**wish("gated", *ALL, n=3), "stream": {}}
    async with reading(core, "tools/call", params) as stream:
        assert RELATED in (await stream.up_to(2))["result"]["_meta"]
        studio.allow(1)
        await stream.rest()
        assert texts(stream.frames) == ["1", "2", "3"]


@pytest.mark.usefixtures("patient")
async def test_the_modes_of_a_quick_request_that_also_says_stream_are_what_counts(core: Speaker) -> None:
    answered = await core.ask("tools/call", {**wish("count", "immediate", n=2), "stream": {}})
    assert [block["text"] for block in answered.result["content"]] == ["1", "2"]
    assert mode_of(await core.ask("tools/call", {**wish("count", "task", n=2), "stream": {}})) == "task"


async def test_a_tool_that_gives_no_promises_is_refused_in_every_mode(core: Speaker) -> None:
    for offered in ((), ("immediate",), ("streaming",), ALL):
        refused = await core.ask("tools/call", wish("gated_forbidden", *offered, n=0))
        assert refused.error["code"] == -32601
    plain = {"name": "gated_forbidden", "arguments": {"n": 0}, "stream": {}}
    assert (await core.ask("tools/call", plain)).result["isComplete"] is True


@pytest.mark.usefixtures("patient")
async def test_a_tool_that_only_gives_promises_gives_them_in_every_mode(core: Speaker) -> None:
    plain = {"name": "gated_required", "arguments": {"n": 0}}
    for params in (plain, {**plain, "stream": {}}):
        assert (await core.ask("tools/call", params)).error["code"] == -32601
    for offered, chosen in (((), "task"), (("streaming",), "streaming"), (ALL, "immediate")):
        answered = await core.ask("tools/call", wish("gated_required", *offered, n=0))
        assert mode_of(answered) == chosen


async def test_a_tool_that_emits_nothing_streams_its_one_block(core: Speaker) -> None:
    answered = await core.ask("tools/call", wish("plain", "streaming"))
    assert texts(answered.frames) == ["plain"]
    assert answered.result["isComplete"] is True


@pytest.mark.parametrize("modes", ["streaming", [1], [["streaming"]], {"streaming": True}, 7])
async def test_modes_that_are_no_list_of_words_are_refused(core: Speaker, modes: Any) -> None:
    refused = await core.ask("tools/call", {"name": "plain", "task": {"responseModes": modes}})
    assert refused.error["code"] == -32602


@pytest.mark.parametrize("wanted", [7, "yes", [], True])
async def test_a_wish_to_stream_that_is_no_object_is_refused(core: Speaker, wanted: Any) -> None:
    refused = await core.ask("tools/call", {"name": "plain", "stream": wanted})
    assert refused.error["code"] == -32602
    refused = await core.ask("tasks/result", {"taskId": "nobody", "stream": wanted})
    assert refused.error["code"] == -32602


async def test_an_id_may_be_zero_or_empty(port: int) -> None:
    for id in (0, ""):
        answered = await Bare(port).ask("tools/call", wish("count", "streaming", n=300), id=id)
        assert {frame["id"] for frame in answered.frames} == {id}
        assert len(texts(answered.frames)) == 300
    notified = await Listener(port).ask("tools/call", {"name": "count", "arguments": {"n": 2}}, id="")
    assert notified.frame["id"] == ""
