"""Seeds 000 and 004, streaming: what a caller gets in segments, once more, and without them.

The third block is a `video`, as SEP-1905 prints it, although the protocol has no such content block. Ids,
times and texts of a task's status are ours.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from tests.cli.command import PATIENCE, running
from tests.seeds.blocks import printed
from tests.support.process import ROOT

SEEDS = ROOT / "examples" / "seeds.py"
RELATED = "io.modelcontextprotocol/related-task"
WEATHER = {
    "type": "text",
    "text": "Current weather in New York:\nTemperature: 72°F\nConditions: Partly cloudy",
}
ACTIVITIES = {
    "type": "text",
    "text": "Suggested activities:\n- Visit Central Park\n- Explore the Metropolitan Museum of Art",
}
VIDEO = {
    "type": "video",
    "text": "Here is a short video overview of New York City attractions.",
    "url": "https://example.com/nyc_overview.mp4",
}
BLOCKS = [WEATHER, ACTIVITIES, VIDEO]

MODES, ANSWER, PROMISE, RESUME = (printed(name).text for name in ("004:110", "000:265", "000:282", "004:359"))
PRINTED_ID = "786512e2-9e0d-44bd-8f29-789f320fe840"


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of `antiphon run examples/seeds.py`."""
    with running(SEEDS, directory=tmp_path_factory.mktemp("seeds")) as server:
        yield server.url


def post(url: str, body: str) -> list[dict[str, Any]]:
    """The frames that answer a bare POST: one as JSON, or those of an event stream."""
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    answer = httpx2.post(url, content=body.encode(), headers=headers, timeout=PATIENCE)
    assert answer.status_code == 200
    if answer.headers["content-type"] == "application/json":
        return [answer.json()]
    lines = [line for line in answer.text.splitlines() if line.startswith("data:")]
    return [json.loads(line.removeprefix("data:")) for line in lines]


def segments(frames: list[dict[str, Any]]) -> list[tuple[int, dict[str, Any]]]:
    """All segments by number, in the order in which they came."""
    found = [dict(block) for frame in frames for block in frame["result"]["partial-content"]]
    return [(block.pop("seqNr"), block) for block in found]


def test_a_promise_comes_in_segments_and_is_resumed_after_a_number(seeds: str) -> None:
    streaming = MODES.replace('["immediate", "task", "streaming"]', '["streaming"]')
    frames = post(seeds, streaming)
    assert segments(frames) == list(enumerate(BLOCKS, 1))
    made = frames[0]["result"]["task"]["taskId"]
    for frame in frames:
        assert frame["id"] == 1
        assert frame["result"]["_meta"] == {RELATED: {"taskId": made}}

    again = post(seeds, PROMISE.replace(PRINTED_ID, made))
    assert segments(again) == list(enumerate(BLOCKS, 1))
    assert again[-1]["id"] == 4

    (rest,) = post(seeds, RESUME.replace(PRINTED_ID, made))
    assert rest == {
        "jsonrpc": "2.0",
        "id": 4,
        "result": {
            "partial-content": [{"seqNr": 3, **VIDEO}],
            "isError": False,
            "isComplete": True,
            "_meta": {RELATED: {"taskId": made}},
            "resultType": "complete",
        },
    }


def test_a_caller_that_takes_no_segments_gets_what_it_always_got(seeds: str) -> None:
    (frame,) = post(seeds, ANSWER.replace(',\n    "stream": {}', ""))
    (block,) = frame["result"]["content"]
    assert block["text"] == "Current weather in New York:\nTemperature: 72° F\nConditions: Partly cloudy"
