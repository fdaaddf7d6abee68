"""A server with sessions whose tasks ask as SEP-2322 prints it: `tasks/result` has the questions at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from antiphon.client import Client, Elicitation
from antiphon.errors import BadAnswer
from tests.client.fakes import Answer, Reply, legacy, serving
from tests.seeds.blocks import blocks_of, printed

STEPS = [block.message for block in blocks_of("002") if 930 <= block.line <= 1138]
CALL, _, RESULT, ANSWER = STEPS[:8:2]
PROMISE, ASKING, QUESTIONS, ACKNOWLEDGED, COMPLETED, DONE = STEPS[1::2]
TASKS = {"requests": {"tools": {"call": {}}}}
ECHO = {"name": "echo", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "optional"}}
TASK = PROMISE["result"]["task"]["taskId"]


def as_printed(*, looks: int = 0, ignored: int = 0) -> Answer:
    """Say what is printed.

    The task works until it is looked at `looks` times, and until then requests for its result are refused. It
    goes on asking after the first `ignored` answers.
    """
    looked = answers = 0

    async def answer(reply: Reply) -> None:
        nonlocal looked, answers
        method = reply.request.method
        is_working, is_answered = looked < looks, answers > ignored
        if method == "tools/list":
            await reply.result({"tools": [ECHO]})
        elif method == "tools/call":
            await reply.result(PROMISE["result"])
        elif method == "tasks/get":
            looked += 1
            working = {**ASKING["result"], "status": "working"}
            await reply.result(
                COMPLETED["result"] if is_answered else working if is_working else ASKING["result"]
            )
        elif method == "tasks/result" and is_working:
            await reply.error(-32602)
        elif method == "tasks/result":  # the questions have metadata beside the result
            await reply.message({**(DONE if is_answered else QUESTIONS), "id": reply.request.id})
        elif method == "tasks/input_response":
            answers += 1
            await reply.result(ACKNOWLEDGED["result"])
        else:
            await reply.head(405, None, content_length="0")

    return legacy(answer, tasks=TASKS)


async def hello(question: Elicitation) -> dict[str, Any]:
    assert question.message == "Please provide the input string to echo back"
    return {"input": "Hello World!"}


async def test_a_task_in_a_session_is_answered_as_printed() -> None:
    async with asyncio.timeout(60), serving(as_printed()) as fake, Client(fake.url, elicit=hello) as client:
        assert client.version == "2025-11-25"
        handle = await client.submit("echo", ttl=60)
        assert handle.id == TASK
        assert (await handle.result()).text == "Echo: Hello World!"
    by_method = {heard.method: heard for heard in fake.heard}
    assert by_method["tools/call"].params == {**CALL["params"], "arguments": {}}
    for step in (RESULT, ANSWER):
        assert by_method[step["method"]].params == step["params"]
    assert fake.methods().count("tasks/input_response") == 1


@pytest.mark.parametrize("looks", [1, 2, 3])
async def test_a_server_that_refuses_to_wait_for_a_result_is_asked_again_when_the_task_asks(
    looks: int,
) -> None:
    async with (
        asyncio.timeout(60),
        serving(as_printed(looks=looks)) as fake,
        Client(fake.url, elicit=hello) as client,
    ):
        handle = await client.submit("echo")
        assert (await handle.result()).text == "Echo: Hello World!"
    assert fake.methods().count("tasks/input_response") == 1


async def test_a_question_that_an_answer_did_not_satisfy_is_asked_again() -> None:
    asked = 0

    async def elicit(question: Elicitation) -> dict[str, Any]:
        nonlocal asked
        asked += 1
        return await hello(question)

    async with (
        asyncio.timeout(60),
        serving(as_printed(ignored=1)) as fake,
        Client(fake.url, elicit=elicit) as client,
    ):
        assert (await (await client.submit("echo")).result()).text == "Echo: Hello World!"
    assert asked == 2


async def test_a_person_is_asked_once_by_a_server_that_ends_its_stream_with_the_question() -> None:
    """As the proposal before SEP-2322 prints it, whose answers are matched by the task alone."""
    asked = looked = 0
    has_looked = asyncio.Event()
    answered: list[dict[str, Any]] = []

    async def answer(reply: Reply) -> None:
        nonlocal looked
        method = reply.request.method
        if method == "tools/call":
            await reply.result(printed("001:35").message["result"])
        elif method == "tasks/get":
            looked += 1
            if looked == 8:
                has_looked.set()
            await reply.result(printed("001:156" if answered else "001:65").message["result"])
        elif method == "tasks/result" and answered:
            await reply.result(printed("001:186").message["result"])
        elif method == "tasks/result":
            await reply.events()
            await reply.event({**printed("001:94").message, "id": reply.request.id})
        elif method == "tools/list":
            await reply.result({"tools": [ECHO]})
        elif not method and reply.request.body.get("result"):
            answered.append(reply.request.body["result"])
            await reply.head(202, None, content_length="0")
        else:
            await reply.head(405, None, content_length="0")

    async def elicit(question: Elicitation) -> dict[str, Any]:
        nonlocal asked
        asked += 1
        await has_looked.wait()
        return await hello(question)

    async with (
        asyncio.timeout(120),
        serving(legacy(answer, tasks=TASKS)) as fake,
        Client(fake.url, elicit=elicit) as client,
    ):
        assert (await (await client.submit("echo")).result()).text == "Echo: Hello World!"
    assert asked == 1
    assert answered == [printed("001:123").message["result"]]


@pytest.mark.parametrize("method", ["tools/call", "tasks/result"])
async def test_a_question_in_place_of_a_response_names_the_protocol_that_reads_it(method: str) -> None:
    async def answer(reply: Reply) -> None:
        if reply.request.method == method:
            await reply.message({**printed("001:94").message, "id": reply.request.id})
        elif reply.request.method == "tasks/get":
            await reply.result(printed("001:65").message["result"])
        else:
            await reply.head(405, None, content_length="0")

    async with serving(legacy(answer, tasks=TASKS)) as fake, Client(fake.url, elicit=hello) as client:
        says = "elicitation/create in place of a result.*--protocol DRAFT-001-messages"
        with pytest.raises(BadAnswer, match=says):
            await (client.call("echo") if method == "tools/call" else client.task(TASK).result(timeout=30))


async def test_a_program_that_knows_the_task_sees_the_questions_and_answers_them() -> None:
    async def elicit(question: Elicitation) -> dict[str, Any]:
        task = client.task(TASK)
        assert list((await task.status()).questions) == ["echo_input"]
        await task.answer({"echo_input": {"input": "Hello World!"}})
        return await hello(question)

    async with asyncio.timeout(60), serving(as_printed()) as fake, Client(fake.url, elicit=elicit) as client:
        assert (await (await client.submit("echo")).result()).text == "Echo: Hello World!"
