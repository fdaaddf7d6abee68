"""The values that a tool returns, and the response in every dialect: the success patterns of seed 003."""

from __future__ import annotations

import base64
import json
import logging
from typing import Any

import matplotlib.figure
import PIL.Image
import pytest

from antiphon import Client, Image, Result, Server
from tests.patterns.tooling import SECRET, WAV, make, png, redeemed
from tests.support.memory import in_memory
from tests.support.speakers import Modern, Speaker


def texts(result: dict[str, Any]) -> list[str]:
    return [block["text"] for block in result["content"] if block["type"] == "text"]


def data(client: Speaker, value: Any) -> Any:
    """Return a value that is not an object in the form of the dialect."""
    return value if isinstance(client, Modern) else {"result": value}


# The patterns


async def test_simple_success(client: Speaker) -> None:
    result = (await client.call("simple")).result
    assert result["content"] == [{"type": "text", "text": "Task completed successfully."}]
    assert result["structuredContent"] == {"status": "completed"}
    assert result["isError"] is False


async def test_with_an_artifact(client: Speaker) -> None:
    result = (await client.call("create", topic="bees")).result
    id = result["structuredContent"]["artifact_id"]
    text, link = result["content"]
    assert text == {"type": "text", "text": f"**Artifact ID:** `{id}`"}
    assert (link["type"], link["uri"]) == ("resource_link", f"artifact://patterns/{id}")
    assert (link["mimeType"], link["title"]) == ("application/json", "bees")
    assert result["structuredContent"] == {
        "x-artifact-type": "research_artifact",
        "artifact_id": id,
        "status": "completed",
    }
    assert result["isError"] is False
    assert result["_meta"]["artifact_id"] == id
    assert result["_meta"]["ui_uri"] == f"ui://patterns/{id}"


async def test_with_rich_data(client: Speaker) -> None:
    result = (await client.call("rich")).result
    assert texts(result) == ["## Research Complete"], "what is data is not said a second time"
    assert result["structuredContent"] == {
        "topic": "bees",
        "sources": [{"title": "A", "uri": "https://a", "relevance": 0.5}],
    }
    assert result["isError"] is False
    assert result["_meta"]["took"] == 3


async def test_a_typed_artifact_has_its_value_in_it(client: Speaker) -> None:
    result = (await client.call("blog")).result
    id = result["structuredContent"]["artifact_id"]
    assert result["structuredContent"] == {
        "x-artifact-type": "blog_artifact",
        "artifact_id": id,
        "size": 26,
        "artifact": {"title": "Bees", "words": 3},
    }
    assert texts(result) == [f"**Bees**, 3 words\n\n**Artifact ID:** `{id}`"]


async def test_several_blocks(client: Speaker) -> None:
    result = (await client.call("several")).result
    assert texts(result) == ["## Summary\n\nOperation completed.", "### Details\n\nNone."]
    assert (result["isError"], "structuredContent" in result) == (False, False)


async def test_pictures_and_sounds(client: Speaker) -> None:
    result = (await client.call("media")).result
    kinds = [(block["type"], block.get("mimeType")) for block in result["content"]]
    picture, sound = ("image", "image/png"), ("audio", "audio/wav")
    assert kinds == [("text", None), picture, sound, picture, sound]
    assert base64.b64decode(result["content"][1]["data"]) == png()
    assert base64.b64decode(result["content"][4]["data"]) == WAV


@pytest.mark.parametrize(
    ("tool", "structured", "text"),
    [
        ("text", None, "Just words."),
        ("model", {"topic": "bees", "sources": [{"title": "A", "uri": "https://a", "relevance": 1.0}]}, None),
        ("spoken", {"title": "Bees", "words": 3}, "**Bees**, 3 words"),
        ("size", {"width": 3}, None),
        ("mapping", {"status": "completed", "at": {"width": 1}}, None),
        ("silent", {"status": "completed"}, None),
    ],
)
async def test_what_is_returned_is_read_and_parsed(
    client: Speaker, tool: str, structured: Any, text: str | None
) -> None:
    result = (await client.call(tool)).result
    assert result.get("structuredContent") == structured
    (read,) = texts(result)
    assert read == text if text is not None else json.loads(read) == structured
    assert result["isError"] is False


async def test_a_list_is_data_that_older_versions_wrap(client: Speaker) -> None:
    result = (await client.call("numbers")).result
    assert (result["structuredContent"], texts(result)) == (data(client, [1, 2]), ["[1,2]"])


async def test_next_steps_are_said_and_can_be_parsed(client: Speaker) -> None:
    one = (await client.call("steps")).result
    assert texts(one) == ["Done.\n\n**Next step:** Call `create_blog_post`."]
    assert one["structuredContent"]["next_steps"] == ["Call `create_blog_post`."]
    two = (await client.call("steps", count=2)).result
    assert texts(two) == ["Done.\n\n**Next steps:**\n\n- Call `create_blog_post`.\n- Rest."]


# Every result is complete through a task, too


@pytest.mark.parametrize("tool", ["text", "rich"])
async def test_a_task_gives_what_the_call_would_have_given(patient: Speaker, tool: str) -> None:
    plain = Modern(patient.port)
    expected = (await plain.call(tool)).result
    result = await redeemed(patient, tool)
    for key in ("content", "structuredContent", "isError"):
        assert result.get(key) == expected.get(key)


async def test_an_artifact_comes_out_of_a_task(patient: Speaker) -> None:
    result = await redeemed(patient, "create", topic="tasks")
    id = result["structuredContent"]["artifact_id"]
    assert result["_meta"]["ui_uri"] == f"ui://patterns/{id}"
    used = (await Modern(patient.port).call("use", artifact_id=id)).result
    assert texts(used) == ["research_artifact: tasks"]


async def test_an_artifact_comes_at_the_end_of_segments(client: Speaker) -> None:
    result = (await client.call("streamed_artifact")).result
    id = result["structuredContent"]["artifact_id"]
    assert texts(result)[0] == "Working."
    assert id in texts(result)[1]
    assert result["content"][-1]["uri"] == f"artifact://patterns/{id}"


async def test_data_after_segments_is_not_said_a_second_time(client: Speaker) -> None:
    result = (await client.call("streamed")).result
    assert (texts(result), result["structuredContent"]) == (["first", "second"], {"count": 2})


# What was declared holds


async def test_every_output_fits_the_schema_that_is_listed(client: Speaker) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    tools = {tool["name"]: tool for tool in (await client.ask("tools/list")).result["tools"]}
    calls = {
        name: {} for name in ("model", "spoken", "size", "numbers", "rich", "create", "blog", "note", "raw")
    }
    calls |= {"long_report": {"sources": 1}, "long_list": {"items": 3}}
    large = {"long_report": {"sources": 100}, "long_list": {"items": 1000}}
    for name, arguments in [*calls.items(), *large.items()]:
        result = (await client.call(name, **arguments)).result
        schema = tools[name]["outputSchema"]
        jsonschema.validate(result["structuredContent"], schema)
        assert isinstance(client, Modern) or schema["type"] == "object"


@pytest.mark.parametrize("tool", ["lying", "empty_handed", "wrong_blog"])
async def test_a_result_that_does_not_fit_is_a_mistake_of_the_server_s(
    client: Speaker, tool: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, "antiphon"):
        response = await client.call(tool)
    assert response.result["isError"] is True
    assert "an error of the server" in response.text
    assert "s3cret" not in response.body.decode()
    assert "structuredContent" not in response.result
    if tool != "empty_handed":
        assert SECRET in caplog.text, "the log has it in full"


async def test_versions_without_structured_content_get_it_as_text() -> None:
    for version in ("2025-03-26", "2024-11-05"):
        async with in_memory(make()) as client:
            await client.initialize(version)
            rich = await client.call("rich")
            assert "structuredContent" not in rich
            assert texts(rich)[0] == "## Research Complete"
            assert json.loads(texts(rich)[1])["topic"] == "bees"
            assert len(texts(await client.call("model"))) == 1
            assert texts(await client.call("numbers")) == ["[1,2]"]
            assert [block["type"] for block in (await client.call("blog"))["content"]] == ["text"] * 3
            tools = (await client.result("tools/list"))["tools"]
            assert not any("outputSchema" in tool for tool in tools)
    async with in_memory(make()) as client:
        await client.initialize("2025-06-18")
        assert len(texts(await client.call("rich"))) == 1


# Pictures from elsewhere


async def test_pictures_of_libraries_and_files(tmp_path: Any) -> None:
    server = Server("pictures")
    file = tmp_path / "pixel.png"
    file.write_bytes(png())

    @server.tool
    async def pillow() -> PIL.Image.Image:
        return PIL.Image.new("RGB", (2, 2))

    @server.tool
    async def figure() -> matplotlib.figure.Figure:
        return matplotlib.figure.Figure(figsize=(1, 1))

    @server.tool
    async def path() -> Any:
        return file

    @server.tool
    async def jpeg() -> Image:
        return Image.of(PIL.Image.new("RGB", (2, 2)), "image/jpeg")

    async with Client(server) as client:
        for tool in ("pillow", "figure", "path"):
            (block,) = (await client.call(tool)).content
            assert isinstance(block, Image)
            assert block.mime_type == "image/png"
            assert base64.b64decode(block.data).startswith(b"\x89PNG")
        (block,) = (await client.call("jpeg")).content
        assert base64.b64decode(block.data).startswith(b"\xff\xd8\xff")


def test_what_is_no_picture_is_refused_with_a_hint() -> None:
    with pytest.raises(ValueError, match="mime_type"):
        Image.of(b"who knows")
    with pytest.raises(TypeError, match="bytes, a path"):
        Image.of(3)
    assert Image.of(b"who knows", "image/x").mime_type == "image/x"


def test_a_result_can_be_returned_again_and_again() -> None:
    from antiphon.runtime.authoring.results import ResultBuilder

    result: Result = Result("a", data={"b": 1}, next_steps=["c"])
    convert = ResultBuilder("t", Result).convert
    assert convert(convert(result)).data == {"next_steps": ["c"], "b": 1}
    assert result.text == "a\n\n**Next step:** c"
