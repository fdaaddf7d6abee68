"""URIs that attack the templates of a server: long ones, and ones that leave their place in a path."""

from __future__ import annotations

import pytest

from antiphon import Server
from tests.support.memory import in_memory
from tests.support.serving import serving
from tests.support.speakers import DIALECTS, speaker

ATTACKS = {
    "dashes": "date://" + "-" * 2000,
    "dashes and a slash": "date://" + "-" * 8000 + "/",
    "too long": "date://" + "1-" * 5_000,
    "an encoded slash": "note://..%2f..%2fetc%2fpasswd",
    "an encoded backslash": "note://..%5cetc",
    "a parent": "note://..",
    "an encoded parent": "note://%2e%2e",
    "a NUL": "note://a%00.txt",
    "a parent in a path": "tree://a/../../etc/passwd",
    "an encoded parent in a path": "tree://a%2f..%2f..%2fetc",
}


def build() -> Server:
    server = Server("tests")

    @server.resource("date://{y}-{m}-{d}")
    async def date(y: str, m: str, d: str) -> str:
        return f"{len(y)} {m} {d}"

    @server.resource("note://{name}")
    async def note(name: str) -> str:
        return name

    @server.resource("tree://{path*}")
    async def tree(path: str) -> str:
        return path

    @server.resource("raw://{+path}")
    async def raw(path: str) -> str:
        return path

    return server


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_over_http_each_attack_is_a_resource_that_there_is_not(dialect: str) -> None:
    async with serving(build()) as where:
        client = await speaker(dialect, where.port)
        for name, uri in ATTACKS.items():
            if name == "dashes":
                continue
            answer = await client.ask("resources/read", {"uri": uri})
            assert "Resource not found" in answer.error["message"], name
            assert len(answer.body) < 20_000, name
        for uri, expected in (("date://" + "-" * 2000, "1996 - -"), ("raw://a%2f../b", "a/../b")):
            read = await client.ask("resources/read", {"uri": uri})
            assert read.result["contents"][0]["text"] == expected


async def test_in_memory_too() -> None:
    async with in_memory(build()) as client:
        for name, uri in ATTACKS.items():
            if name != "dashes":
                assert "Resource not found" in (await client.error("resources/read", {"uri": uri}))["message"]
        subscribed = await client.error("resources/subscribe", {"uri": "note://..%2f"})
        assert subscribed
