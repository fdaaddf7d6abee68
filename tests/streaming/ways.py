"""The response modes of a tool that emits: with the result or streamed, as an answer or as a task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from tests.asking.driving import Able
from tests.promises.speaking import reach
from tests.streaming.speaking import (
    PARTIAL_RESULT,
    Follower,
    numbered,
    reading,
    speaker,
    streamed,
    wish,
)
from tests.support.http import Response
from tests.support.speakers import Modern, Speaker

WAYS = ("answer", "stream", "task", "task stream")


class Ending(NamedTuple):
    """The outcome of a call in any response mode."""

    content: list[Any]
    """Its blocks; texts as what they say."""
    is_error: bool
    last: dict[str, Any]
    """The result object that came last."""
    error: dict[str, Any] | None
    segments: list[tuple[int, Any]]
    """What came as segments."""

    @property
    def structured(self) -> Any:
        """Return the structured content, or `None`."""
        return self.last.get("structuredContent")

    @property
    def meta(self) -> dict[str, Any]:
        """Return the metadata without the keys of the protocol."""
        meta = self.last.get("_meta", {})
        return {key: value for key, value in meta.items() if not key.startswith("io.model")}


async def go(way: str, dialect: str, port: int, tool: str, /, **arguments: Any) -> Ending:
    """Call a tool in one of the response modes."""
    promises = way.startswith("task")
    client = await speaker(dialect, port, promises=promises)
    if way == "answer":
        asking: Speaker = Able(port) if isinstance(client, Modern) else client
        return _read(await asking.call(tool, **arguments))
    if way == "stream":
        return _read(await client.ask("tools/call", streamed(client, tool, **arguments)))
    if isinstance(client, Follower):
        return await _followed(client, way, (await client.call(tool, **arguments)).result["taskId"])
    if way == "task stream":
        return _read(await client.ask("tools/call", wish(tool, "streaming", **arguments)))
    made = (await client.ask("tools/call", wish(tool, **arguments))).result["task"]["taskId"]
    await reach(client, made, "completed", "failed")
    return _read(await client.ask("tasks/result", {"taskId": made}))


async def _followed(client: Follower, way: str, id: str) -> Ending:
    if way == "task":
        task, frames = await reach(client, id, "completed", "failed"), []
    else:
        async with reading(client, "tasks/stream", {"taskId": id}) as stream:
            task, frames = (await stream.rest())["result"], stream.frames
    result = task.get("result", {})
    content = [block.get("text", block) for block in result.get("content", ())]
    segments = numbered(frames)
    if way == "task stream" and result:
        assert [text for _, text in segments] == content
    return Ending(content, result.get("isError", True), result, task.get("error"), segments)


def _read(response: Response) -> Ending:
    segments = numbered(response.frames)
    numbers = [number for number, _ in segments]
    assert numbers == list(range(1, len(numbers) + 1)), segments
    last = response.frame
    if "error" in last:
        return Ending([text for _, text in segments], True, {}, last["error"], segments)
    result: Mapping[str, Any] = last["result"]
    if "partial-content" in result:
        assert result["isComplete"] is True
        content = [text for _, text in segments]
    else:
        content = [block.get("text", block) for block in result["content"]]
        if any(frame.get("method") == PARTIAL_RESULT for frame in response.frames):
            assert [text for _, text in segments] == content[: len(segments)]
    return Ending(content, result["isError"], dict(result), None, segments)
