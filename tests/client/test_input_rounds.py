"""Questions that come as a result: in every version they are answered, or they are an error."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.client import Client, Elicitation
from antiphon.errors import BadAnswer
from tests.client.channels import DONE, LEGACY, Line, refusal
from tests.client.fakes import MODERN

OLDEST, DRAFT = "2024-11-05", "DRAFT-2026-v1"
QUESTION = {
    "method": "elicitation/create",
    "params": {
        "message": "Who?",
        "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}},
    },
}
ASKING = {"resultType": "input_required", "inputRequests": {"who": QUESTION}, "requestState": "sealed"}
TASKS = {"requests": {"tools": {"call": {}}}}
MODERN_TASKS = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
ANSWERS: dict[str, Any] = {
    "tools/call": DONE["result"],
    "prompts/get": {"messages": []},
    "resources/read": {"contents": []},
}


async def ada(question: Elicitation) -> dict[str, str]:
    assert question.message == "Who?"
    return {"name": "Ada"}


async def asks_first(line: Line, asked: dict[str, Any]) -> dict[str, Any]:
    answered = "inputResponses" in asked["params"]
    return {"result": ANSWERS[asked["method"]] if answered else ASKING}


@pytest.mark.parametrize("version", [LEGACY, OLDEST])
async def test_a_session_of_an_older_version_is_answered_as_well(version: str) -> None:
    line = Line(asks_first, version=version)
    async with Client(line, elicit=ada) as client:
        assert client.version == version
        assert (await client.call("greet")).text == "Done."
        await client.prompt("letter")
        await client.read("memo://a")
    for method in ANSWERS:
        first, second = line.asked(method)
        assert "inputResponses" not in first
        assert second["inputResponses"] == {"who": {"action": "accept", "content": {"name": "Ada"}}}
        assert second["requestState"] == "sealed"


@pytest.mark.parametrize("version", [LEGACY, OLDEST])
@pytest.mark.parametrize("kind", ["input_required", "unheard_of", 7])
async def test_a_result_of_a_type_that_cannot_be_taken_is_an_error(version: str, kind: Any) -> None:
    async def answer(line: Line, asked: dict[str, Any]) -> dict[str, Any]:
        return {"result": {**ASKING, "resultType": kind, "tools": []}}

    async with Client(Line(answer, version=version, tools={}), elicit=ada) as client:
        with pytest.raises(BadAnswer, match=f"tools/list with a result of type {kind!r}.*{version}"):
            await client.tools()


ECHO = {"mode": "form", "message": "Who?", "requestedSchema": {"type": "object"}}
ASKED_IN_OTHER_SHAPES = [
    pytest.param(
        {"AdditionalInfoRequested": {"elicitation": [{"params": ECHO}]}, "isError": False},
        r"AdditionalInfoRequested.*--protocol DRAFT-000-additional-info",
        id="additional info",
    ),
    pytest.param(
        {"content": [{"type": "elicitation", **ECHO}], "isError": False},
        r"type 'elicitation'.*--protocol DRAFT-001-content",
        id="content of type elicitation",
    ),
    pytest.param(
        {"content": [{"type": "text", "text": "Half."}, {"type": "sampling", "messages": []}]},
        r"type 'sampling'.*--protocol DRAFT-001-content",
        id="content of type sampling",
    ),
    pytest.param(
        {"method": "elicitation/create", "params": ECHO}, "elicitation/create inside", id="a message"
    ),
    pytest.param({"inputRequests": {"who": QUESTION}}, "'inputRequests' in a result that", id="no type"),
    pytest.param(
        {"resultType": "complete", "content": [], "requestState": "sealed"},
        "'requestState' in a result that",
        id="a state in a complete result",
    ),
]
PROTOCOLS = [MODERN, LEGACY, OLDEST, DRAFT]


@pytest.mark.parametrize("version", PROTOCOLS)
async def test_a_request_that_the_server_wants_again_is_repeated_as_it_was(version: str) -> None:
    async def answer(line: Line, asked: dict[str, Any]) -> dict[str, Any]:
        is_first = len(line.asked(asked["method"])) == 1
        return {"result": {"resultType": "input_required"} if is_first else ANSWERS[asked["method"]]}

    line = Line(answer, version=version)
    async with Client(line, protocol=version) as client:
        assert (await client.call("greet", {"x": 1})).text == "Done."
        await client.read("memo://a")
    for method in ("tools/call", "resources/read"):
        first, second = line.asked(method)
        assert first == second
        assert "requestState" not in second


@pytest.mark.parametrize("version", PROTOCOLS)
async def test_a_server_that_always_wants_the_request_again_is_given_up(version: str) -> None:
    async def answer(line: Line, asked: dict[str, Any]) -> dict[str, Any]:
        return {"result": {"resultType": "input_required"}}

    line = Line(answer, version=version)
    async with Client(line, protocol=version, max_rounds=3) as client:
        with pytest.raises(BadAnswer, match="still asking after 3 rounds"):
            await client.call("greet")
    assert len(line.asked("tools/call")) == 3


@pytest.mark.parametrize("version", PROTOCOLS)
@pytest.mark.parametrize(("result", "says"), ASKED_IN_OTHER_SHAPES)
async def test_a_question_in_another_shape_is_no_success(
    version: str, result: dict[str, Any], says: str
) -> None:
    async def answer(line: Line, asked: dict[str, Any]) -> dict[str, Any]:
        return {"result": result}

    async with Client(Line(answer, version=version), elicit=ada, protocol=version) as client:
        with pytest.raises(BadAnswer, match=says):
            await client.call("greet", check=False)


@pytest.mark.parametrize("version", [MODERN, LEGACY, DRAFT])
@pytest.mark.parametrize(("result", "says"), ASKED_IN_OTHER_SHAPES)
async def test_a_question_in_another_shape_is_no_result_of_a_task(
    version: str, result: dict[str, Any], says: str
) -> None:
    async def answer(line: Line, asked: dict[str, Any]) -> dict[str, Any]:
        if asked["method"] == "tasks/result":
            return {"result": result}
        task = {"taskId": "t1", "status": "completed", "pollInterval": 20}
        return {"result": {**task, **({"result": result} if version == MODERN else {})}}

    line = Line(answer, version=version, tasks=TASKS, **MODERN_TASKS)
    async with Client(line, elicit=ada, protocol=version) as client:
        with pytest.raises(BadAnswer, match=says):
            await client.task("t1").result(timeout=30)


async def test_the_last_part_of_a_stream_that_asks_is_no_success() -> None:
    async def answer(line: Line, asked: dict[str, Any]) -> dict[str, Any]:
        if "inputResponses" in asked["params"]:
            return DONE
        return {"result": {**ASKING, "partial-content": [], "isComplete": True}}

    async with Client(Line(answer, version=DRAFT), elicit=ada, protocol=DRAFT) as client:
        assert (await client.call("greet")).text == "Done."


@pytest.mark.parametrize("version", PROTOCOLS)
async def test_a_server_that_names_what_it_does_not_ask_is_taken_at_its_word(version: str) -> None:
    async def answer(line: Line, asked: dict[str, Any]) -> dict[str, Any]:
        nothing = {"inputRequests": None, "requestState": None, "AdditionalInfoRequested": None}
        return {"result": {**nothing, **DONE["result"]}}

    async with Client(Line(answer, version=version), protocol=version) as client:
        assert (await client.call("greet")).text == "Done."


@pytest.mark.parametrize("version", [LEGACY, DRAFT])
async def test_a_task_that_asks_in_place_of_its_result_is_answered_by_key(version: str) -> None:
    answered = False

    async def answer(line: Line, asked: dict[str, Any]) -> dict[str, Any]:
        nonlocal answered
        if asked["method"] == "tasks/input_response":
            answered = True
            return {"result": {"resultType": "complete"}}
        if asked["method"] == "tasks/get":
            status = "completed" if answered else "input_required"
            return {"result": {"taskId": "t1", "status": status, "pollInterval": 20}}
        return DONE if answered else {"result": {**ASKING, "requestState": None}}

    line = Line(answer, version=version, tasks=TASKS)
    async with Client(line, elicit=ada, protocol=version) as client:
        assert (await client.task("t1").result(timeout=30)).text == "Done."
    (given,) = line.asked("tasks/input_response")
    assert given == {
        "inputResponses": {"who": {"action": "accept", "content": {"name": "Ada"}}},
        "_meta": {"io.modelcontextprotocol/related-task": {"taskId": "t1"}},
    }


@pytest.mark.parametrize("version", [LEGACY, DRAFT])
async def test_an_answer_that_the_server_refuses_is_asked_for_again_under_the_same_key(version: str) -> None:
    given: list[Any] = []

    async def answer(line: Line, asked: dict[str, Any]) -> dict[str, Any]:
        if asked["method"] == "tasks/input_response":
            given.append(asked["params"]["inputResponses"]["who"]["content"]["name"])
            return {"result": {"resultType": "complete"}}
        if asked["method"] == "tasks/get":
            status = "completed" if "Byron" in given else "input_required"
            return {"result": {"taskId": "t1", "status": status, "pollInterval": 20}}
        return DONE if "Byron" in given else {"result": ASKING}

    names = iter(["Ada", "Byron"])
    line = Line(answer, version=version, tasks=TASKS)
    async with Client(line, elicit=lambda question: {"name": next(names)}, protocol=version) as client:
        assert (await client.task("t1").result(timeout=30)).text == "Done."
    assert given == ["Ada", "Byron"]


@pytest.mark.parametrize(("version", "capable"), [(MODERN, MODERN_TASKS), (DRAFT, {"tasks": TASKS})])
async def test_an_answer_that_comes_too_late_does_not_fail_the_wait(
    version: str, capable: dict[str, Any]
) -> None:
    is_late = False

    async def answer(line: Line, asked: dict[str, Any]) -> dict[str, Any]:
        nonlocal is_late
        method = asked["method"]
        if method in ("tasks/update", "tasks/input_response"):
            is_late = True  # another client was faster
            return refusal(-32602, "The task asks nothing at the moment.")
        if method == "tasks/result":
            return DONE if is_late else {"result": ASKING}
        assert method == "tasks/get"
        task = {"taskId": "t1", "pollInterval": 20, "pollIntervalMs": 20}
        if is_late:
            return {"result": {**task, "status": "completed", "result": DONE["result"]}}
        return {"result": {**task, "status": "input_required", "inputRequests": {"who": QUESTION}}}

    async with Client(Line(answer, version=version, **capable), elicit=ada, protocol=version) as client:
        assert (await client.task("t1").result(timeout=30)).text == "Done."
    assert is_late
