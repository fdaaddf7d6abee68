"""The errors that a tool raises, and the response in every dialect: the error patterns of seed 003."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from antiphon import Client, CommandFailed, Failure
from tests.patterns.tooling import SECRET, make, redeemed
from tests.support.http import Response
from tests.support.speakers import Bare, Modern, Speaker

STREAMING = "dev.antiphon/streaming"
SOURCE = {"title": "A", "uri": "https://a", "relevance": 1.0}
CODES = {"params": -32602, "request": -32600, "internal": -32603, "method": -32601}


def partial(result: dict[str, Any]) -> None:
    assert result["isError"] is True
    (block,) = result["content"]
    assert block["text"].startswith("## Error\n\nFailed to complete research: timeout")
    expected = {"status": "error", "error": "timeout", "partial_results": [SOURCE]}
    assert result["structuredContent"] == expected


def command(result: dict[str, Any]) -> None:
    assert result["isError"] is True
    (block,) = result["content"]
    assert block["text"] == "Command failed (exit code 2):\n\n```\nno such file\n```"
    assert result["structuredContent"] == {
        "status": "error",
        "exit_code": 2,
        "stderr": "no such file",
        "partial_results": {"stdout": "a"},
    }


def partial_text(result: dict[str, Any]) -> None:
    assert result["isError"] is True
    assert [block["text"] for block in result["content"]] == ["It stopped in the middle.", "What there was."]
    assert "structuredContent" not in result


PATTERNS = {"partial": partial, "partial_text": partial_text, "command": command}


@pytest.mark.parametrize("tool", PATTERNS)
async def test_a_failure_is_an_answer(client: Speaker, tool: str) -> None:
    PATTERNS[tool]((await client.call(tool)).result)


@pytest.mark.parametrize("tool", PATTERNS)
async def test_a_failure_comes_out_of_a_task(patient: Speaker, tool: str) -> None:
    PATTERNS[tool](await redeemed(patient, tool))


@pytest.mark.parametrize("error", CODES)
async def test_a_json_rpc_error_is_one(client: Speaker, error: str) -> None:
    response = await client.call("refuse", error=error)
    assert response.error["code"] == CODES[error]
    if error == "request":
        assert response.error["data"] == {"at": {"width": 1}}
    if error != "method":  # which has a status of its own in 2026-07-28
        assert response.status == 200


@pytest.mark.parametrize("error", CODES)
async def test_a_json_rpc_error_comes_out_of_a_task(patient: Speaker, error: str) -> None:
    assert (await redeemed(patient, "refuse", error=error))["error"]["code"] == CODES[error]


async def test_parameters_that_do_not_fit_are_explained(client: Speaker) -> None:
    response = await client.call("refuse", error="none of these")
    assert response.result["isError"] is True
    assert "error: Input should be" in response.text


async def test_an_unknown_tool_is_an_error(client: Speaker) -> None:
    # The seed's table has -32601 here; every version of the protocol has -32602.
    assert (await client.call("nobody")).error["code"] == -32602
    unknown = (await client.ask("tools/nothing", {})).error
    assert unknown["code"] == -32601


async def test_an_exception_leaks_nothing(client: Speaker, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "antiphon"):
        response = await client.call("crash")
    assert response.result["isError"] is True
    assert "internal error" in response.text
    assert "s3cret" not in response.body.decode()
    assert SECRET in caplog.text


async def test_an_exception_leaks_nothing_through_a_task(patient: Speaker) -> None:
    result = await redeemed(patient, "crash")
    assert result["isError"] is True
    assert "s3cret" not in str(result)


# Streams: what was sent stays, and the rest comes with the end


class Streaming(Modern):
    capabilities = {"extensions": {STREAMING: {}}}


def ended(result: dict[str, Any]) -> None:
    assert result["isError"] is True
    assert result["structuredContent"] == {
        "status": "error",
        "error": "It stopped.",
        "done": 2,
        "partial_results": {"third": "half"},
    }


async def test_a_failure_in_the_middle_keeps_what_there_was(client: Speaker) -> None:
    result = (await client.call("breaks_off")).result
    assert [block["text"] for block in result["content"]] == ["first", "second", "It stopped."]
    ended(result)


async def test_a_failure_ends_a_stream_of_2026_07_28(address: Any) -> None:
    response: Response = await Streaming(address.port).call("breaks_off")
    sent = [
        block["text"]
        for frame in response.frames
        if frame.get("method") == "notifications/tools/partial_result"
        for block in frame["params"]["content"]
    ]
    assert sent
    assert sent == ["first", "second"][: len(sent)], "what came fast may come with the end"
    assert [block["text"] for block in response.result["content"]] == ["first", "second", "It stopped."]
    ended(response.result)


async def test_a_failure_ends_a_stream_of_the_draft(address: Any) -> None:
    params = {"name": "breaks_off", "arguments": {}, "stream": {}}
    response = await Bare(address.port).ask("tools/call", params)
    parts = [part for frame in response.frames for part in frame["result"].get("partial-content", [])]
    assert [(part["seqNr"], part["text"]) for part in parts] == [
        (1, "first"),
        (2, "second"),
        (3, "It stopped."),
    ]
    assert response.result["isComplete"] is True
    ended(response.result)


async def test_a_failure_ends_the_segments_of_a_task(patient: Speaker) -> None:
    result = await redeemed(patient, "breaks_off")
    assert [block["text"] for block in result["content"]] == ["first", "second", "It stopped."]
    ended(result)


# What our own client makes of it


async def test_our_client_raises_what_the_tool_raised() -> None:
    async with Client(make()) as client:
        with pytest.raises(Failure) as caught:
            await client.call("partial")
        assert caught.value.partial == [SOURCE]
        with pytest.raises(Failure, match="exit code 2"):
            await client.call("command")


def test_a_fence_holds_what_is_in_it() -> None:
    failure = CommandFailed(1, "see ```this```")
    assert str(failure).count("````") == 2
    assert (failure.exit_code, failure.stderr) == (1, "see ```this```")
