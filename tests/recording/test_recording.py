"""A recorded exchange has every message and no secret, and a client that replays it gets the same answers."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from antiphon import Client, Context, Server
from antiphon.client import Elicitation
from antiphon.client.recording import record_messages
from antiphon.errors import AntiphonError, BadAnswer, Failure
from antiphon.testing import record as record_to
from antiphon.testing import replay
from antiphon.transport.client.recording import RecordedMessage
from antiphon.transport.client.recording_file import write_lines
from tests.support.polling import turns
from tests.support.serving import serving

VERSIONS = ["2026-07-28", "2025-11-25"]


def recorded_server() -> Server:
    server = Server("recorded")

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def greet(ctx: Context) -> str:
        await ctx.report_progress(1, 2, "asking")
        name = await ctx.elicit("Who are you?", str)
        return f"Hello, {name}."

    @server.tool
    async def fail() -> str:
        raise Failure("It broke.")

    @server.tool(task="optional", poll_interval=0.01)
    async def report(ctx: Context) -> str:
        await turns(10)
        return "Done."

    return server


def ada(question: Elicitation) -> dict[str, Any]:
    assert question.message == "Who are you?"
    return {"value": "Ada"}


async def use(client: Client) -> list[str]:
    seen: list[str] = []
    tools = [tool.name for tool in await client.tools()]
    greeting = await client.call("greet", on_progress=lambda progress: seen.append(str(progress.message)))
    answers = [(await client.call("add", a=1, b=each)).text for each in (2, 3)]
    with pytest.raises(Failure) as failed:
        await client.call("fail")
    return [*tools, greeting.text, *answers, str(failed.value), *seen]


async def record(path: Path, target: Any, **options: Any) -> tuple[list[str], list[RecordedMessage]]:
    messages: list[RecordedMessage] = []
    client = Client(target, elicit=ada, **options)
    record_messages(client, messages.append)
    async with client:
        seen = await use(client)
        version = client.version
    path.write_bytes(b"".join(write_lines(messages, server="recorded", version=version)))
    return seen, messages


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_replayed_exchange_gives_the_same_answers(version: str, tmp_path: Path) -> None:
    path = tmp_path / "messages.jsonl"
    seen, _ = await record(path, recorded_server(), protocol=version)
    async with Client(replay(path), elicit=ada, name="another", protocol=version) as client:
        # Other requests before, which were recorded later, move the ids.
        assert (await client.call("add", a=1, b=3)).text == "4"
        assert client.version == version
    async with Client(replay(path), elicit=ada) as client:
        assert await use(client) == seen
    assert "Hello, Ada." in seen
    assert "asking" in seen


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("submits", [True, False])
async def test_a_recorded_task_is_replayed(version: str, submits: bool, tmp_path: Path) -> None:
    async def use_task(client: Client) -> str:
        done = await (await client.submit("report")).result() if submits else await client.call("report")
        return f"{done.text} {(await client.call('add', a=1, b=2)).text}"

    path = tmp_path / "messages.jsonl"
    client = Client(recorded_server(), protocol=version)
    with record_to(client, path):
        async with client:
            assert await use_task(client) == "Done. 3"
    async with Client(replay(path)) as replayed:
        assert await use_task(replayed) == "Done. 3"


@pytest.mark.parametrize("moves_ids", [True, False])
async def test_an_open_stream_gets_its_messages_and_a_call_its_own(moves_ids: bool, tmp_path: Path) -> None:
    async def use_stream(client: Client) -> list[str]:
        seen: list[str] = []
        async with client.listen() as changes:
            called = await client.call("greet", on_progress=lambda each: seen.append(str(each.message)))
            await client.call("grow")
            change = await anext(aiter(changes))
        return [called.text, *seen, type(change).__name__, str(getattr(change, "assumed", None))]

    server, path = recorded_server(), tmp_path / "messages.jsonl"

    @server.tool
    async def grow() -> str:
        server.add_tool(grow, name="grown")
        return "grown"

    client = Client(server, elicit=ada)
    with record_to(client, path):
        async with client:
            seen = await use_stream(client)
            await client.call("add", a=1, b=2)
    assert seen == ["Hello, Ada.", "asking", "ListChanged", "False"]
    async with Client(replay(path), elicit=ada) as replayed, asyncio.timeout(60):
        if moves_ids:
            await replayed.call("add", a=1, b=2)
        assert await use_stream(replayed) == seen


async def test_a_request_that_was_not_recorded_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "messages.jsonl"
    await record(path, recorded_server())
    async with Client(replay(path)) as client:
        with pytest.raises(BadAnswer, match=r"messages.jsonl has no further request tools/call .*'a': 7"):
            await client.call("add", a=7, b=7)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("elicit", [lambda question: {"value": "Eve"}, None])
async def test_another_answer_than_the_recorded_one_is_refused(
    version: str, elicit: Any, tmp_path: Path
) -> None:
    path = tmp_path / "messages.jsonl"
    await record(path, recorded_server(), protocol=version)
    async with Client(replay(path), elicit=elicit) as client:
        with pytest.raises(AntiphonError) as refused:
            await client.call("greet")
    if elicit is not None or version == "2025-11-25":
        assert isinstance(refused.value, BadAnswer)
        assert "messages.jsonl has" in str(refused.value)


async def test_headers_and_tokens_are_not_recorded(tmp_path: Path) -> None:
    path = tmp_path / "messages.jsonl"
    async with serving(recorded_server()) as address:
        _, messages = await record(
            path, address.url, auth="a-secret-token", headers={"x-key": "another-secret"}
        )
    assert len(messages) > 10
    assert b"secret" not in path.read_bytes()


async def test_a_recording_is_json_lines_with_a_head(tmp_path: Path) -> None:
    path = tmp_path / "messages.jsonl"
    await record(path, recorded_server(), protocol="2025-11-25")
    head, first, second, *_ = [json.loads(line) for line in path.read_text().splitlines()]
    assert head["antiphon"] == "messages"
    assert (head["format"], head["server"], head["version"]) == (1, "recorded", "2025-11-25")
    assert first["at"] == 0
    assert (first["from"], first["message"]["method"]) == ("client", "initialize")
    assert second["from"] == "server"
    assert second["message"]["id"] == first["message"]["id"]


async def test_a_request_that_failed_on_the_way_fails_again(tmp_path: Path) -> None:
    path = tmp_path / "messages.jsonl"
    lines = [
        {"antiphon": "messages", "format": 1},
        {"at": 0, "from": "client", "message": {"jsonrpc": "2.0", "id": 1, "method": "server/discover"}},
        {"at": 1, "from": "server", "id": 1, "failure": "The cable is out."},
    ]
    path.write_text("\n".join(json.dumps(line) for line in lines))
    with pytest.raises(Exception, match="The cable is out"):
        async with Client(replay(path), protocol="2026-07-28"):
            pass


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "first line"),
        ('{"a": 1}\n', "first line"),
        ('{"antiphon": "messages", "format": 9}\n', "format 9"),
        ('{"antiphon": "messages", "format": 1}\n{"at": "x"}\n', "Line 2"),
        (
            '{"antiphon": "messages", "format": 1}\n{"at": 1, "from": "client", "message": 1}\n',
            "not a message",
        ),
    ],
)
def test_a_file_that_is_no_recording_is_refused(content: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "broken.jsonl"
    path.write_text(content)
    with pytest.raises(ValueError, match=problem):
        replay(path)


async def test_a_test_records_its_own_client(tmp_path: Path) -> None:
    path = tmp_path / "messages.jsonl"
    client = Client(recorded_server(), elicit=ada)
    with record_to(client, path):
        async with client:
            seen = await use(client)
    assert json.loads(path.read_text().splitlines()[0])["server"] == "recorded"
    async with Client(replay(path), elicit=ada) as replayed:
        assert await use(replayed) == seen


async def test_what_was_said_before_an_error_is_recorded(tmp_path: Path) -> None:
    path = tmp_path / "messages.jsonl"
    client = Client(recorded_server())
    with pytest.raises(Failure), record_to(client, path):
        async with client:
            await client.call("fail")
    async with Client(replay(path)) as replayed:
        with pytest.raises(Failure, match="It broke"):
            await replayed.call("fail")


async def test_a_client_is_not_recorded_after_the_block(tmp_path: Path) -> None:
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    client = Client(recorded_server())
    for path in (first, second):
        with record_to(client, path):
            async with client:
                await client.call("add", a=1, b=2)
        recorded = path.read_text()
        async with client:
            await client.call("add", a=1, b=2)
        assert path.read_text() == recorded
    assert len(first.read_text().splitlines()) == len(second.read_text().splitlines())


async def test_a_recording_ends_with_its_block_also_if_the_client_stays_connected(tmp_path: Path) -> None:
    messages: list[RecordedMessage] = []
    client = Client(recorded_server())
    stop = record_messages(client, messages.append)
    async with client:
        stop()
        before = len(messages)
        assert (await client.call("add", a=1, b=2)).text == "3"
    assert len(messages) == before
