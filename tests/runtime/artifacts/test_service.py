"""Artifacts as arguments, among other resources, and their default location."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from antiphon import Artifact, Server
from antiphon.store.artifacts import open_artifacts
from tests.runtime.faulty_store import open_faulty_store
from tests.support.memory import InMemory, in_memory
from tests.support.polling import turns


def make(**options: Any) -> Server:
    server = Server("tests", **options)

    @server.tool
    async def note(text: str) -> Artifact[str]:
        return Artifact(text)

    @server.tool
    async def numbers() -> Artifact[bytes]:
        return Artifact(b"[1, 2, 3]", mime_type="application/json")

    @server.tool
    async def total(of: Artifact[list[int]]) -> int:
        return sum(of.value)

    @server.tool
    async def length(of: Artifact[bytes]) -> int:
        return len(of.value)

    @server.tool
    async def joined(of: dict[str, Artifact[str]]) -> str:
        return " ".join(f"{key}={artifact.value}" for key, artifact in of.items())

    return server


@pytest.fixture
async def client() -> AsyncIterator[InMemory]:
    async with in_memory(make()) as client:
        yield client


async def made(client: InMemory, tool: str, **arguments: Any) -> str:
    return str((await client.call(tool, **arguments))["structuredContent"]["artifact_id"])


async def test_artifacts_in_a_mapping_are_loaded(client: InMemory) -> None:
    one, two = [await made(client, "note", text=text) for text in ("a", "b")]
    assert await client.text("joined", of={"x": one, "y": two}) == "x=a y=b"


async def test_a_text_artifact_can_be_read_as_bytes(client: InMemory) -> None:
    assert await client.text("length", of=await made(client, "note", text="æøå")) == "6"


async def test_bytes_with_a_json_media_type_are_parsed(client: InMemory) -> None:
    assert await client.text("total", of=await made(client, "numbers")) == "6"


async def test_bytes_that_are_no_such_json_are_refused(client: InMemory) -> None:
    result = await client.call("total", of=await made(client, "note", text="[1]"))
    assert result["isError"] is True
    assert "does not fit this parameter" in result["content"][0]["text"]


async def test_artifacts_come_after_all_pages_of_other_resources() -> None:
    server = make(page_size=2)
    for number in range(5):
        server.resource(f"u://{number}")(lambda: "")
    async with in_memory(server) as client:
        ids = [await made(client, "note", text=text) for text in ("a", "b")]
        pages: list[list[str]] = []
        cursor: dict[str, Any] = {}
        while True:
            page = await client.result("resources/list", cursor)
            pages.append([resource["uri"] for resource in page["resources"]])
            if "nextCursor" not in page:
                break
            cursor = {"cursor": page["nextCursor"]}
    newest, oldest = (f"artifact://tests/{id}" for id in reversed(ids))
    assert pages == [["u://0", "u://1"], ["u://2", "u://3"], ["u://4", newest], [oldest]]


async def test_calls_that_come_together_open_the_store_once() -> None:
    store, opening = open_artifacts("memory:"), 0

    class Slow:
        """A store that takes a while to open."""

        def __getattr__(self, name: str) -> Any:
            return getattr(store, name)

        async def open(self) -> None:
            nonlocal opening
            opening += 1
            await turns()
            await store.open()

    async with in_memory(make(artifacts=Slow())) as client:
        ids = await asyncio.gather(*(made(client, "note", text=text) for text in "abc"))
        assert await client.text("joined", of=dict(zip("xyz", ids, strict=True))) == "x=a y=b z=c"
    assert opening == 1


async def test_a_custom_task_store_without_an_artifact_store_logs_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with in_memory(make(store=await open_faulty_store())) as client:
        await made(client, "note", text="a")
        await made(client, "note", text="b")
    told = [message for message in caplog.messages if "kept in memory" in message]
    assert len(told) == 1
    assert "ANTIPHON_ARTIFACTS" in told[0]
