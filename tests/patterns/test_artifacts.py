"""Artifacts: stored for their caller, listed and read as resources, and passed to other tools."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from antiphon import Artifact, Client, Limits, Result, Server
from antiphon.runtime.artifacts.service import whole_characters
from tests.patterns.conftest import in_a_thread
from tests.patterns.tooling import DIALECTS, Report, make, plainly
from tests.support.memory import in_memory
from tests.support.polling import until
from tests.support.serving import Address
from tests.support.speakers import Speaker

STORES = ("memory", "sqlite", "file")


def place(kind: str, folder: Path) -> str:
    """The URL of a new store."""
    return {
        "memory": "memory:",
        "sqlite": f"sqlite:///{folder}/artifacts.db",
        "file": f"file:///{folder}/artifacts",
    }[kind]


async def made(client: Speaker, tool: str = "create", **arguments: Any) -> str:
    return str((await client.call(tool, **arguments)).result["structuredContent"]["artifact_id"])


async def read(client: Speaker, uri: str) -> dict[str, Any]:
    (contents,) = (await client.ask("resources/read", {"uri": uri})).result["contents"]
    return dict(contents)


# On the wire


async def test_an_artifact_is_taken_by_the_next_tool(client: Speaker) -> None:
    id = await made(client, topic="bees")
    assert (await client.call("use", artifact_id=id)).text == "research_artifact: bees"


async def test_several_artifacts_are_taken_at_once(client: Speaker) -> None:
    ids = [await made(client, "note", text="a"), await made(client, "raw"), await made(client)]
    text = (await client.call("use_all", artifacts=ids)).text
    assert text == f"a {bytes(range(256))} {{'topic': 'bees', 'sources': []}}"
    assert (await client.call("use_pieces", artifact=ids[1])).text == "256"


async def test_a_parameter_of_an_artifact_is_a_string_in_the_schema(client: Speaker) -> None:
    tools = {tool["name"]: tool for tool in (await client.ask("tools/list")).result["tools"]}
    properties = tools["use"]["inputSchema"]["properties"]
    assert properties["artifact_id"]["type"] == "string"
    assert "artifact" in properties["artifact_id"]["description"]
    assert tools["use_all"]["inputSchema"]["properties"]["artifacts"]["items"]["type"] == "string"


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_no_artifact_another_s_and_an_expired_one_look_the_same(dialect: str, address: Address) -> None:
    mine = await plainly(dialect, address.port, headers={"x-who": "me"})
    theirs = await plainly(dialect, address.port, headers={"x-who": "them"})
    foreign, expired = await made(theirs), await made(mine, "note", ttl=0.001)

    async def has_expired() -> bool:
        return bool((await mine.call("use", artifact_id=expired)).result["isError"])

    await until(has_expired)
    said = set()
    for id in ("0" * 32, foreign, expired):
        response = await mine.call("use", artifact_id=id)
        assert response.result["isError"] is True
        said.add(response.text.replace(id, "ID"))
        error = (await mine.ask("resources/read", {"uri": f"artifact://patterns/{id}"})).error
        assert error["code"] == (-32602 if dialect == "2026-07-28" else -32002)
    assert len(said) == 1
    assert "Call the tool that creates it again" in said.pop()
    assert (await theirs.call("use", artifact_id=foreign)).result["isError"] is False


async def test_an_artifact_of_another_kind_is_explained(client: Speaker) -> None:
    response = await client.call("use", artifact_id=await made(client, "blog"))
    assert response.result["isError"] is True
    assert "of type 'blog_artifact' does not fit this parameter" in response.text
    assert "topic" in response.text
    response = await client.call("use", artifact_id=7)
    assert "Invalid arguments" in response.text


async def test_an_artifact_is_listed_linked_and_read(client: Speaker) -> None:
    result = (await client.call("create", topic="bees")).result
    link, id = result["content"][-1], result["structuredContent"]["artifact_id"]
    listed = (await client.ask("resources/list")).result
    (mine,) = [each for each in listed["resources"] if each["uri"] == link["uri"]]
    assert (mine["title"], mine["mimeType"], mine["size"]) == ("bees", "application/json", 29)
    assert mine["_meta"]["x-artifact-type"] == "research_artifact"
    assert listed.get("cacheScope", "private") == "private"
    for uri in (link["uri"], result["_meta"]["ui_uri"]):
        contents = await read(client, uri)
        assert contents["uri"] == uri
        assert json.loads(contents["text"]) == {"topic": "bees", "sources": []}
        assert contents["_meta"]["artifact_id"] == id
    templates = (await client.ask("resources/templates/list")).result["resourceTemplates"]
    assert [each["uriTemplate"] for each in templates] == [
        "artifact://patterns/{artifact_id}{?offset,length}"
    ]


async def test_an_artifact_is_read_in_ranges_that_cut_no_character(client: Speaker) -> None:
    uri = f"artifact://patterns/{await made(client, 'note', text='Grüße' * 5)}"
    assert (await read(client, f"{uri}?offset=2&length=3"))["text"] == "üß"[:1]  # ß would be cut
    text, contents = "", await read(client, f"{uri}?length=3")
    for _ in range(50):
        text += contents["text"]
        if "next" not in contents["_meta"]:
            break
        contents = await read(client, contents["_meta"]["next"])
    assert text == "Grüße" * 5
    blob = await read(client, f"artifact://patterns/{await made(client, 'raw')}?offset=250&length=100")
    assert base64.b64decode(blob["blob"]) == bytes(range(250, 256))
    refused = await client.ask("resources/read", {"uri": f"{uri}?offset=-1"})
    assert refused.error["code"] == -32602


async def test_a_long_text_becomes_an_artifact_with_a_beginning(client: Speaker) -> None:
    short = (await client.call("long_text", lines=10)).result
    assert "structuredContent" not in short
    result = (await client.call("long_text", lines=1000)).result
    text, link = result["content"]
    assert text["text"].startswith("line 0\nline 1\n")
    assert "beginning of 8,889 bytes" in text["text"]
    assert f"`{result['structuredContent']['artifact_id']}`" in text["text"]
    assert len(text["text"]) < 1200
    whole = (await read(client, link["uri"]))["text"]
    assert whole == "\n".join(f"line {number}" for number in range(1000))
    assert result["isError"] is False


async def test_a_long_value_becomes_an_artifact_that_a_tool_can_take(client: Speaker) -> None:
    id = await made(client, "long_report", sources=100)
    assert (await client.call("use", artifact_id=id)).text == "long_report_result: bees"


# Wherever they are kept


@pytest.mark.parametrize("kind", STORES)
async def test_artifacts_are_kept_in_every_store(kind: str, tmp_path: Path) -> None:
    server = make(artifacts=place(kind, tmp_path))
    async with in_memory(server) as client:
        for number in range(3):
            await client.call("create", topic=str(number))
        listed = await client.result("resources/list")
        titles = [each["title"] for each in listed["resources"]]
        assert sorted(titles) == ["0", "1", "2"]
        uri = listed["resources"][0]["uri"]
        assert (await client.result("resources/read", {"uri": uri}))["contents"]
        id = uri.rpartition("/")[2]
        assert (await client.text("use", artifact_id=id)).startswith("research_artifact")
    if kind != "memory":
        async with in_memory(make(artifacts=place(kind, tmp_path))) as other:
            assert (await other.text("use", artifact_id=id)).startswith("research_artifact")


async def test_artifacts_go_where_the_tasks_are(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/tasks.db"
    async with in_memory(make(store=url)) as client:
        result = await client.call("create")
    async with in_memory(make(store=url)) as client:
        await client.text("use", artifact_id=result["structuredContent"]["artifact_id"])
    assert [path.name for path in tmp_path.glob("*.db")] == ["tasks.db"]


async def test_lists_have_pages() -> None:
    server = make(page_size=2)

    @server.resource("note://one")
    async def one() -> str:
        return "1"

    async with in_memory(server) as client:
        for number in range(4):
            await client.call("create", topic=str(number))
        found, cursor = [], None
        for _ in range(10):
            page = await client.result("resources/list", {} if cursor is None else {"cursor": cursor})
            assert len(page["resources"]) <= 2
            found += [each.get("title") for each in page["resources"]]
            cursor = page.get("nextCursor")
            if cursor is None:
                break
        assert found[0] is None
        assert sorted(found[1:]) == ["0", "1", "2", "3"]
        assert (await client.error("resources/list", {"cursor": "artifacts:x"}))["code"] == -32602


async def test_an_artifact_has_bounds() -> None:
    limits = Limits(
        max_artifact_bytes=1000, max_stored_artifact_bytes=3000, artifact_page_bytes=100, drain_timeout=0.2
    )
    async with in_memory(make(limits=limits)) as client:
        failed = await client.call("note", text="x" * 1001)
        assert failed["isError"] is True
        assert "1000 bytes" in failed["content"][0]["text"]
        ids = []
        for _ in range(6):
            result = await client.call("note", text="x" * 900)
            ids.append(result["structuredContent"]["artifact_id"])
        listed = (await client.result("resources/list"))["resources"]
        assert [each["uri"].rpartition("/")[2] for each in listed] == ids[:2:-1], "the oldest are gone"
        read = (await client.result("resources/read", {"uri": listed[0]["uri"]}))["contents"][0]
        assert len(read["text"]) == 100
        assert read["_meta"]["next"].endswith("?offset=100&length=100")


async def test_a_server_offers_artifacts_once_it_has_some() -> None:
    server = Server("plain")

    @server.tool
    async def keep() -> Result:
        return Result(artifact=Artifact({"a": 1}))

    async with in_memory(server) as client:
        await client.initialize()
        assert not server.engine.capabilities.resources
        result = await client.call("keep")
        assert result["structuredContent"]["artifact"] == {"a": 1}
        assert server.engine.capabilities.resources
        await until(lambda: client.notifications)
        assert client.notifications[-1]["method"] == "notifications/resources/list_changed"
        assert (await client.result("resources/list"))["resources"]


async def test_files_and_pieces_can_be_artifacts(tmp_path: Path) -> None:
    server = Server("files")
    file = tmp_path / "page.html"
    file.write_text("<p>Hi</p>")

    @server.tool
    async def page() -> Artifact[Any]:
        return Artifact(file, type="page")

    @server.tool
    async def pieces() -> Artifact[Any]:
        return Artifact(iter(["a", "b"]))

    @server.tool
    async def back(text: Artifact[str]) -> str:
        return text.value

    @server.tool
    async def nothing() -> Artifact[bytes]:
        return Artifact(b"")

    async with Client(server) as client:
        kept = await client.call("page")
        (contents,) = (await client.read(kept.meta["ui_uri"])).contents  # type: ignore[index]
        assert (contents.mime_type, contents.text) == ("text/html", "<p>Hi</p>")  # type: ignore[union-attr]
        kept = await client.call("pieces")
        assert (await client.call("back", text=kept.data["artifact_id"])).text == "ab"
        empty = await client.call("nothing")
        assert (empty.data["size"], empty.is_error) == (0, False)


async def test_a_stream_has_one_artifact_and_what_is_deep_inside_is_not_looked_up() -> None:
    server = Server("one")

    class Deep(Report):
        model_config = {"arbitrary_types_allowed": True}
        inner: Artifact[Report]

    @server.tool
    async def two() -> AsyncIterator[Artifact[str]]:
        yield Artifact("a")
        yield Artifact("b")

    async def deep(deep: Deep) -> str:
        return deep.inner.value.topic

    deep.__annotations__ = {"deep": Deep, "return": str}
    server.add_tool(deep)
    async with in_memory(server) as client:
        assert (await client.call("two"))["isError"] is True
        assert (await client.call("deep", deep={"topic": "a", "inner": "x"}))["isError"] is True


def test_ids_cannot_be_guessed() -> None:
    ids = {Artifact(Report(topic="a")).id for _ in range(100)}
    assert len(ids) == 100
    assert all(len(id) == 32 for id in ids)


def test_the_kind_of_an_artifact_comes_from_its_class() -> None:
    class BlogPost(Report):
        pass

    kinds = [Artifact(value).type for value in (BlogPost(topic="a"), "a", b"a", {"a": 1}, Path("a"))]
    assert kinds == ["blog_post", "text", "file", "data", "file"]


@pytest.mark.parametrize("offset", range(8))
def test_a_stretch_of_text_has_whole_characters_alone(offset: int) -> None:
    raw = "aü€😀".encode()
    text, taken = whole_characters(raw[offset:], last=True)
    assert taken == len(raw) - offset
    assert "\ufffd" not in text


def test_a_server_in_a_thread_can_be_stopped() -> None:
    with in_a_thread(Server("short")):
        pass
