"""The scopes of tools, resources and prompts: checked before anything runs or streams."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from antiphon import BearerTokens, Client, Context, DefinitionError, IssuedTokens, Principal, Server
from antiphon.errors import RequestError
from tests.support import http
from tests.support.issuer import RESOURCE, TestIssuer, issuing
from tests.support.serving import WAYS, Address, running
from tests.support.speakers import DIALECTS, Bare, Modern, Session, Speaker, speaker

READER, WRITER = "reader-s3cret", "writer-s3cret"
TOKENS = BearerTokens(
    {READER: Principal("ada", frozenset({"read"})), WRITER: Principal("ada", frozenset({"read", "write"}))}
)
ran: list[str] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


def by_kind(arguments: Mapping[str, Any]) -> list[str]:
    return ["write", "purge"] if arguments["kind"] == "all" else []


def notes(**options: Any) -> Server:
    server = Server("notes", **{"authenticate": TOKENS, **options})

    @server.tool
    async def ping() -> str:
        return "pong"

    @server.tool(scopes=["write"], meta={"x": 1})
    async def save() -> str:
        ran.append("save")
        return "saved"

    @server.tool(scopes=["write"])
    async def pour() -> AsyncIterator[str]:
        ran.append("pour")
        yield "drop"

    @server.tool(scopes=by_kind)
    async def delete(kind: str) -> str:
        ran.append("delete")
        return "deleted"

    @server.resource("notes://secret", scopes=["write"])
    async def secret() -> str:
        ran.append("secret")
        return "hidden"

    @server.resource("notes://of/{kind}", scopes=by_kind)
    async def of(kind: str) -> str:
        ran.append("of")
        return "some"

    @server.prompt(scopes=["write"])
    async def draft(topic: str) -> str:
        ran.append("draft")
        return topic

    @server.completion("draft", "topic")
    async def topics(typed: str) -> list[str]:
        ran.append("topics")
        return ["tea"]

    return server


def caller(kind: type[Any], where: Address, token: str = READER) -> Any:
    return kind(where.port, headers={"authorization": f"Bearer {token}"})


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("way", WAYS)
async def test_a_call_without_its_scopes_gets_403_and_runs_nothing(dialect: str, way: str) -> None:
    async with WAYS[way](notes()) as where:
        asker = await speaker(dialect, where.port, headers={"authorization": f"Bearer {READER}"})
        assert (await asker.call("ping")).text == "pong"
        for tool in ("save", "pour"):
            refused = await asker.call(tool)
            assert (refused.status, refused.error["code"]) == (403, -32600)
            assert refused.headers["www-authenticate"] == 'Bearer error="insufficient_scope", scope="write"'
            assert refused.headers["content-type"] == "application/json"
        assert ran == []
        asker.headers["authorization"] = f"Bearer {WRITER}"
        assert (await asker.call("save")).text == "saved"


@pytest.mark.parametrize("kind", [Modern, Bare])
async def test_a_refused_call_does_not_begin_a_stream(kind: type[Speaker]) -> None:
    async with running(notes()) as where:
        asker = caller(kind, where)
        asker.headers["accept"] = "text/event-stream, application/json"
        refused = await asker.call("pour")
        assert (refused.status, refused.is_stream) == (403, False)
        assert ran == []


async def test_scopes_may_depend_on_the_arguments_and_are_named_all_at_once() -> None:
    async with running(notes()) as where:
        asker = caller(Modern, where)
        assert (await asker.call("delete", kind="one")).text == "deleted"
        refused = await asker.call("delete", kind="all")
        assert refused.status == 403
        assert 'scope="write purge"' in refused.headers["www-authenticate"]
        assert ran == ["delete"]


async def test_a_scopes_function_that_fails_refuses_the_call(caplog: pytest.LogCaptureFixture) -> None:
    async with running(notes()) as where:
        failed = await caller(Modern, where).call("delete")
        assert failed.error["code"] == -32603
        assert "KeyError" in caplog.text
        assert ran == []


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("resources/read", {"uri": "notes://secret"}),
        ("resources/read", {"uri": "notes://of/all"}),
        ("prompts/get", {"name": "draft", "arguments": {"topic": "tea"}}),
        (
            "completion/complete",
            {"ref": {"type": "ref/prompt", "name": "draft"}, "argument": {"name": "topic", "value": ""}},
        ),
    ],
)
async def test_resources_prompts_and_completions_are_checked_too(method: str, params: dict[str, Any]) -> None:
    async with running(notes()) as where:
        refused = await caller(Modern, where).ask(method, params)
        assert refused.status == 403
        assert 'error="insufficient_scope", scope="write' in refused.headers["www-authenticate"]
        assert ran == []
        if params.get("uri") != "notes://of/all":
            assert (await caller(Modern, where, WRITER).ask(method, params)).status == 200


async def test_subscriptions_are_checked_too() -> None:
    async with running(notes()) as where:
        session = caller(Session, where)
        await session.open()
        assert (await session.ask("resources/subscribe", {"uri": "notes://secret"})).status == 403
        assert (await session.ask("resources/subscribe", {"uri": "notes://of/one"})).status == 200
        listen = {"notifications": {"resourceSubscriptions": ["notes://secret"]}}
        assert (await caller(Modern, where).ask("subscriptions/listen", listen)).status == 403


async def test_lists_say_which_scopes_are_needed() -> None:
    async with running(notes()) as where:
        asker = caller(Modern, where)
        tools = (await asker.ask("tools/list")).result
        needed = {tool["name"]: tool.get("_meta") for tool in tools["tools"]}
        assert needed == {
            "ping": None,
            "save": {"x": 1, "antiphon/scopes": ["write"]},
            "pour": {"antiphon/scopes": ["write"]},
            "delete": None,
        }
        assert tools["cacheScope"] == "public"


async def test_lists_can_hide_what_a_caller_may_not_use() -> None:
    async with running(notes(hide_forbidden=True, page_size=1)) as where:

        async def listed(token: str, method: str, key: str) -> list[str]:
            found, cursor = [], {}
            while True:
                page = (await caller(Modern, where, token).ask(method, cursor)).result
                assert page["cacheScope"] == "private"
                found += [item["name"] for item in page[key]]
                if "nextCursor" not in page:
                    return found
                cursor = {"cursor": page["nextCursor"]}

        assert await listed(READER, "tools/list", "tools") == ["ping", "delete"]
        assert await listed(WRITER, "tools/list", "tools") == ["ping", "save", "pour", "delete"]
        assert await listed(READER, "resources/list", "resources") == []
        assert await listed(READER, "prompts/list", "prompts") == []
        # A hidden tool is refused with the scopes that it needs, and not as an unknown tool.
        assert (await caller(Modern, where).call("save")).status == 403


@pytest.mark.parametrize("way", WAYS)
async def test_the_challenge_names_the_scopes_of_the_server_and_of_the_tool(way: str) -> None:
    async with issuing() as issuer:
        tokens = IssuedTokens(
            issuer.url, resource=RESOURCE, scopes=["read"], implies={"admin": ["read", "write"]}
        )
        async with WAYS[way](notes(authenticate=tokens)) as where:

            async def status(method: str, params: Any, scope: str) -> tuple[int, str | None]:
                token = issuer.token(scope=scope)
                response = await caller(Modern, where, token).ask(method, params)
                return response.status, response.headers.get("www-authenticate")

            save = {"name": "save", "arguments": {}}
            found, challenge = await status("tools/call", save, "other")
            assert (found, challenge) == (
                403,
                'Bearer error="insufficient_scope", '
                "error_description=\"'save' needs the scopes read write.\", "
                'scope="read write", '
                'resource_metadata="https://notes.example.com/.well-known/oauth-protected-resource/mcp"',
            )
            assert (await status("tools/call", save, "admin"))[0] == 200
            assert (await status("tools/call", {"name": "ping", "arguments": {}}, "read"))[0] == 200
            for method in ("tools/list", "server/discover", "prompts/list"):
                found, challenge = await status(method, {}, "")
                assert found == 403
                assert challenge is not None
                assert 'scope="read"' in challenge
                assert (await status(method, {}, "read"))[0] == 200
            read = await status("resources/read", {"uri": "notes://secret"}, "")
            assert 'scope="read write"' in str(read[1])


@pytest.mark.parametrize("way", WAYS)
async def test_streams_notifications_and_responses_need_the_scopes_of_the_server(
    issuer: TestIssuer, way: str
) -> None:
    tokens = IssuedTokens(issuer.url, resource=RESOURCE, scopes=["read"])
    async with WAYS[way](notes(authenticate=tokens)) as where:
        asker = await speaker(
            "session", where.port, headers={"authorization": f"Bearer {issuer.token(scope='read')}"}
        )
        session = {name: value for name, value in asker.headers.items() if name == "mcp-session-id"}
        assert session
        headers = {**session, "authorization": f"Bearer {issuer.token(scope='other')}"}
        posted = {**headers, "content-type": "application/json", "accept": "application/json"}
        for body in (
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
            {"jsonrpc": "2.0", "id": "q", "result": {}},
        ):
            response = await http.request(where.port, "POST", posted, json.dumps(body).encode(), path="/mcp")
            assert response.status == 403
        for method in ("GET", "DELETE"):
            asked = {**headers, "accept": "text/event-stream"}
            response = await http.request(where.port, method, asked, path="/mcp")
            assert response.status == 403
            assert 'scope="read"' in response.headers["www-authenticate"]
        assert (await asker.call("ping")).text == "pong"


UNKNOWN = [
    ("tools/call", {"name": "ping", "arguments": {}}, {"name": "nothing", "arguments": {}}),
    ("resources/read", {"uri": "notes://of/one"}, {"uri": "notes://nothing"}),
    ("prompts/get", {"name": "list"}, {"name": "nothing"}),
]


@pytest.mark.parametrize(("method", "known", "unknown"), UNKNOWN, ids=[each[0] for each in UNKNOWN])
async def test_a_caller_without_the_scopes_of_the_server_learns_no_names(
    issuer: TestIssuer, method: str, known: dict[str, Any], unknown: dict[str, Any]
) -> None:
    server = notes(authenticate=IssuedTokens(issuer.url, resource=RESOURCE, scopes=["read"]))
    server.resource("notes://of/one")(lambda: "one")
    server.prompt(name="list")(lambda: "List them.")

    async with running(server) as where:
        refused = [
            await caller(Modern, where, issuer.token(scope="other")).ask(method, params)
            for params in (known, unknown)
        ]
        assert [response.status for response in refused] == [403, 403]
        assert len({response.headers["www-authenticate"] for response in refused}) == 1
        assert refused[0].error == refused[1].error
        reader = caller(Modern, where, issuer.token(scope="read"))
        assert (await reader.ask(method, known)).status == 200
        assert (await reader.ask(method, unknown)).error["code"] == -32602


async def test_a_server_without_authentication_refuses_strangers_what_needs_scopes() -> None:
    async with running(notes(authenticate=None)) as where:
        assert (await Modern(where.port).call("ping")).text == "pong"
        assert (await Modern(where.port).call("save")).status == 403


async def test_the_one_who_runs_the_server_needs_no_scopes_but_a_named_caller_does() -> None:
    async with Client(notes()) as client:
        assert (await client.call("save")).text == "saved"
    async with Client(notes(), principal=Principal("ada")) as client:
        with pytest.raises(RequestError, match="'save' needs the scope write"):
            await client.call("save")


async def test_a_refused_call_is_counted_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "antiphon.calls")
    server = notes()
    async with running(server) as where:
        await caller(Modern, where).call("save")
    assert [count for key, count in server.counters.items() if "save" in str(key)] == [1]
    assert "InsufficientScope" in caplog.text
    assert READER not in caplog.text


@pytest.mark.parametrize("scopes", ["write", ["a b"], [""], [7], 7, ["offline_access"], ['a"b']])
def test_scopes_that_cannot_be_scopes_are_refused(scopes: Any) -> None:
    server = Server("notes")
    with pytest.raises(DefinitionError, match="scope"):

        @server.tool(scopes=scopes)
        async def save(ctx: Context) -> str:
            return ""
