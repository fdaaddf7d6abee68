"""Each request that the seeds print gets the printed answer, in every dialect that can carry it.

What is different is in the table of differences, and nothing else is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from antiphon import Server
from antiphon.wire.versions import VERSIONS
from tests.cli.command import running
from tests.seeds.blocks import SEEDS, Frame, blocks_of, printed
from tests.seeds.differences import DIFFERENCES
from tests.seeds.replay import Replay, carries, comparable, expected
from tests.seeds.scenarios import SCENARIOS, Scenario, Step
from tests.seeds.wires import http_wire, process_wire, stdio_wire
from tests.support.serving import serving
from tests.support.speakers import Bare

EXAMPLE = "examples/seeds.py"
SERVER_MODES, CLIENT_MODES = "004:46", "004:63"
REPLAYS = [(scenario, row.name) for scenario in SCENARIOS for row in VERSIONS if carries(row, scenario)]


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The address of each stage, served by `antiphon run`."""
    found: dict[str, str] = {}
    with ExitStack() as stack:
        for stage in sorted({scenario.stage for scenario in SCENARIOS}):
            server = stack.enter_context(running(stage, directory=tmp_path_factory.mktemp("stage")))
            stack.callback(server.process.kill)  # some of their tasks never end
            found[stage] = server.url
        yield found


@pytest.mark.parametrize(("scenario", "dialect"), REPLAYS, ids=lambda value: getattr(value, "name", value))
async def test_over_http_a_server_answers_as_it_is_printed(
    urls: dict[str, str], scenario: Scenario, dialect: str
) -> None:
    async with http_wire(urls[scenario.stage]) as wire:
        await play(scenario, Replay(wire, dialect, scenario))


@pytest.mark.parametrize(("scenario", "dialect"), REPLAYS, ids=lambda value: getattr(value, "name", value))
async def test_over_stdio_a_server_answers_as_it_is_printed(scenario: Scenario, dialect: str) -> None:
    async with stdio_wire(scenario.stage) as wire:
        await play(scenario, Replay(wire, dialect, scenario))


async def test_a_process_of_its_own_answers_over_stdio_as_it_is_printed() -> None:
    (scenario,) = (scenario for scenario in SCENARIOS if scenario.name == "002 the twelve steps")
    async with process_wire(scenario.stage) as wire:
        await play(scenario, Replay(wire, "DRAFT-2026-v1", scenario))


async def play(scenario: Scenario, replay: Replay) -> None:
    await replay.open()
    for step in scenario.steps:
        wanted = expected(step, replay.dialect)
        got = await replay.ask(step, wanted)
        assert [comparable(frame) for frame in got] == [comparable(frame) for frame in wanted], step.name


def test_every_difference_is_one_of_a_replay() -> None:
    replayed = {(step.name, dialect) for scenario, dialect in REPLAYS for step in scenario.steps}
    unused = [
        (difference.name, step, dialect)
        for difference in DIFFERENCES
        for steps, dialects in difference.where
        for step in steps.split()
        for dialect in dialects
        if (step, dialect) not in replayed
    ]
    assert unused == []


def test_every_printed_message_is_replayed() -> None:
    played = {name for scenario in SCENARIOS for step in scenario.steps for name in (step.ask, *step.answers)}
    every = {block.name for seed in SEEDS for block in blocks_of(seed)}
    assert every - played == {SERVER_MODES, CLIENT_MODES}  # see below


@pytest.mark.parametrize("dialect", [row.name for row in VERSIONS if "tasks/result" in row.server.methods])
@pytest.mark.parametrize("over", ["http", "stdio"])
async def test_a_server_declares_the_response_modes_that_are_printed(
    urls: dict[str, str], dialect: str, over: str
) -> None:
    request = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": dialect,
            "clientInfo": {"name": "tests", "version": "1"},
            **printed(CLIENT_MODES).message,
        },
    }
    async with http_wire(urls[EXAMPLE]) if over == "http" else stdio_wire(EXAMPLE) as wire:
        await wire.send(json.dumps(request), {})
        declared = (await wire.read())["result"]["capabilities"]
    modes = printed(SERVER_MODES).message["capabilities"]["tasks"]["responses"]["modes"]
    assert sorted(declared["tasks"]["responses"]["modes"]) == sorted(modes)  # their order means nothing


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("ping", {}),
        ("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}}),
        (
            "completion/complete",
            {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": ""}},
        ),
        ("logging/setLevel", {"level": "info"}),
        ("prompts/list", {}),
        ("resources/list", {}),
        ("resources/templates/list", {}),
        ("resources/subscribe", {"uri": "file:///a"}),
        ("resources/unsubscribe", {"uri": "file:///a"}),
        ("tools/list", {}),
        ("tasks/get", {}),
        ("tasks/list", {}),
        ("tasks/input_response", {"inputResponses": {}}),
        ("tasks/cancel", {}),
    ],
)
async def test_nothing_else_asks(urls: dict[str, str], method: str, params: Frame) -> None:
    (scenario,) = (scenario for scenario in SCENARIOS if scenario.name == "002 a task that asks")
    async with http_wire(urls[EXAMPLE]) as wire:
        replay = Replay(wire, "DRAFT-2026-v1", scenario)
        for step in scenario.steps:
            (waiting,) = await replay.ask(step, expected(step, replay.dialect))
        task = {"taskId": waiting["result"]["taskId"]} if method.startswith("tasks/") else {}
        request = {
            "jsonrpc": "2.0",
            "id": 9,
            "method": method,
            "params": {**params, **task, "inputResponses": {}},
        }
        await wire.send(json.dumps(request), {})
        answer = await wire.read()
    assert "inputRequests" not in json.dumps(answer)
    assert answer.get("result", {}).get("resultType", "complete") == "complete"


async def test_only_calls_of_tools_stream() -> None:
    server = Server("stories")

    @server.resource("story://bees")
    async def bees() -> str:
        return "Once upon a time."

    async with serving(server) as address:
        answer = await Bare(address.port).ask("resources/read", {"uri": "story://bees", "stream": {}})
    assert [content["text"] for content in answer.result["contents"]] == ["Once upon a time."]
    assert "partial-content" not in answer.result


NOT_CARRIED = [
    (block.name, row.name)
    for seed in SEEDS
    for block in blocks_of(seed)
    for row in VERSIONS
    if "method" in block.message
    and block.message["method"] not in row.server.methods
    and block.message["method"] != "elicitation/create"
]


@pytest.mark.parametrize(("block", "dialect"), NOT_CARRIED)
async def test_a_request_that_a_dialect_does_not_have_is_refused(
    urls: dict[str, str], block: str, dialect: str
) -> None:
    scenario = Scenario(block, EXAMPLE, [Step(block, (block,))])
    async with http_wire(urls[EXAMPLE]) as wire:
        replay = Replay(wire, dialect, scenario)
        await replay.open()
        (refused,) = await replay.ask(scenario.steps[0], [{}])
    assert refused["error"]["code"] in (-32601, -32602)


@pytest.mark.parametrize("block", ["000:22", "000:214", "000:240", "001:174"])
@pytest.mark.parametrize("over", ["http", "stdio"])
async def test_a_request_that_is_no_json_is_refused_as_it_is_printed(
    urls: dict[str, str], block: str, over: str
) -> None:
    async with http_wire(urls[EXAMPLE]) if over == "http" else stdio_wire(EXAMPLE) as wire:
        await wire.send(printed(block).text, {})
        assert (await wire.read())["error"]["code"] == -32700
