"""What is offered to whom: what a caller does not see in a list does not exist for this caller."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any

import pytest
from pydantic import Field

from antiphon import BearerTokens, Client, Context, DefinitionError, Principal, RequestError, Server
from antiphon.errors import TaskLost
from antiphon.middleware import CallNext, IncomingRequest
from tests.support.polling import forever, until
from tests.support.serving import serving
from tests.support.speakers import DIALECTS, Modern, Speaker, speaker

ADA, BOB = "ada-s3cret", "bob-s3cret"
TOKENS = BearerTokens({ADA: Principal("ada", frozenset({"admin"})), BOB: Principal("bob")})
ran: list[str] = []
admins = {"ada"}
Region = Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})]


@pytest.fixture(autouse=True)
def fresh() -> None:
    ran.clear()
    admins.clear()
    admins.add("ada")


def is_admin(principal: Principal | None) -> bool:
    return principal is not None and principal.id in admins


async def passing(request: IncomingRequest, call_next: CallNext) -> Any:
    return await call_next()


def notes(**options: Any) -> Server:
    server = Server("notes", **{"authenticate": TOKENS, **options})

    @server.tool
    async def ping() -> str:
        return "pong"

    @server.tool(visible=is_admin, scopes=["admin"])
    async def purge(region: Region = "north") -> str:
        ran.append("purge")
        return "purged"

    @server.tool(visible=is_admin, task="optional")
    async def slow(ctx: Context) -> str:
        ran.append("slow")
        return "done"

    @server.resource("notes://open")
    async def everybody() -> str:
        return "open"

    @server.resource("notes://secret", visible=is_admin)
    async def secret() -> str:
        ran.append("secret")
        return "hidden"

    server.add_ui("<p>hidden</p>", "ui://notes/panel", visible=is_admin)

    @server.resource("notes://of/{kind}", visible=is_admin)
    async def of(kind: str) -> str:
        ran.append("of")
        return kind

    @server.prompt
    async def greet(name: str) -> str:
        return name

    @server.prompt(visible=is_admin)
    async def draft(topic: str) -> str:
        ran.append("draft")
        return topic

    @server.completion("draft", "topic")
    @server.completion("notes://of/{kind}", "kind")
    async def topics(typed: str) -> list[str]:
        ran.append("topics")
        return ["tea"]

    return server


def authorized(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


LISTS = {
    "tools/list": ("tools", ["ping", "purge", "slow"], ["ping"]),
    "resources/list": ("resources", ["everybody", "secret", "panel"], ["everybody"]),
    "resources/templates/list": ("resourceTemplates", ["of"], []),
    "prompts/list": ("prompts", ["greet", "draft"], ["greet"]),
}


async def names(caller: Speaker, method: str) -> list[str]:
    """The names in a list, page by page."""
    found, cursor = [], {}
    while True:
        page = (await caller.ask(method, cursor)).result
        assert page.get("cacheScope", "private") == "private"
        found += [item["name"] for item in page[LISTS[method][0]]]
        if "nextCursor" not in page:
            return found
        cursor = {"cursor": page["nextCursor"]}


@pytest.mark.parametrize("is_mounted", [False, True])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_each_caller_gets_its_own_lists_whoever_asked_before(dialect: str, is_mounted: bool) -> None:
    server = notes(page_size=1, list_ttl=60)
    if is_mounted:
        server, inner = Server("outer", authenticate=TOKENS, page_size=1, list_ttl=60), server
        server.mount("inner", inner, prefix=False)
    async with serving(server) as where:
        ada = await speaker(dialect, where.port, headers=authorized(ADA))
        bob = await speaker(dialect, where.port, headers=authorized(BOB))
        for method, (_, all_names, some) in LISTS.items():
            for _ in range(2):
                assert await names(ada, method) == all_names
                assert await names(bob, method) == some


async def test_a_list_that_is_the_same_for_all_can_be_shared() -> None:
    server = Server("tests")
    server.add_tool(forever, name="sleep", tags={"slow"}, input_schema={"type": "object"})
    async with serving(server) as where:
        assert (await Modern(where.port).ask("tools/list")).result["cacheScope"] == "public"


REQUESTS: list[tuple[str, dict[str, Any], str, str]] = [
    ("tools/call", {"name": "purge", "arguments": {}}, "purge", "nope"),
    ("tools/call", {"name": "slow", "arguments": {}, "task": {}}, "slow", "nope"),
    ("resources/read", {"uri": "notes://secret"}, "notes://secret", "notes://nowhere"),
    ("resources/read", {"uri": "ui://notes/panel"}, "ui://notes/panel", "ui://notes/nowhere"),
    ("resources/read", {"uri": "notes://of/tea"}, "notes://of/tea", "notes://no/tea"),
    ("resources/subscribe", {"uri": "notes://secret"}, "notes://secret", "notes://nowhere"),
    ("prompts/get", {"name": "draft", "arguments": {"topic": "tea"}}, "draft", "nope"),
    (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "draft"}, "argument": {"name": "topic", "value": ""}},
        "draft",
        "nope",
    ),
    *(
        (
            "completion/complete",
            {"ref": {"type": "ref/resource", "uri": uri}, "argument": {"name": "kind", "value": ""}},
            uri,
            "notes://nowhere",
        )
        for uri in ("notes://of/{kind}", "notes://secret")
    ),
]


def renamed(value: Any, old: str, new: str) -> Any:
    return json.loads(json.dumps(value).replace(old, new))


async def refused(caller: Speaker, method: str, params: dict[str, Any]) -> tuple[int, Any]:
    response = await caller.ask(method, params)
    return response.status, response.error


@pytest.mark.parametrize("prefix", ["", "in_"])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_what_a_caller_does_not_see_is_unknown_in_every_request(dialect: str, prefix: str) -> None:
    server = notes(middleware=[passing] if prefix else [])
    if prefix:
        outer = Server("outer", authenticate=TOKENS)
        middle = Server("middle")  # mounts pass what is visible on
        middle.mount("middle", server, prefix=False)
        outer.mount("in", middle)
        server = outer
    async with serving(server) as where:
        bob = await speaker(dialect, where.port, headers=authorized(BOB))
        for method, params, hidden, unknown in REQUESTS:
            if method == "resources/subscribe" and dialect != "session":
                continue
            if "://" not in hidden:
                params, hidden = renamed(params, hidden, prefix + hidden), prefix + hidden
            error = await refused(bob, method, params)
            expected = await refused(bob, method, renamed(params, hidden, unknown))
            assert renamed(error, hidden, unknown) == renamed(expected, hidden, unknown), (method, params)
            assert error[1] is not None
        assert ran == []
        ada = await speaker(dialect, where.port, headers=authorized(ADA))
        assert (await ada.call(prefix + "purge")).text == "purged"
        assert (await ada.ask("resources/read", {"uri": "notes://of/tea"})).result["contents"][0][
            "text"
        ] == "tea"


async def test_a_header_that_does_not_fit_says_nothing_about_a_tool_that_a_caller_does_not_see() -> None:
    async with serving(notes()) as where:
        bob = Modern(where.port, headers={**authorized(BOB), "mcp-param-region": "south"})
        hidden = await refused(bob, "tools/call", {"name": "purge", "arguments": {"region": "north"}})
        unknown = await refused(bob, "tools/call", {"name": "nope", "arguments": {"region": "north"}})
        assert renamed(hidden, "purge", "nope") == [*unknown]
        ada = Modern(where.port, headers={**authorized(ADA), "mcp-param-region": "south"})
        assert (await ada.call("purge", region="north")).error["code"] != hidden[1]["code"]


async def test_a_caller_is_not_told_of_changes_of_a_resource_that_it_does_not_see() -> None:
    server = notes()
    async with serving(server) as where:
        seen: dict[str, list[str]] = {ADA: [], BOB: []}
        async with Client(where.url, auth=ADA) as ada, Client(where.url, auth=BOB) as bob:

            async def follow(client: Client, token: str) -> None:
                async with client.listen("notes://secret", "notes://open", lists=False) as changes:
                    seen[token].append("listening")
                    async for change in changes:
                        seen[token].append(change.uri)  # type: ignore[union-attr]

            following = [asyncio.create_task(follow(ada, ADA)), asyncio.create_task(follow(bob, BOB))]
            await until(lambda: all(seen.values()))
            server.notify_resource_updated("notes://secret")
            server.notify_resource_updated("notes://open")
            await until(lambda: all("notes://open" in each for each in seen.values()))
            assert seen[ADA] == ["listening", "notes://secret", "notes://open"]
            assert seen[BOB] == ["listening", "notes://open"]
            for each in following:
                each.cancel()
            await asyncio.wait(following)


async def test_a_session_is_not_told_of_changes_of_a_resource_that_it_does_not_see_any_more() -> None:
    server, changed = notes(), []
    async with (
        serving(server) as where,
        Client(
            where.url, auth=ADA, protocol="2025-11-25", on_change=lambda each: changed.append(each.uri)
        ) as ada,
    ):
        await ada.subscribe("notes://secret")
        await ada.subscribe("notes://open")
        server.notify_resource_updated("notes://secret")
        await until(lambda: changed)
        admins.clear()
        server.notify_resource_updated("notes://secret")
        server.notify_resource_updated("notes://open")
        await until(lambda: "notes://open" in changed)
    assert changed == ["notes://secret", "notes://open"]


@pytest.mark.parametrize("is_mounted", [False, True])
async def test_a_task_goes_with_its_tool(is_mounted: bool) -> None:
    server, tool = notes(), "slow"
    if is_mounted:
        server, inner, tool = Server("outer", authenticate=TOKENS), server, "in_slow"
        server.mount("in", inner)
    async with serving(server) as where, Client(where.url, auth=ADA, protocol="2025-11-25") as ada:
        task = await ada.submit(tool)
        assert (await task.result()).text == "done"
        assert len(await ada.tasks()) == 1
        admins.clear()
        assert await ada.tasks() == []
        with pytest.raises(TaskLost) as hidden:
            await ada.task(task.id).status()
        with pytest.raises(TaskLost) as unknown:
            await ada.task("slow_nope").status()
        assert str(hidden.value).replace(task.id, "slow_nope") == str(unknown.value)
        with pytest.raises(RequestError, match="Unknown tool"):
            await ada.submit(tool)
        admins.add("ada")
        assert (await ada.task(task.id).result()).text == "done"


async def test_everything_of_an_upstream_server_can_be_for_some_callers() -> None:
    upstream, outer = Server("upstream"), Server("outer", authenticate=TOKENS)

    @upstream.tool
    async def purge() -> str:
        return "purged"

    @upstream.resource("notes://secret")
    async def secret() -> str:
        return "hidden"

    @upstream.prompt
    async def draft(topic: str) -> str:
        return topic

    async with serving(upstream) as behind:
        with pytest.raises(DefinitionError, match=r"mount\('up', …\): visible=True is not a function"):
            outer.mount("up", behind.url, visible=True)  # type: ignore[arg-type]
        outer.mount("up", behind.url, visible=is_admin, tags={"admin"})
        async with (
            serving(outer) as where,
            Client(where.url, auth=ADA) as ada,
            Client(where.url, auth=BOB) as bob,
        ):
            assert [tool.name for tool in await ada.tools()] == ["up_purge"]
            assert (await ada.call("up_purge")).text == "purged"
            assert await bob.tools() == await bob.resources() == await bob.prompts() == []
            for request in (bob.call("up_purge"), bob.prompt("up_draft", {"topic": "tea"})):
                with pytest.raises(RequestError, match="Unknown"):
                    await request
            for uri in ("notes://secret", "notes://unlisted"):
                with pytest.raises(RequestError, match=f"Resource not found: {uri}"):
                    await bob.read(uri)
            outer.disable(tags={"admin"})
            assert await ada.tools() == []


@pytest.mark.parametrize("seen", [True, False])
async def test_nobody_is_known_without_authentication(seen: bool) -> None:
    asked: list[Principal | None] = []

    def visible(principal: Principal | None) -> bool:
        asked.append(principal)
        return seen

    server = Server("tests")

    @server.tool(visible=visible)
    def act() -> str:
        return "acted"

    async def use(client: Client) -> None:
        async with client:
            assert [tool.name for tool in await client.tools()] == ["act"] * seen
            if seen:
                assert (await client.call("act")).text == "acted"
            else:
                with pytest.raises(RequestError, match="Unknown tool: 'act'"):
                    await client.call("act")

    await use(Client(server))
    async with serving(server) as where:
        await use(Client(where.url))
    assert set(asked) == {None}


async def unsure(principal: Principal | None) -> bool:
    return True


@pytest.mark.parametrize("visible", [lambda principal: 1 / 0, lambda principal: unsure(principal)])
async def test_nobody_sees_an_item_whose_function_fails(
    visible: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server("tests")
    server.add_tool(forever, name="act", visible=visible, input_schema={"type": "object"})
    async with Client(server) as client:
        assert await client.tools() == []
        with pytest.raises(RequestError, match="Unknown tool: 'act'"):
            await client.call("act")
    assert "The visible function of 'act' failed, so the caller does not see it." in caplog.text
