"""The artifacts of a call that needs scopes: a token without them reads nothing of what the call stored."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from antiphon import Artifact, Server
from tests.authorization.test_scopes import READER, TOKENS, WRITER, caller
from tests.patterns.test_artifacts import STORES, place
from tests.support.serving import running
from tests.support.speakers import Modern, Session


def by_kind(arguments: Mapping[str, Any]) -> list[str]:
    return ["write"] if arguments.get("kind") == "secret" else []


def archive(artifacts: str) -> Server:
    server = Server("archive", authenticate=TOKENS, artifacts=artifacts)

    @server.tool(scopes=["write"])
    async def dump() -> Artifact[str]:
        return Artifact("hidden", type="dump")

    @server.tool(scopes=["write"], artifact_over=10)
    async def pour() -> str:
        return "hidden " * 10

    @server.tool(scopes=by_kind)
    async def export(kind: str) -> Artifact[str]:
        return Artifact(kind, type="export")

    @server.tool
    async def use(artifact: Artifact[str]) -> str:
        return f"it is {artifact.value}"

    return server


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize(("tool", "arguments"), [("dump", {}), ("pour", {}), ("export", {"kind": "secret"})])
async def test_an_artifact_needs_the_scopes_of_the_call_that_stored_it(
    store: str, tool: str, arguments: dict[str, str], tmp_path: Path
) -> None:
    async with running(archive(place(store, tmp_path))) as where:
        writer, reader = caller(Modern, where, WRITER), caller(Modern, where, READER)
        made = (await writer.call(tool, **arguments)).result["structuredContent"]["artifact_id"]
        uri = f"artifact://archive/{made}"
        listed = (await writer.ask("resources/list")).result["resources"]
        assert [each["uri"] for each in listed] == [uri]
        assert (await reader.ask("resources/list")).result["resources"] == []
        for each in (uri, f"{uri}?offset=1", f"ui://archive/{made}"):
            refused = await reader.ask("resources/read", {"uri": each})
            assert refused.status == 403
            assert refused.headers["www-authenticate"] == 'Bearer error="insufficient_scope", scope="write"'
            assert (await writer.ask("resources/read", {"uri": each})).status == 200
        failed = await reader.call("use", artifact=made)
        assert failed.result["isError"]
        assert "needs the scope write" in failed.text
        assert "hidden" not in failed.text
        assert (await writer.call("use", artifact=made)).text.startswith("it is ")


async def test_an_artifact_of_a_call_without_scopes_needs_none() -> None:
    async with running(archive("memory:")) as where:
        writer, reader = caller(Modern, where, WRITER), caller(Session, where, READER)
        made = (await writer.call("export", kind="open")).result["structuredContent"]["artifact_id"]
        assert (await reader.call("use", artifact=made)).text == "it is open"
