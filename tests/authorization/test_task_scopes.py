"""Tasks and authorization: who may ask for a task, and what a task stores of its principal."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from antiphon import Context, DefinitionError, IssuedTokens, Server
from tests.asking.driving import accept
from tests.promises.speaking import Patient, answer, begin, reach
from tests.promises.tooling import Name
from tests.support.issuer import RESOURCE, TestIssuer, issuing
from tests.support.serving import Address, running
from tests.support.speakers import Session


@pytest.fixture
async def issuer() -> AsyncIterator[TestIssuer]:
    async with issuing() as started:
        yield started


def by_kind(arguments: Mapping[str, Any]) -> list[str]:
    return [arguments["kind"]]


def notes(authenticate: IssuedTokens, store: str = "memory:", **options: Any) -> Server:
    server = Server("notes", authenticate=authenticate, store=store, **options)

    @server.tool(task="required", scopes=["write"])
    async def ask(ctx: Context) -> str:
        name = (await ctx.elicit("Who?", Name, key="who")).name
        return f"{ctx.principal.id} {sorted(ctx.principal.scopes)} {dict(ctx.principal.claims)} {name}"

    @server.tool(task="required", scopes=by_kind)
    async def keep(kind: str) -> str:
        return "kept"

    @server.tool(task="optional", answer_within=60)
    async def claims(ctx: Context) -> str:
        return str(dict(ctx.principal.claims))

    @server.tool(scopes=["write"])
    async def greet(ctx: Context) -> str:
        ctx.uuid()  # so that there is something to carry
        return (await ctx.elicit("Who?", Name, key="who")).name

    @server.tool
    async def plain(ctx: Context) -> str:
        return str(ctx.principal.claims["tenant"])

    return server


def caller(where: Address, token: str) -> Patient:
    return Patient(where.port, headers={"authorization": f"Bearer {token}"})


async def test_requests_about_a_task_need_the_scopes_of_its_tool(issuer: TestIssuer) -> None:
    tokens = IssuedTokens(issuer.url, resource=RESOURCE, scopes=["read"])
    async with running(notes(tokens)) as where:
        writer = caller(where, issuer.token(scope="read write"))
        reader = caller(where, issuer.token(scope="read"))
        task = await begin(writer, "ask")
        await reach(writer, task["taskId"], "input_required")
        named = {"taskId": task["taskId"]}
        refused = [
            await reader.ask("tasks/get", named),
            await reader.ask("tasks/cancel", named),
            await answer(reader, task["taskId"]),
        ]
        for response in refused:
            assert response.status == 403
            assert 'scope="read write"' in response.headers["www-authenticate"]
        assert await _followed(reader, task["taskId"]) == []
        assert await _followed(writer, task["taskId"]) == [task["taskId"]]
        assert (await writer.ask("tasks/get", named)).status == 200
        assert (await writer.ask("tasks/cancel", named)).status == 200


async def _followed(listener: Patient, id: str) -> list[str]:
    """Return the tasks that the server notifies a listener of, if the listener asks for this one."""
    async with listener.asking("subscriptions/listen", {"notifications": {"taskIds": [id]}}) as connection:
        assert (await connection.receive_head()).status == 200
        async for event in connection.events():
            if event.data:
                return list(event.frame["params"]["notifications"].get("taskIds", []))
    raise AssertionError("no event")


async def test_scopes_that_depend_on_arguments_count_for_the_task_too(issuer: TestIssuer) -> None:
    tokens = IssuedTokens(issuer.url, resource=RESOURCE)
    async with running(notes(tokens)) as where:
        task = await begin(caller(where, issuer.token(scope="red")), "keep", kind="red")
        named = {"taskId": task["taskId"]}
        assert (await caller(where, issuer.token(scope="red")).ask("tasks/get", named)).status == 200
        refused = await caller(where, issuer.token(scope="blue")).ask("tasks/get", named)
        assert refused.status == 403
        assert 'scope="red"' in refused.headers["www-authenticate"]


async def test_the_task_of_a_removed_tool_needs_the_scopes_of_its_submission(issuer: TestIssuer) -> None:
    server = notes(IssuedTokens(issuer.url, resource=RESOURCE))
    async with running(server) as where:
        red, other = caller(where, issuer.token(scope="red")), caller(where, issuer.token(scope="write"))
        task = await begin(red, "keep", kind="red")
        await reach(red, task["taskId"], "completed")
        server.remove_tool("keep")
        named = {"taskId": task["taskId"]}
        refused = await other.ask("tasks/get", named)
        assert refused.status == 403
        assert 'scope="red"' in refused.headers["www-authenticate"]
        assert await _followed(other, task["taskId"]) == []
        assert (await red.ask("tasks/get", named)).status == 200


async def test_a_list_of_tasks_leaves_out_those_of_other_scopes(issuer: TestIssuer) -> None:
    tokens = IssuedTokens(issuer.url, resource=RESOURCE)
    async with running(notes(tokens)) as where:
        for kind in ("red", "blue"):
            await begin(caller(where, issuer.token(scope=kind)), "keep", kind=kind)

        async def count(scope: str) -> int:
            session = Session(where.port, headers={"authorization": f"Bearer {issuer.token(scope=scope)}"})
            await session.open()
            return len((await session.ask("tasks/list")).result["tasks"])

        assert [await count("red"), await count("red blue"), await count("")] == [1, 2, 0]


async def test_a_task_outlives_its_token_and_stores_only_the_named_claims(
    issuer: TestIssuer, tmp_path: Path
) -> None:
    tokens = IssuedTokens(issuer.url, resource=RESOURCE)
    file = tmp_path / "tasks.sqlite"
    async with running(notes(tokens, f"sqlite:///{file}", task_claims=["tenant", "unknown"])) as where:
        old = issuer.token(scope="write more", tenant="acme", email="ada@example.com", jti="s3cret-id")
        task = await begin(caller(where, old), "ask")
        await reach(caller(where, old), task["taskId"], "input_required")
        # The caller has refreshed its token meanwhile.
        new = caller(where, issuer.token(scope="write", exp=issuer.claims()["exp"] + 60))
        await answer(new, task["taskId"], who="x")
        done = await reach(new, task["taskId"], "completed")
        text = done["result"]["content"][0]["text"]
        assert text.startswith(f"{issuer.url}#ada ['more', 'write'] {{'tenant': 'acme'}}")
        with sqlite3.connect(file) as database:
            dump = "\n".join(database.iterdump())
        assert "acme" in dump
        assert "expires_at" not in dump
        raw = file.read_bytes() + (tmp_path / "tasks.sqlite-wal").read_bytes()
        for secret in ("ada@example.com", "s3cret-id", *old.split(".")):
            assert secret not in dump
            assert secret.encode() not in raw


async def test_a_function_sees_the_same_claims_whether_its_call_becomes_a_task_or_not(
    issuer: TestIssuer,
) -> None:
    tokens = IssuedTokens(issuer.url, resource=RESOURCE)
    async with running(notes(tokens, task_claims=["tenant"])) as where:
        asker = caller(where, issuer.token(tenant="acme", email="ada@example.com"))
        assert (await asker.call("claims")).text == "{'tenant': 'acme'}"
        assert (await asker.call("plain")).text == "acme"


async def test_the_state_of_a_call_survives_a_refresh_and_its_scopes_are_checked_again(
    issuer: TestIssuer,
) -> None:
    tokens = IssuedTokens(issuer.url, resource=RESOURCE)
    async with running(notes(tokens)) as where:
        asked = (await caller(where, issuer.token(scope="write")).call("greet")).result
        assert asked["resultType"] == "input_required"
        params = {
            "name": "greet",
            "arguments": {},
            "requestState": asked["requestState"],
            "inputResponses": {"who": accept(name="Grace")},
        }
        later = issuer.claims()["exp"] + 60
        fewer = caller(where, issuer.token(exp=later, scope="read"))
        assert (await fewer.ask("tools/call", params)).status == 403
        other = caller(where, issuer.token(exp=later, scope="write", sub="bob"))
        assert "error" in (await other.ask("tools/call", params)).frame
        same = caller(where, issuer.token(exp=later, scope="write"))
        assert (await same.ask("tools/call", params)).text == "Grace"


async def test_the_task_of_one_issuers_ada_is_not_anothers(issuer: TestIssuer) -> None:
    async with issuing() as other:
        tokens = IssuedTokens([issuer.url, other.url], resource=RESOURCE)
        async with running(notes(tokens)) as where:
            task = await begin(caller(where, issuer.token(scope="write")), "ask")
            named = {"taskId": task["taskId"]}
            foreign = await caller(where, other.token(scope="write")).ask("tasks/get", named)
            assert "Task not found" in foreign.error["message"]
            assert (await caller(where, issuer.token(scope="write")).ask("tasks/get", named)).status == 200


def test_the_claims_of_tasks_are_a_list() -> None:
    with pytest.raises(DefinitionError, match="task_claims is a list"):
        Server("notes", task_claims="tenant")
