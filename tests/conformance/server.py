"""The server under test of the official conformance suite: `python tests/conformance/server.py PORT`."""

from __future__ import annotations

import base64
import sys
from typing import Annotated, Any

import promising
import uvicorn
from pydantic import Field

from antiphon import (
    Audio,
    BlobContents,
    Context,
    EmbeddedResource,
    Failure,
    Image,
    PromptMessage,
    Server,
    Text,
    TextContents,
)
from asking import register

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
WAV = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
JSON_SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}

server = Server("antiphon-conformance", version="1.0.0")


@server.tool
async def test_simple_text() -> str:
    """Answers with a text."""
    return "This is a simple text response for testing."


@server.tool
async def test_image_content() -> Image:
    """Answers with a picture."""
    return Image(PNG, "image/png")


@server.tool
async def test_audio_content() -> Audio:
    """Answers with a sound."""
    return Audio(WAV, "audio/wav")


@server.tool
async def test_embedded_resource() -> EmbeddedResource:
    """Answers with a resource."""
    return EmbeddedResource(
        TextContents("test://embedded-resource", "This is an embedded resource content.", "text/plain")
    )


@server.tool
async def test_multiple_content_types() -> list[Text | Image | EmbeddedResource]:
    """Answers with several kinds of content."""
    resource = TextContents(
        "test://mixed-content-resource", '{"test":"data","value":123}', "application/json"
    )
    return [Text("Multiple content types test:"), Image(PNG, "image/png"), EmbeddedResource(resource)]


@server.tool
async def test_tool_with_logging(ctx: Context) -> str:
    """Logs while it works."""
    for message in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await ctx.info(message)
    return "Logged three times."


@server.tool
async def test_tool_with_progress(ctx: Context) -> str:
    """Reports progress while it works."""
    for progress in (0, 50, 100):
        await ctx.progress(progress, 100, f"Completed step {progress} of 100")
    return "Made progress three times."


@server.tool
async def test_error_handling() -> str:
    """Always fails."""
    raise Failure("This tool intentionally returns an error for testing")


@server.tool
async def test_reconnection(ctx: Context) -> str:
    """Lets go of the connection: the caller comes back for the result."""
    await ctx.close_stream()
    return "Reconnection test completed successfully."


@server.tool
async def test_missing_capability(ctx: Context) -> str:
    """Needs a client that can sample."""
    ctx.require("sampling")
    return "The client can sample."


@server.tool
async def test_streaming_elicitation(ctx: Context) -> str:
    """Answers on a stream, without asking anything."""
    await ctx.progress(1, 1)
    return "Nothing was asked."


@server.tool
async def test_logging_tool(ctx: Context) -> str:
    """Logs for those who want to hear it."""
    await ctx.info("Logging evaluated")
    return "Logging evaluated"


@server.tool
async def test_trigger_tool_change() -> str:
    """Changes the list of tools."""
    server.add_tool(_passing, name="test_passing_tool", description="Is there for a moment.")
    server.remove_tool("test_passing_tool")
    return "The tools have changed."


@server.tool
async def test_trigger_prompt_change() -> str:
    """Changes the list of prompts."""
    server.add_prompt(_passing, name="test_passing_prompt", description="Is there for a moment.")
    server.remove_prompt("test_passing_prompt")
    return "The prompts have changed."


async def _passing() -> str:
    return "passing"


@server.tool
async def test_custom_header(
    region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})],
) -> str:
    """Takes an argument that is mirrored in a header."""
    return f"Region: {region}"


@server.tool(input_schema=JSON_SCHEMA)
async def json_schema_2020_12_tool(**arguments: Any) -> str:
    """Has a schema with everything in it."""
    return f"Called with {sorted(arguments)}."


@server.resource("test://static-text", name="Static Text", mime_type="text/plain")
async def static_text() -> str:
    """A text that never changes."""
    return "This is the content of the static text resource."


@server.resource("test://static-binary", name="Static Binary", mime_type="image/png")
async def static_binary() -> BlobContents:
    """A picture that never changes."""
    return BlobContents("test://static-binary", base64.b64encode(base64.b64decode(PNG)).decode(), "image/png")


@server.resource("test://watched-resource", name="Watched", mime_type="text/plain")
async def watched() -> str:
    """Something to subscribe to."""
    return "Watched resource content."


@server.resource("test://template/{id}/data", name="Template", mime_type="application/json")
async def template(id: str) -> dict[str, Any]:
    """Data for an id."""
    return {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}


@server.prompt
async def test_simple_prompt() -> str:
    """A prompt without arguments."""
    return "This is a simple prompt for testing."


@server.prompt
async def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    """A prompt with two arguments.

    Args:
        arg1: The first.
        arg2: The second.
    """
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@server.completion("test_prompt_with_arguments", "arg1")
async def complete_arg1(value: str) -> list[str]:
    return [value + suffix for suffix in ("ing", "ed")]


@server.prompt
async def test_prompt_with_embedded_resource(resourceUri: str) -> list[PromptMessage]:
    """A prompt with a resource in it."""
    resource = TextContents(resourceUri, "Embedded resource content for testing.", "text/plain")
    return [
        PromptMessage("user", EmbeddedResource(resource)),
        PromptMessage("user", Text("Please process the embedded resource above.")),
    ]


@server.prompt
async def test_prompt_with_image() -> list[PromptMessage]:
    """A prompt with a picture in it."""
    return [
        PromptMessage("user", Image(PNG, "image/png")),
        PromptMessage("user", Text("Please analyze the image above.")),
    ]


register(server)
promising.register(server)

if __name__ == "__main__":
    uvicorn.run(server.asgi(), port=int(sys.argv[1]), log_level="warning")
