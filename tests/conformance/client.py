"""What the official conformance suite drives: `python client.py URL`, the scenario in the environment."""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable

from antiphon import Failure
from antiphon.client import Client, Elicitation

SCENARIO = os.environ["MCP_CONFORMANCE_SCENARIO"]
CONTEXT = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))


async def accept(question: Elicitation) -> dict[str, object]:
    """Say yes to everything; what is not filled in gets its default."""
    properties = question.requested_schema.get("properties", {})
    return {"confirmed": True} if "confirmed" in properties else {}


async def list_only(client: Client) -> None:
    await client.tools()


async def add_numbers(client: Client) -> None:
    await client.tools()
    await client.call("add_numbers", a=5, b=3)


async def elicitation_defaults(client: Client) -> None:
    await client.tools()
    await client.call("test_client_elicitation_defaults")


async def reconnect(client: Client) -> None:
    await client.tools()
    await client.call("test_reconnection")


async def echo_schema(client: Client) -> None:
    tools = {tool.name: tool for tool in await client.tools()}
    await client.call("json_schema_echo", schema=tools["json_schema_2020_12_tool"].input_schema)


async def standard_headers(client: Client) -> None:
    await client.tools()
    await client.call("test_headers")
    await client.resources()
    await client.read("file:///path/to/file%20name.txt")
    await client.prompts()
    await client.prompt("test_prompt")


async def custom_headers(client: Client) -> None:
    await client.tools()
    for call in CONTEXT["toolCalls"]:
        await client.call(call["name"], call["arguments"])


async def rounds(client: Client) -> None:
    await client.tools()
    for name in ("echo_state", "unrelated", "no_state", "no_result_type"):
        await client.call(f"test_mrtr_{name}")


async def call_everything(client: Client) -> None:
    for tool in await client.tools():
        properties = tool.input_schema.get("properties", {})
        await client.call(tool.name, dict.fromkeys(properties, "x"))


SCENARIOS: dict[str, Callable[[Client], Awaitable[None]]] = {
    "initialize": list_only,
    "tools_call": add_numbers,
    "elicitation-sep1034-client-defaults": elicitation_defaults,
    "sse-retry": reconnect,
    "json-schema-2020-12-preservation": echo_schema,
    "json-schema-ref-no-deref": list_only,
    "request-metadata": add_numbers,
    "sep-2322-client-request-state": rounds,
    "http-standard-headers": standard_headers,
    "http-custom-headers": custom_headers,
    "http-invalid-tool-headers": call_everything,
}


async def main(url: str) -> None:
    capabilities = {"roots": {}, "sampling": {}} if SCENARIO == "request-metadata" else {}
    async with Client(url, timeout=20, elicit=accept, capabilities=capabilities) as client:
        try:
            await SCENARIOS.get(SCENARIO, list_only)(client)
        except Failure as failure:
            print(f"The tool failed: {failure}", file=sys.stderr)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
