"""`ctx.headers`: the headers of the HTTP request that brought a call, without credentials."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon import Client, Context, Principal, Server
from antiphon.runtime.execution.request_headers import RequestHeaders
from tests.support.serving import serving

pytestmark = pytest.mark.usefixtures("way")

SECRETS = ("authorization", "cookie", "mcp-session-id", "proxy-authorization")
GIVEN = {
    "X-Tenant": "acme",
    "Traceparent": "00-1",
    "Cookie": "session=s3cret",
    "Proxy-Authorization": "Basic s3cret",
}


def build(**options: Any) -> Server:
    server = Server("tests", **options)

    @server.tool
    async def tenant(ctx: Context, padding: str = "") -> dict[str, str]:
        return {**ctx.headers, "got": ctx.headers["X-TENANT"], "length": str(len(ctx.headers))}

    @server.tool
    def in_thread(ctx: Context) -> str:
        return ctx.headers.get("x-tenant", "none")

    @server.tool
    async def asks(ctx: Context) -> str:
        name = await ctx.elicit("Name?", str, key="name")
        return f"{name} of {ctx.headers['x-tenant']}"

    @server.tool(task="optional")
    async def as_task(ctx: Context) -> str:
        return ", ".join(ctx.headers) or "none"

    @server.resource("data://tenant")
    async def resource(ctx: Context) -> str:
        return ctx.headers["x-tenant"]

    @server.prompt
    async def prompt(ctx: Context, name: str) -> str:
        return ctx.headers["x-tenant"]

    @server.completion("prompt", "name")
    async def names(value: str, ctx: Context) -> list[str]:
        return [ctx.headers["x-tenant"]]

    return server


def authenticate(headers: Any) -> Principal | None:
    return Principal("ada") if headers.get("authorization") == "Bearer s3cret" else None


@pytest.mark.parametrize("protocol", ["2026-07-28", "2025-11-25"])
@pytest.mark.parametrize("options", [{}, {"authenticate": authenticate}], ids=["anonymous", "authenticated"])
async def test_a_function_reads_the_headers_and_no_credentials(
    protocol: str, options: dict[str, Any]
) -> None:
    async with (
        serving(build(**options)) as address,
        Client(
            address.url,
            headers=GIVEN,
            auth="s3cret",
            protocol=protocol,
            elicit=lambda question: {"value": "Ada"},
        ) as client,
    ):
        for padding in (
            "",
            "x" * 100,
            "",
            "x" * 200_000,
        ):  # the same head again, and a body that is not small
            seen = (await client.call("tenant", padding=padding)).data
            assert (seen["got"], seen["x-tenant"], seen["traceparent"]) == ("acme", "acme", "00-1")
            assert not seen.keys() & {*SECRETS, "content-length"}
            assert int(seen["length"]) == len(seen) - 2
            assert "s3cret" not in str(seen)
        assert (await client.call("in_thread")).text == "acme"
        assert (await client.call("asks")).text == "Ada of acme"
        assert (await (await client.submit("as_task")).result()).text == "none"
        assert "acme" in str(await client.read("data://tenant"))
        assert "acme" in str(await client.prompt("prompt", {"name": "x"}))
        assert "acme" in str(await client.complete("prompt", "name", "a"))


async def test_there_are_none_without_http() -> None:
    async with Client(build()) as client:
        assert (await client.call("in_thread")).text == "none"


def test_the_mapping_is_read_only_and_names_may_have_any_case() -> None:
    headers = RequestHeaders({b"x-name": b"caf\xe9", b"authorization": b"Bearer s3cret"})
    assert headers["X-Name"] == headers["x-name"] == "café"
    assert dict(headers) == {"x-name": "café"}
    assert "Authorization" not in headers
    assert "Ünknown→" not in headers
    assert headers.get("authorization", "none") == "none"
    assert repr(headers) == "RequestHeaders(x-name)"
    with pytest.raises(TypeError):
        headers["x-name"] = "other"  # type: ignore[index]
