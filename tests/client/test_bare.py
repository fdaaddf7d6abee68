"""Servers that open no session, and speak only what a draft prints: the client goes on without a session."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from antiphon.client import Client, Elicitation
from antiphon.errors import BadAnswer, MethodNotFound, ProcessEnded, Unauthorized, Unreachable
from tests.client.fakes import Answer, Fake, Reply, serving
from tests.seeds.blocks import blocks_of, printed

DRAFT = "DRAFT-2026-v1"
CALL, ASKING, AGAIN, DONE = (printed(f"002:{line}").message for line in (464, 482, 514, 539))
STEPS = [block.message for block in blocks_of("002") if 930 <= block.line <= 1138]
PROMISE, ASKED, QUESTIONS, ACKNOWLEDGED, COMPLETED, ECHOED = STEPS[1::2]


async def refuse(reply: Reply) -> None:
    await reply.error(-32601)


async def refuse_in_http(reply: Reply) -> None:
    await reply.error(-32601, 404)


async def not_found(reply: Reply) -> None:
    await reply.body(404, "text/plain", b"Not found")


async def close(reply: Reply) -> None:
    pass


REFUSALS = [refuse, refuse_in_http, not_found, close]


def only_printed(unknown: Answer) -> Answer:
    """A server that answers as seed 002 prints it, and every other method with `unknown`."""
    is_answered = False

    async def answer(reply: Reply) -> None:
        nonlocal is_answered
        method, params = reply.request.method, reply.request.params
        if method == "tools/call" and not params.get("name"):
            await reply.error(-32602)
        elif method == "tools/call" and "task" in params:
            await reply.result(PROMISE["result"])
        elif method == "tools/call":
            await reply.result((DONE if "inputResponses" in params else ASKING)["result"])
        elif method == "tasks/get":
            await reply.result((COMPLETED if is_answered else ASKED)["result"])
        elif method == "tasks/result":
            await reply.result((ECHOED if is_answered else QUESTIONS)["result"])
        elif method == "tasks/input_response":
            is_answered = True
            await reply.result(ACKNOWLEDGED["result"])
        else:
            await unknown(reply)

    return answer


async def answer_form(question: Elicitation) -> dict[str, Any]:
    return {"name": "octocat"} if "GitHub" in question.message else {"input": "Hello World!"}


@asynccontextmanager
async def connected(unknown: Answer, **options: Any) -> AsyncIterator[tuple[Client, Fake]]:
    async with (
        asyncio.timeout(60),
        serving(only_printed(unknown)) as fake,
        Client(fake.url, elicit=answer_form, **options) as client,
    ):
        yield client, fake


@pytest.mark.parametrize("protocol", [None, DRAFT])
@pytest.mark.parametrize("unknown", REFUSALS)
async def test_a_call_is_taken_through_its_rounds_as_printed(unknown: Answer, protocol: str | None) -> None:
    async with connected(unknown, protocol=protocol) as (client, fake):
        assert client.version == DRAFT
        result = await client.call("get_weather", location="New York")
    assert result.text == DONE["result"]["content"][0]["text"]
    first, second = [heard for heard in fake.heard if heard.method == "tools/call"][-2:]
    assert first.params == CALL["params"]
    assert second.params == AGAIN["params"]
    assert first.id != second.id


@pytest.mark.parametrize("unknown", REFUSALS)
async def test_a_task_is_answered_as_printed(unknown: Answer) -> None:
    async with connected(unknown) as (client, fake):
        handle = await client.submit("echo", ttl=60)
        assert handle.id == PROMISE["result"]["task"]["taskId"]
        assert (await handle.result()).text == "Echo: Hello World!"
    assert fake.methods().count("tasks/input_response") == 1


@pytest.mark.parametrize("unknown", REFUSALS)
@pytest.mark.parametrize(
    ("protocol", "asking", "given"),
    [
        ("DRAFT-000-messages", "000:137", "000:158"),
        ("DRAFT-000-additional-info", "000:181", "000:214"),
        ("DRAFT-001-messages", "001:94", None),
        ("DRAFT-001-content", "001:227", None),
    ],
)
async def test_a_server_of_an_earlier_draft_needs_no_session_either(
    unknown: Answer, protocol: str, asking: str, given: str | None
) -> None:
    is_first = True

    async def answer(reply: Reply) -> None:
        nonlocal is_first
        if reply.request.method != "tools/call":
            await unknown(reply)
        elif is_first:
            is_first = False
            question = {key: field for key, field in printed(asking).message.items() if key != "_meta"}
            await reply.message({**question, "id": reply.request.id})
        else:
            await reply.result(DONE["result"])

    async with (
        asyncio.timeout(60),
        serving(answer) as fake,
        Client(fake.url, elicit=answer_form, sample=lambda params: "Paris", protocol=protocol) as client,
    ):
        assert client.version == protocol
        assert (await client.call("get_weather", city="New York")).text.startswith("Current weather")
    _, again = [heard for heard in fake.heard if heard.method == "tools/call"]
    if given is not None:
        assert again.body["elicitation"] == printed(given).message["elicitation"]
    else:
        assert "Hello World!" in json.dumps(again.body)


async def test_a_server_that_refuses_in_json_is_asked_nothing_else() -> None:
    async with connected(refuse) as (_, fake):
        pass
    assert fake.methods() == ["server/discover", "initialize"]


async def test_a_forced_draft_is_not_looked_for() -> None:
    async with connected(not_found, protocol=DRAFT) as (_, fake):
        pass
    assert fake.methods() == ["initialize"]


@pytest.mark.parametrize("protocol", ["2025-11-25", "2026-07-28"])
async def test_another_version_that_is_wanted_is_not_replaced_by_the_draft(protocol: str) -> None:
    with pytest.raises(MethodNotFound):
        async with connected(refuse, protocol=protocol):
            pass


async def test_an_address_without_a_server_is_an_error_when_connecting() -> None:
    async with serving(not_found) as fake:
        with pytest.raises(BadAnswer, match="no MCP server at this address"):
            async with Client(fake.url):
                pass


async def test_a_server_that_closes_every_connection_is_unreachable_when_connecting() -> None:
    async with serving(close) as fake:
        with pytest.raises(Unreachable, match="closed the connection before it answered"):
            async with Client(fake.url):
                pass


async def test_a_server_that_wants_a_token_says_so() -> None:
    async def answer(reply: Reply) -> None:
        if reply.request.method == "tools/call":
            await reply.body(401, "text/plain", b"", www_authenticate="Bearer")
        else:
            await not_found(reply)

    async with serving(answer) as fake:
        with pytest.raises(Unauthorized):
            async with Client(fake.url):
                pass


SERVER = """
import json, sys
answers = json.loads(sys.argv[1])
with open(sys.argv[2], "a") as log:
    for line in sys.stdin:
        asked = json.loads(line)
        print(asked["method"], file=log, flush=True)
        known = asked["method"] == "tools/call" and asked["params"]["name"]
        if not known and sys.argv[3] == "close" and asked["params"].get("name") is None:
            sys.exit(int(sys.argv[4]))
        fields = {"result": answers["inputResponses" in asked["params"]]} if known else {
            "error": {"code": -32601, "message": "What?"}}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **fields}), flush=True)
"""


def command(tmp_path: Path, how: str, code: int = 0) -> tuple[list[str], Path]:
    """A server over stdio that refuses what it does not know, or exits."""
    log = tmp_path / "log"
    answers = json.dumps([ASKING["result"], DONE["result"]])
    return [sys.executable, "-c", SERVER, answers, str(log), how, str(code)], log


@pytest.mark.parametrize("how", ["refuse", "close"])
async def test_a_server_over_stdio_is_called_without_a_session(tmp_path: Path, how: str) -> None:
    target, log = command(tmp_path, how)
    async with asyncio.timeout(120), Client(target, elicit=answer_form, probe_timeout=30) as client:
        assert client.version == DRAFT
        result = await client.call("get_weather", location="New York")
    assert result.text == DONE["result"]["content"][0]["text"]
    expected = ["server/discover", "initialize"]
    expected += ["tools/list", "tools/call"] if how == "close" else []
    assert log.read_text().split() == [*expected, "tools/call", "tools/call"]


async def test_a_command_that_fails_is_started_once(tmp_path: Path) -> None:
    target, log = command(tmp_path, "close", code=3)
    with pytest.raises(ProcessEnded, match="exited with code 3"):
        async with Client(target, probe_timeout=30):
            pass
    assert log.read_text().split() == ["server/discover"]
