"""The client against a server that plays the printed answers: it understands them, and says what is printed.

The requests that the client makes are compared with the printed ones. What is different has a name here too.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from antiphon.client import Client, Elicitation
from tests.cli.command import PATIENCE
from tests.client.fakes import Answer, Reply, serving
from tests.seeds.blocks import Frame, printed
from tests.seeds.client_differences import CLIENT_DIFFERENCES, request_differences
from tests.seeds.player import Player
from tests.seeds.replay import comparable
from tests.seeds.scenarios import SCENARIOS, Scenario
from tests.support.process import environment

FORMS: Mapping[str, Any] = {
    "Please provide your GitHub username": {"name": "octocat"},
    "Please provide the input string to echo back": {"input": "Hello World!"},
    "Resolving Bug #4522 requires a resolution. How was this bug resolved?": {"resolution": "Duplicate"},
    "Since this is a duplicate, which work item is the original?": {"duplicateOfId": 4301},
}
CAPITAL = printed("002:297").message["inputResponses"]["capital_of_france"]
MODES = ("immediate", "task", "streaming")


def fill_in(question: Elicitation) -> Any:
    return FORMS[question.message]


def complete(params: Mapping[str, Any]) -> Any:
    return CAPITAL


def text_of(block: Any) -> str:
    """The text of a block; one of an unknown type is a mapping."""
    return str(block["text"] if isinstance(block, Mapping) else block.text)


async def call(client: Client, scenario: Scenario) -> list[str]:
    """Call the tool; return the texts of the result."""
    params = printed(scenario.steps[0].ask).message["params"]
    result = await client.call(params["name"], params["arguments"], check=False)
    assert result.is_error == ("Error" in str(result.text))
    return [text_of(block) for block in result.content]


async def submit(client: Client, scenario: Scenario) -> list[str]:
    """Call the tool as a task; return the texts of its result, or nothing if none is printed."""
    params = printed(scenario.steps[0].ask).message["params"]
    handle = await client.submit(params["name"], params.get("arguments"), ttl=60)
    assert handle.id == printed(scenario.steps[0].answers[0]).message["result"]["task"]["taskId"]
    if len(scenario.steps) == 1:
        return []
    result = await handle.result()
    return [text_of(block) for block in result.content]


async def stream(client: Client, scenario: Scenario) -> list[str]:
    """Read the segments of the tool."""
    params = printed(scenario.steps[0].ask).message["params"]
    modes: Any = params["task"]["responseModes"] if "task" in params else ("streaming", "task")
    async with client.stream(params["name"], params["arguments"], response_modes=modes) as segments:
        found = [text_of(segment.block) async for segment in segments]
    assert [text_of(block) for block in segments.result.content] == found
    return found


async def stream_and_resume(client: Client, scenario: Scenario) -> list[str]:
    """Read the segments of the tool, and once more those after the second one."""
    found = await stream(client, scenario)
    task = client.task(printed(scenario.steps[1].ask).message["params"]["taskId"])
    async with task.stream(after=2) as rest:
        assert [text_of(segment.block) async for segment in rest] == found[2:]
    return found


async def stream_task(client: Client, scenario: Scenario) -> list[str]:
    """Call the tool as a task, and read its segments."""
    params = printed(scenario.steps[0].ask).message["params"]
    handle = await client.submit(params["name"], params["arguments"], ttl=60)
    async with handle.stream() as segments:
        return [text_of(segment.block) async for segment in segments]


@dataclass(frozen=True)
class Play:
    """How a client takes part in a scenario."""

    scenario: str
    drive: Callable[[Client, Scenario], Awaitable[list[str]]]
    dialects: tuple[str, ...]

    @property
    def played(self) -> Scenario:
        """The scenario."""
        (found,) = (scenario for scenario in SCENARIOS if scenario.name == self.scenario)
        return found


DRAFT, SESSION, STATELESS = ("DRAFT-2026-v1",), ("2025-11-25",), ("2026-07-28",)
MESSAGES, LISTS = ("DRAFT-000-messages", "DRAFT-001-messages"), ("DRAFT-000-additional-info",)
CONTENT = ("DRAFT-001-content",)
CORE = DRAFT + SESSION + MESSAGES + LISTS + CONTENT
EARLIER = ("2025-06-18", "2025-03-26", "2024-11-05")

PLAYS = (
    Play("000 answer, complete", call, CORE + STATELESS + EARLIER),
    Play("000 answer, failure", call, CORE + STATELESS + EARLIER),
    Play("000 promise", submit, CORE),
    Play("000 option 1", call, MESSAGES),
    Play("000 option 2", call, LISTS),
    Play("000 streaming of an answer", stream, CORE),
    Play("000 streaming of a promise", stream_task, CORE),
    Play("001 the twelve steps", submit, ("DRAFT-001-messages",)),
    Play("001 option two", submit, CONTENT),
    Play("002 the requests and their responses", call, DRAFT + STATELESS + SESSION),
    Play("002 the four steps", call, DRAFT + STATELESS + SESSION),
    Play("002 the work item", call, DRAFT + STATELESS + SESSION),
    Play("002 the twelve steps", submit, DRAFT + SESSION),
    Play("004 case 1", stream, CORE),
    Play("004 case 3", stream_and_resume, CORE),
)
NOT_PLAYED = {
    "000 the answer of a task": "no question is printed with it",
    "002 a task that asks": "the first of the twelve steps, for dialects that do not have the others",
    "002 what was not asked": "a mistake of a client that this client does not make",
    "002 what was not asked, in a task": "the same",
    "004 case 2": "no result is printed with it",
    "004 a task with a segment, and an event": "the end of the stream is not printed",
}
CASES = [(play, dialect) for play in PLAYS for dialect in play.dialects]


def over_http(player: Player) -> Answer:
    """Answer as the player does: one message as JSON, several as events."""

    async def answer(reply: Reply) -> None:
        if reply.request.verb != "POST":
            await reply.head(405, None, content_length="0")
            return
        answers = player.answer(reply.request.body)
        if not answers:
            await reply.head(202, None, content_length="0")
        elif len(answers) == 1:
            await reply.message(answers[0])
        else:
            await reply.events()
            for each in answers:
                await reply.event(each)

    return answer


@asynccontextmanager
async def playing(
    play: Play, dialect: str, over: str, log: Path
) -> AsyncIterator[tuple[Client, Callable[[], list[Frame]]]]:
    """A client of a dialect, connected to the player, and what the player has heard."""
    options: Any = {"protocol": dialect, "elicit": fill_in, "sample": complete, "timeout": PATIENCE}
    if over == "http":
        player = Player(play.played, dialect)
        async with serving(over_http(player)) as fake, Client(fake.url, **options) as client:
            yield client, lambda: player.heard
    else:
        command = [
            "env",
            f"PYTHONPATH={environment()['PYTHONPATH']}",
            sys.executable,
            "-m",
            "tests.seeds.player",
        ]
        async with Client([*command, play.scenario, dialect, str(log)], **options) as client:
            yield client, lambda: list(json.loads(log.read_text(encoding="utf-8")))


@pytest.mark.parametrize("over", ["http", "stdio"])
@pytest.mark.parametrize(
    ("play", "dialect"), CASES, ids=[f"{play.scenario}-{dialect}" for play, dialect in CASES]
)
async def test_the_client_understands_what_is_printed_and_says_it(
    play: Play, dialect: str, over: str, tmp_path: Path
) -> None:
    scenario = play.played
    async with playing(play, dialect, over, tmp_path / "heard") as (client, heard):
        texts = await play.drive(client, scenario)
    said = heard()
    assert texts == printed_texts(scenario)
    expected = [
        request for step in scenario.steps if (request := as_said(step.ask, scenario, dialect)) is not None
    ]
    said = [without_id(frame) for frame in said]
    assert [request for request in expected if request not in said] == []
    assert [request for request in said if request not in expected] == []


def printed_texts(scenario: Scenario) -> list[str]:
    """The texts of the last printed result."""
    results = [printed(name).message["result"] for name in scenario.steps[-1].answers]
    if scenario.name == "004 case 3":
        results = [printed(name).message["result"] for name in scenario.steps[0].answers]
    found = [result.get("content", result.get("partial-content", [])) for result in results]
    return [block["text"] for content in found for block in content]


def as_said(name: str, scenario: Scenario, dialect: str) -> Frame | None:
    """A printed message as the client says it; `None` if the client has no reason to."""
    message = printed(name).message
    if "jsonrpc" not in message:
        first = printed(scenario.steps[0].ask).message
        message = {**first, "params": {**first["params"], **message}}
    for difference in request_differences(name, dialect):
        changed = difference.change(message)
        if changed is None:
            return None
        assert changed != message, f"{name} does not differ any more: {difference.name}"
        message = changed
    return without_id(message)


def without_id(frame: Frame) -> Frame:
    """A message without its id, which is the client's."""
    found = comparable(frame)
    del found["id"]
    meta = found.get("params", {}).get("_meta", {})
    for key in ("protocolVersion", "clientInfo", "clientCapabilities"):
        meta.pop(f"io.modelcontextprotocol/{key}", None)  # as 2026-07-28 requires
    if "params" in found and not meta:
        found["params"].pop("_meta", None)
    return found


def test_every_scenario_is_played_or_has_a_reason_not_to_be() -> None:
    assert {play.scenario for play in PLAYS} | NOT_PLAYED.keys() == {scenario.name for scenario in SCENARIOS}


def test_every_difference_of_a_request_is_one_of_a_play() -> None:
    played = {(step.ask, dialect) for play, dialect in CASES for step in play.played.steps}
    unused = [
        (difference.name, block, dialect)
        for difference in CLIENT_DIFFERENCES
        for blocks, dialects in difference.where
        for block in blocks.split()
        for dialect in dialects
        if (block, dialect) not in played
    ]
    assert unused == []
