"""What the official conformance suite drives: `python client.py URL`, the scenario in the environment.

The tests drive it in their own process, but for one scenario.
"""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import aiohttp

from antiphon import Failure, IdTokenExchange, MemoryLogins, OAuth
from antiphon.client import Client, Elicitation

Context = Mapping[str, Any]
"""What the suite tells the client beside the URL."""


async def accept(question: Elicitation) -> dict[str, object]:
    """Say yes to everything; what is not filled in gets its default."""
    properties = question.requested_schema.get("properties", {})
    return {"confirmed": True} if "confirmed" in properties else {}


async def list_only(client: Client, context: Context) -> None:
    await client.tools()


async def list_and_call(client: Client, context: Context) -> None:
    await client.tools()
    await client.call("test-tool")


async def add_numbers(client: Client, context: Context) -> None:
    await client.tools()
    await client.call("add_numbers", a=5, b=3)


async def elicitation_defaults(client: Client, context: Context) -> None:
    await client.tools()
    await client.call("test_client_elicitation_defaults")


async def reconnect(client: Client, context: Context) -> None:
    await client.tools()
    await client.call("test_reconnection")


async def echo_schema(client: Client, context: Context) -> None:
    tools = {tool.name: tool for tool in await client.tools()}
    await client.call("json_schema_echo", schema=tools["json_schema_2020_12_tool"].input_schema)


async def standard_headers(client: Client, context: Context) -> None:
    await client.tools()
    await client.call("test_headers")
    await client.resources()
    await client.read("file:///path/to/file%20name.txt")
    await client.prompts()
    await client.prompt("test_prompt")


async def custom_headers(client: Client, context: Context) -> None:
    await client.tools()
    for call in context["toolCalls"]:
        await client.call(call["name"], call["arguments"])


async def rounds(client: Client, context: Context) -> None:
    await client.tools()
    for name in ("echo_state", "unrelated", "no_state", "no_result_type"):
        await client.call(f"test_mrtr_{name}")


async def call_everything(client: Client, context: Context) -> None:
    for tool in await client.tools():
        properties = tool.input_schema.get("properties", {})
        await client.call(tool.name, dict.fromkeys(properties, "x"))


SCENARIOS: dict[str, Callable[[Client, Context], Awaitable[None]]] = {
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


async def follow_redirect(url: str) -> str:
    """Visit the page of a login, which needs no person, and return where it leads."""
    async with aiohttp.ClientSession() as browser, browser.get(url, allow_redirects=False) as page:
        return page.headers["Location"]


def authorization(scenario: str, context: Context) -> OAuth | None:
    """Return how the client gets tokens in this scenario."""
    if not scenario.startswith("auth/"):
        return None
    if scenario == "auth/client-credentials-jwt":
        key, algorithm = context["private_key_pem"], context["signing_algorithm"]
        return OAuth.service(context["client_id"], private_key=key, algorithm=algorithm)
    if scenario == "auth/client-credentials-basic":
        return OAuth.service(context["client_id"], context["client_secret"], issuer=OAuth.ANY_ISSUER)
    if scenario == "auth/enterprise-managed-authorization":
        exchange = IdTokenExchange(
            context["idp_id_token"], context["idp_token_endpoint"], context["idp_client_id"]
        )
        client_id, client_secret = context["client_id"], context["client_secret"]
        return OAuth.assertion(
            exchange, client_id=client_id, client_secret=client_secret, issuer=OAuth.ANY_ISSUER
        )
    if scenario == "auth/wif-jwt-bearer":
        return OAuth.assertion(context["valid_jwt"], client_id=context["client_id"], issuer=OAuth.ANY_ISSUER)
    return OAuth(
        client_id=context.get("client_id"),
        client_secret=context.get("client_secret"),
        issuer=OAuth.ANY_ISSUER,  # the suite names no issuer
        client_metadata_url="https://conformance-test.local/client-metadata.json",
        store=MemoryLogins(),
        open_browser=follow_redirect,
    )


async def play(url: str, env: Mapping[str, str]) -> None:
    """Take part in the scenario that the environment names."""
    scenario, context = env["MCP_CONFORMANCE_SCENARIO"], json.loads(env.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    capabilities = {"roots": {}, "sampling": {}} if scenario == "request-metadata" else {}
    options: dict[str, Any] = {
        "elicit": accept,
        "capabilities": capabilities,
        "auth": authorization(scenario, context),
    }
    async with Client(url, timeout=60, **options) as client:
        try:
            default = list_and_call if scenario.startswith("auth/") else list_only
            await SCENARIOS.get(scenario, default)(client, context)
        except Failure as failure:
            print(f"The tool failed: {failure}", file=sys.stderr)


if __name__ == "__main__":
    asyncio.run(play(sys.argv[1], os.environ))
