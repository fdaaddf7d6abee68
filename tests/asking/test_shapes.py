"""The drafts whose questions have no keys, message by message: what the server writes and takes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from antiphon.errors import InvalidParams
from antiphon.model.question import Elicit, ListRoots, Sample, place_answers
from antiphon.runtime.carriers import client as client_carrier
from tests.asking.shapes import (
    CONTENT_001,
    INFO_000,
    MESSAGES,
    MESSAGES_000,
    MESSAGES_001,
    QUESTION,
    RELATED,
    SHAPES,
    STATE,
    Frame,
    Raw,
    last,
    raw,
)

USERNAME = {
    "mode": "form",
    "message": "Please provide your GitHub username",
    "requestedSchema": {
        "type": "object",
        "properties": {"name": {"type": "string"}},
        "required": ["name"],
    },
}
LINE = {"role": "assistant", "content": {"type": "text", "text": "a line"}, "model": "tests"}
STATEFUL = {STATE: None}


@pytest.fixture(params=["http", "stdio"])
def channel(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=SHAPES)
async def either(request: pytest.FixtureRequest, channel: str) -> AsyncIterator[Raw]:
    """A client of each version, over HTTP and over stdio."""
    async with raw(channel, request.param) as found:
        yield found


@pytest.fixture(params=SHAPES)
async def client(request: pytest.FixtureRequest) -> AsyncIterator[Raw]:
    """A client of each version, over HTTP."""
    async with raw("http", request.param) as found:
        yield found


def asked(frame: Frame) -> list[tuple[str, dict[str, Any]]]:
    """Return the questions in a message, in the order of the message, as methods and params."""
    if "method" in frame:
        return [(frame["method"], frame["params"])]
    result = frame["result"]
    if "AdditionalInfoRequested" in result:
        lists = result["AdditionalInfoRequested"]
        return [
            (method, each["params"])
            for name, method in (
                ("elicitation", "elicitation/create"),
                ("sampling", "sampling/createMessage"),
            )
            for each in lists.get(name, [])
        ]
    methods = {"elicitation": "elicitation/create", "sampling": "sampling/createMessage"}
    return [
        (methods[block["type"]], {name: value for name, value in block.items() if name != "type"})
        for block in result.get("content", [])
        if block["type"] in methods
    ]


def reply(client: Raw, *answers: Any, state: str | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what a call with answers has beside its params, and in them."""
    if client.version == CONTENT_001:
        return {}, {"inputResponses": list(answers), **({} if state is None else {"requestState": state})}
    models = [answer for answer in answers if "role" in answer]
    persons = [answer for answer in answers if "role" not in answer]
    beside = {name: given for name, given in (("elicitation", persons), ("sampling", models)) if given}
    if client.version in MESSAGES:
        beside = {name: given[0] if len(given) == 1 else given for name, given in beside.items()}
    return beside, {"meta": {STATE: state}}


async def again(client: Raw, tool: str, *answers: Any, state: str | None = None, **params: Any) -> Frame:
    beside, within = reply(client, *answers, state=state)
    return await last(client, tool, beside, **within, **params)


def state_of(frame: Frame) -> str | None:
    found = frame.get("_meta", {}).get(STATE) or frame.get("result", {}).get("requestState")
    found = found or frame.get("result", {}).get("_meta", {}).get(STATE)
    assert found is None or isinstance(found, str)
    return found


def text(frame: Frame) -> str:
    assert "result" in frame, frame
    return "\n".join(block["text"] for block in frame["result"].get("content", []))


def field(name: str, value: Any) -> dict[str, Any]:
    return {"name": name, "value": value}


def form(**content: Any) -> dict[str, Any]:
    return {"action": "accept", "content": content}


PRINTED: dict[str, Frame] = {
    MESSAGES_000: {"method": "elicitation/create", "params": USERNAME},
    MESSAGES_001: {"method": "elicitation/create", "params": USERNAME},
    INFO_000: {
        "result": {"AdditionalInfoRequested": {"elicitation": [{"params": USERNAME}]}, "isError": False}
    },
    CONTENT_001: {"result": {"content": [{"type": "elicitation", **USERNAME}], "isError": False}},
}


async def test_a_call_is_answered_by_its_question_and_by_nothing_else(client: Raw) -> None:
    frame = await last(client, "greet")
    assert frame == {"jsonrpc": "2.0", "id": 7, **PRINTED[client.version]}


async def test_the_call_is_made_again_with_the_answer(either: Raw) -> None:
    await last(either, "greet")
    assert text(await again(either, "greet", form(name="octocat"))) == "Hello octocat"


async def test_a_process_of_its_own_takes_the_answer_over_its_standard_streams() -> None:
    async with raw("process", MESSAGES_001) as client:
        await last(client, "greet")
        assert text(await again(client, "greet", form(name="octocat"))) == "Hello octocat"


@pytest.mark.parametrize("version", [MESSAGES_000, INFO_000, MESSAGES_001])
async def test_a_field_answers_as_the_draft_prints_it(version: str) -> None:
    async with raw("http", version) as client:
        frame = await again(client, "greet", field("name", "octocat"))
        assert frame["result"] == {"content": [{"type": "text", "text": "Hello octocat"}], "isError": False}


async def test_a_person_declines(client: Raw) -> None:
    frame = await again(client, "refuse", {"action": "decline"})
    assert frame["result"]["isError"] is True
    assert "declined" in text(frame)


async def test_a_model_is_asked_and_answers(client: Raw) -> None:
    ((method, params),) = asked(await last(client, "write"))
    assert method == "sampling/createMessage"
    assert params["maxTokens"] == 20
    assert text(await again(client, "write", LINE)) == "Wrote: a line"


async def test_several_questions_are_asked_at_once_where_the_draft_has_lists(client: Raw) -> None:
    frame = await last(client, "both", meta=STATEFUL)
    given = {"Who?": form(name="ada"), "Where?": form(city="Oslo", street="Main"), None: LINE}
    rounds = 0
    while asks(frame):
        rounds += 1
        answers = [given[params.get("message")] for _, params in asked(frame)]
        frame = await again(client, "both", *answers, state=state_of(frame))
    assert text(frame) == "ada: a line in Oslo, Main"
    assert rounds == (3 if client.version in MESSAGES else 1)


def asks(frame: Frame) -> bool:
    assert "error" not in frame, frame
    return len(asked(frame)) > 0


async def test_an_answer_may_be_missing_from_a_list_of_answers() -> None:
    async with raw("http", CONTENT_001) as client:
        asked_first = [params.get("message") for _, params in asked(await last(client, "both"))]
        given = {"Who?": form(name="ada"), None: LINE, "Where?": form(city="Oslo", street="Main")}
        frame = await again(client, "both", None, *[given[each] for each in asked_first[1:]])
        ((_, params),) = asked(frame)
        assert params.get("message") == asked_first[0]
        frame = await again(client, "both", given[asked_first[0]], state=state_of(frame))
        assert text(frame) == "ada: a line in Oslo, Main"


async def test_a_second_question_comes_with_the_state_of_the_first(either: Raw) -> None:
    frame = await again(either, "twice", form(name="ada"), state=state_of(await last(either, "twice")))
    ((_, params),) = asked(frame)
    assert params["message"] == "The second?"
    assert state_of(frame)
    assert text(await again(either, "twice", form(name="bob"), state=state_of(frame))) == "ada and bob"


@pytest.mark.parametrize("version", [MESSAGES_000, INFO_000, MESSAGES_001])
@pytest.mark.parametrize("channel", ["http", "session", "stdio"])
async def test_a_caller_that_returns_no_state_learns_what_to_do(channel: str, version: str) -> None:
    async with raw(channel, version) as client:
        for frame in (
            await last(client, "twice", reply(client, form(name="ada"))[0]),
            await last(client, "charge", arguments={"amount": 5}),
            await last(client, "held"),
        ):
            assert frame["error"]["code"] == -32600
            assert STATE in frame["error"]["message"]
            assert "as a task" in frame["error"]["message"]


async def test_a_step_before_the_question_is_done_once(client: Raw) -> None:
    frame = await last(client, "charge", arguments={"amount": 5}, meta=STATEFUL)
    frame = await again(client, "charge", form(name="ada"), state=state_of(frame), arguments={"amount": 5})
    assert text(frame) == "charged 5 for ada, charged 1 times"


async def test_a_function_that_is_held_goes_on_with_the_answer(client: Raw) -> None:
    frame = await last(client, "held", meta=STATEFUL)
    assert text(await again(client, "held", form(name="ada"), state=state_of(frame))) == "Held ada"


async def test_segments_come_before_the_question_and_are_not_sent_again(either: Raw) -> None:
    params = {"name": "tell", "arguments": {}, "_meta": STATEFUL}
    first, question = await either.frames("tools/call", params, stream={})
    assert [block["text"] for block in first["result"]["partial-content"]] == ["one"]
    assert first["result"]["isComplete"] is False
    ((_, form_params),) = asked(question)
    assert form_params["message"] == "Who?"
    beside, within = reply(either, form(name="ada"), state=state_of(question))
    meta = within.pop("meta", {})
    *_, end = frames = await either.frames(
        "tools/call", {**params, "_meta": meta, **within}, stream={}, **beside
    )
    sent = [block["text"] for frame in frames for block in frame["result"].get("partial-content", [])]
    assert sent == ["ada"]
    assert end["result"]["isComplete"] is True


async def test_what_the_draft_cannot_ask_is_refused_with_the_remedy(client: Raw) -> None:
    frame = await last(client, "roots")
    assert frame["error"]["code"] == -32600
    assert "root folders" in frame["error"]["message"]
    assert "2026-07-28" in frame["error"]["message"]


async def test_a_failure_and_a_protocol_error_are_as_in_other_versions(client: Raw) -> None:
    frame = await last(client, "fail")
    assert frame["result"] == {"content": [{"type": "text", "text": "It is broken"}], "isError": True}
    assert (await last(client, "nothing"))["error"]["code"] == -32602


@pytest.mark.parametrize(
    ("version", "beside", "params"),
    [
        (MESSAGES_000, {"elicitation": "octocat"}, {}),
        (MESSAGES_000, {"sampling": [None]}, {}),
        (INFO_000, {"elicitation": [["name", "octocat"]]}, {}),
        (MESSAGES_001, {}, {"_meta": {STATE: 5}}),
        (CONTENT_001, {}, {"inputResponses": {"name": "octocat"}}),
        (CONTENT_001, {}, {"inputResponses": ["octocat"]}),
    ],
)
async def test_answers_of_another_form_are_refused(
    version: str, beside: dict[str, Any], params: dict[str, Any]
) -> None:
    async with raw("http", version) as client:
        (frame,) = await client.frames("tools/call", {"name": "greet", "arguments": {}, **params}, **beside)
        assert frame["error"]["code"] == -32602


async def test_an_answer_to_no_question_is_refused_and_says_what_is_open(client: Raw) -> None:
    frame = await again(client, "greet", LINE)
    assert frame["error"]["code"] == -32602
    assert "please_provide_your_github_username" in frame["error"]["message"]


# Tasks


async def submit(client: Raw, tool: str) -> str:
    frame = await last(client, tool, task={"ttl": 60000})
    return str(frame["result"]["task"]["taskId"])


async def redeem(client: Raw, id: str, **params: Any) -> Frame:
    return (await client.frames("tasks/result", {"taskId": id, **params}))[-1]


def related(id: str) -> dict[str, Any]:
    return {RELATED: {"taskId": id}}


async def test_a_task_asks_in_its_result_and_names_itself(client: Raw) -> None:
    id = await submit(client, "greet")
    frame = await redeem(client, id)
    ((method, params),) = asked(frame)
    assert method == "elicitation/create"
    meta = frame.get("_meta") or frame["result"]["_meta"]
    assert meta[RELATED] == {"taskId": id}
    key = meta.get(QUESTION) or params.pop("_meta")[QUESTION]
    assert key.startswith("please_provide_your_github_username")
    assert params == USERNAME


@pytest.mark.parametrize("place", ["beside", "within"])
async def test_a_posted_response_answers_the_task_that_it_names(either: Raw, place: str) -> None:
    id = await submit(either, "greet")
    await redeem(either, id)
    if place == "beside":
        assert await either.post(form(name="octocat"), _meta=related(id)) is None
    else:
        assert await either.post({**form(name="octocat"), "_meta": related(id)}) is None
    frame = await redeem(either, id)
    assert text(frame) == "Hello octocat"
    assert frame["result"]["_meta"][RELATED] == {"taskId": id}


async def test_responses_without_keys_answer_in_the_order_of_the_questions(client: Raw) -> None:
    id = await submit(client, "both")
    given = {"Who?": form(name="ada"), "Where?": form(city="Oslo", street="Main"), None: LINE}
    while asks(frame := await redeem(client, id)):
        for _, params in asked(frame):
            assert await client.post(given[params.get("message")], _meta=related(id)) is None
    assert text(frame) == "ada: a line in Oslo, Main"


async def test_a_response_with_a_key_may_be_repeated_and_not_changed(either: Raw) -> None:
    id = await submit(either, "twice")
    frame = await redeem(either, id)
    key = (frame.get("_meta") or {}).get(QUESTION) or asked(frame)[0][1]["_meta"][QUESTION]
    meta = {**related(id), QUESTION: key}
    for _ in range(2):
        assert await either.post(form(name="ada"), _meta=meta) is None
    refusal = await either.post(form(name="eve"), _meta=meta)
    assert refusal is not None
    assert "another answer" in refusal["error"]["message"]
    await redeem(either, id)
    assert await either.post(form(name="bob"), _meta=related(id)) is None
    assert text(await redeem(either, id)) == "ada and bob"


async def test_a_response_that_fits_no_question_of_the_task_is_refused(client: Raw) -> None:
    id = await submit(client, "greet")
    await redeem(client, id)
    refusal = await client.post(LINE, _meta=related(id))
    assert refusal is not None
    assert refusal["error"]["code"] == -32602
    assert "id" not in refusal
    assert await client.post(form(name="ada"), _meta=related("no-such-task")) is not None


async def test_a_response_to_a_task_that_asks_nothing_is_refused(client: Raw) -> None:
    id = await submit(client, "fail")
    await redeem(client, id)
    refusal = await client.post(form(name="ada"), _meta=related(id))
    assert refusal is not None
    assert refusal["error"]["message"].startswith(f"The task {id} asks nothing now.")


@pytest.mark.parametrize("version", ["2025-11-25", "DRAFT-2026-v1"])
async def test_where_answers_have_keys_a_response_names_one_of_several_questions(version: str) -> None:
    async with raw("http", version) as client:
        id = await submit(client, "both")
        while (await client.frames("tasks/get", {"taskId": id}))[-1]["result"]["status"] == "working":
            pass
        refusal = await client.post(form(name="ada"), _meta=related(id))
        assert refusal is not None
        assert 'as "dev.antiphon/question" in _meta: ' in refusal["error"]["message"]
        assert "'who_" in refusal["error"]["message"]


async def test_segments_that_the_caller_lacks_come_before_the_question(client: Raw) -> None:
    id = await submit(client, "tell")
    await redeem(client, id)  # waits until the task asks
    (page,) = await client.frames("tasks/result", {"taskId": id, "lastSeqNr": 0 + 1})
    assert asked(page)
    *parts, question = await client.frames("tasks/result", {"taskId": id}, stream={})
    blocks = [block for part in parts for block in part["result"]["partial-content"]]
    assert [(block["seqNr"], block["text"]) for block in blocks] == [(1, "one")]
    assert asked(question)[0][1]["message"] == "Who?"
    assert await client.post(form(name="ada"), _meta=related(id)) is None
    frames = await client.frames("tasks/result", {"taskId": id}, stream={})
    blocks = [block for part in frames for block in part["result"].get("partial-content", [])]
    assert [block["text"] for block in blocks] == ["one", "ada"]


async def test_the_status_of_a_task_says_that_it_waits(client: Raw) -> None:
    id = await submit(client, "greet")
    await redeem(client, id)
    (frame,) = await client.frames("tasks/get", {"taskId": id})
    assert frame["result"]["status"] == "input_required"


# Placing answers


A, B = (
    Elicit("a", {"type": "object", "properties": {"x": {}, "y": {}}}),
    Elicit("b", {"type": "object", "properties": {"x": {}}}),
)
MODEL = Sample({})


@pytest.mark.parametrize(
    ("answers", "placed"),
    [
        ([], {}),
        ([field("x", 1), field("y", 2), field("x", 3)], {"a": form(x=1, y=2), "b": form(x=3)}),
        ([field("x", 1), field("x", 3)], {"a": form(x=1), "b": form(x=3)}),
        ([{"action": "decline"}, field("x", 3)], {"a": {"action": "decline"}, "b": form(x=3)}),
        ([None, form(x=3)], {"b": form(x=3)}),
        ([LINE, form(x=1)], {"a": form(x=1), "m": LINE}),
        ([None, None, None], {}),
    ],
)
def test_answers_are_placed_in_the_order_of_the_questions(answers: Any, placed: dict[str, Any]) -> None:
    assert place_answers({"a": A, "b": B, "m": MODEL}, answers) == placed


def test_root_folders_which_no_draft_asks_for_have_no_place_in_the_order() -> None:
    assert place_answers({"r": ListRoots(), "a": A, "b": B}, [None, form(x=1)]) == {"b": form(x=1)}


@pytest.mark.parametrize(
    "answer", [field("z", 1), {"name": ["x"], "value": 1}, {"action": "maybe"}, LINE, {"name": "x"}, 5, "x"]
)
def test_an_answer_that_fits_nothing_is_named(answer: Any) -> None:
    with pytest.raises(InvalidParams, match="fits none of the open questions: 'a', 'b'"):
        place_answers({"a": A, "b": B}, [answer])


def test_the_error_about_the_state_names_the_key_of_the_wire() -> None:
    from antiphon.wire.server.draft_000_messages import STATE as written

    assert json.dumps(written) in client_carrier.STATELESS
