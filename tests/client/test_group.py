"""`ClientGroup`: several servers as one."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from antiphon import (
    Client,
    ClientGroup,
    Context,
    InputRequired,
    NotFound,
    ResourceNotFound,
    Result,
    Server,
    TextContents,
)
from antiphon.agents import anthropic_tools
from antiphon.errors import ClientError, InternalError, Unreachable
from antiphon.middleware import CallNext, IncomingRequest
from antiphon.model.request import ListTools
from tests.support.polling import until
from tests.support.serving import serving

NOWHERE = "http://127.0.0.1:9/mcp"


def library(name: str = "library") -> Server:
    """A server with a tool that asks, a stream, a task, a prompt and resources."""
    server = Server(name, instructions=f"Read {name}.")

    @server.tool
    async def lend(title: str, ctx: Context) -> str:
        """Lend a book."""
        person = await ctx.elicit("Who reads it?", str, key="person")
        return f"{name} lends {title} to {person}"

    @server.tool(task="optional", poll_interval=0.05)
    async def recite() -> AsyncIterator[str]:
        """Recite a poem."""
        yield "one"
        yield name

    @server.prompt
    async def review(title: str) -> str:
        """Review a book."""
        return f"{name}: review {title}"

    @server.resource(f"{name}://shelf")
    async def shelf() -> str:
        return f"the shelf of {name}"

    @server.resource(f"{name}://books/{{title}}")
    async def book(title: str) -> str:
        return f"{title} of {name}"

    @server.completion("review", "title")
    async def titles(value: str) -> list[str]:
        return [f"{value} of {name}"]

    return server


def names(definitions: list[Any]) -> list[str]:
    return [definition.name for definition in definitions]


async def test_tools_of_all_servers_have_prefixes_and_are_called_where_they_are() -> None:
    async with (
        serving(library("city")) as address,
        ClientGroup(
            {"city": address.url, "uni": library("uni")}, elicit=lambda question: {"value": "Ada"}
        ) as group,
    ):
        assert names(await group.tools()) == ["city_lend", "city_recite", "uni_lend", "uni_recite"]
        assert (await group.call("city_lend", title="Emma")).text == "city lends Emma to Ada"
        assert (await group.call("uni_lend", {"title": "Emma"})).text == "uni lends Emma to Ada"
        handle = await group.submit("uni_recite")
        assert (await handle.result()).text == "one\nuni"
        async with group.stream("city_recite") as stream:
            assert [segment.text async for segment in stream] == ["one", "city"]
        assert group.instructions == (
            "For tools whose names begin with city_:\nRead city.\n\n"
            "For tools whose names begin with uni_:\nRead uni."
        )
        await group.ping()
        assert (await group.clients["city"].call("lend", title="Emma")).text == "city lends Emma to Ada"


async def test_one_round_of_a_call_goes_to_its_server() -> None:
    servers = {"city": library("city"), "uni": library("uni")}
    async with ClientGroup(servers, elicit=lambda question: None) as group:
        asked = await group.call_once("uni_lend", {"title": "Emma"})
        assert isinstance(asked, InputRequired)
        answers = {"person": {"value": "Ada"}}
        done = await group.call_once("uni_lend", {"title": "Emma"}, resume=asked, answers=answers)
        assert isinstance(done, Result)
        assert done.text == "uni lends Emma to Ada"


async def test_prompts_resources_and_completions_go_to_their_server() -> None:
    async with ClientGroup({"city": library("city"), "uni": library("uni")}) as group:
        assert names(await group.prompts()) == ["city_review", "uni_review"]
        (said,) = (await group.prompt("uni_review", {"title": "Emma"})).messages
        assert said.content.text == "uni: review Emma"
        assert (await group.complete("uni_review", "title", "Em")).values == ("Em of uni",)
        assert [found.uri for found in await group.resources()] == ["city://shelf", "uni://shelf"]
        assert [found.uri_template for found in await group.templates()] == [
            "city://books/{title}",
            "uni://books/{title}",
        ]
        for uri, text in (("uni://shelf", "the shelf of uni"), ("city://books/Emma", "Emma of city")):
            (contents,) = (await group.read(uri)).contents
            assert isinstance(contents, TextContents)
            assert contents.text == text
        with pytest.raises(ResourceNotFound, match=r"group\.clients\[prefix\]\.read"):
            await group.read("nowhere://shelf")


async def test_a_list_of_servers_takes_prefixes_from_their_names() -> None:
    servers = [library("My Books!"), Client(library("uni")), library("uni")]
    async with ClientGroup(servers) as group:
        assert list(group.clients) == ["My_Books", "uni", "uni2"]
        assert "uni2_lend" in names(await group.tools())


async def test_names_stay_unique_if_prefixes_overlap() -> None:
    first, second = Server("first"), Server("second")

    @first.tool(name="b_c")
    async def long() -> str:
        return "first"

    @second.tool(name="c")
    async def short() -> str:
        return "second"

    async with ClientGroup({"a": first, "a_b": second}) as group:
        found = names(await group.tools())
        assert found == ["a_b_c_2", "a_b_c"], "the server with the longer prefix keeps the name"
        assert [(await group.call(name)).text for name in found] == ["first", "second"]


def offering(name: str, *tools: str, **options: Any) -> Server:
    """A server whose tools return the name of the server."""
    server = Server(name, **options)
    for tool in tools:
        server.tool(name=tool)(lambda: name)
    return server


async def test_a_server_that_takes_the_prefix_of_another_is_refused() -> None:
    servers = [offering("github", "search_issues"), offering("github_search", "issues")]
    for order in (servers, servers[::-1]):
        with pytest.raises(ClientError, match="overlap: github and github_search.*Pass a mapping"):
            async with ClientGroup(order):
                pass


async def test_a_name_leads_to_the_same_server_while_the_group_is_open() -> None:
    good, evil = offering("good", "b_c", "y"), offering("evil", "x")
    use = {"type": "tool_use", "id": "1", "name": "a_b_c", "input": {}}
    async with ClientGroup({"a": good, "a_b": evil}) as group:
        tools = await anthropic_tools(group)
        evil.tool(name="c")(lambda: "evil")
        assert set(names(await group.tools())) == {"a_b_c", "a_y", "a_b_x", "a_b_c_2"}
        assert (await group.call("a_b_c")).text == "good"
        assert (await tools.call(use))["content"][0]["text"] == "good"
        assert (await (await tools.refresh()).call(use))["content"][0]["text"] == "good"
        good.remove_tool("b_c")
        assert names(await group.tools()) == ["a_y", "a_b_x", "a_b_c_2"]
        with pytest.raises(NotFound):
            await group.call("a_b_c")


@pytest.mark.parametrize(("others", "name"), [(2, "a_b_c_2"), (3, "a_b_c")])
async def test_the_oldest_names_of_tools_that_went_away_are_forgotten(
    monkeypatch: pytest.MonkeyPatch, others: int, name: str
) -> None:
    monkeypatch.setattr("antiphon.client.group.MAX_KEPT_NAMES", 3)
    good, evil = offering("good", "b_c", "stays"), offering("evil", "x")
    async with ClientGroup({"a": good, "a_b": evil}) as group:
        assert names(await group.tools()) == ["a_b_c", "a_stays", "a_b_x"]
        good.remove_tool("b_c")
        for number in range(others):
            good.tool(name=f"t{number}")(lambda: "")
            assert names(await group.tools()) == ["a_stays", f"a_t{number}", "a_b_x"]
            good.remove_tool(f"t{number}")
        assert names(await group.tools()) == ["a_stays", "a_b_x"]
        evil.tool(name="c")(lambda: "evil")
        assert names(await group.tools()) == ["a_stays", "a_b_x", name]


async def test_an_unknown_name_says_which_servers_there_are() -> None:
    async with ClientGroup({"city": library("city")}) as group:
        with pytest.raises(NotFound, match="No server of the group has the tool 'lend'.*: city"):
            await group.call("lend")
        with pytest.raises(NotFound, match="'uni_recite'"):
            group.stream("uni_recite")
        with pytest.raises(NotFound, match="the prompt 'review'"):
            await group.prompt("review")


async def test_a_tool_that_came_later_is_found() -> None:
    server = library("city")
    async with ClientGroup({"city": server}) as group:

        @server.tool
        async def late() -> str:
            return "late"

        assert (await group.call("city_late")).text == "late"


async def test_a_server_that_cannot_be_reached_is_an_error_and_the_others_are_closed() -> None:
    closed = asyncio.Event()

    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[None]:
        task = asyncio.current_task()
        yield
        assert asyncio.current_task() is task, "the lifespan must close in the task that opened it"
        closed.set()

    group = ClientGroup({"here": Server("here", lifespan=lifespan), "gone": NOWHERE})
    with pytest.raises(Unreachable, match="127.0.0.1:9"):
        async with group:
            pass
    assert closed.is_set()
    assert group.clients == {}


@pytest.mark.parametrize("optional", [True, ["gone"]])
async def test_an_optional_server_is_left_out_with_a_warning(
    optional: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with ClientGroup({"here": library("here"), "gone": NOWHERE}, optional=optional) as group:
        assert names(await group.tools()) == ["here_lend", "here_recite"]
        assert isinstance(group.unavailable["gone"], Unreachable)
    assert "The server gone is left out of the group" in caplog.text


def failing(name: str, *tools: str) -> tuple[Server, asyncio.Event]:
    """A server that answers tools/list with a JSON-RPC error while the event is set."""
    fails = asyncio.Event()

    async def refuse(incoming: IncomingRequest, call_next: CallNext) -> Any:
        if fails.is_set() and isinstance(incoming.request, ListTools):
            raise InternalError("The database is away.")
        return await call_next()

    return offering(name, *tools, middleware=[refuse]), fails


async def test_an_optional_server_whose_list_is_an_error_does_not_stop_the_group(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broken, fails = failing("broken", "c")
    fails.set()
    servers = {"here": library("here"), "broken": broken}
    async with ClientGroup(servers, optional=["broken"]) as group:
        assert names(await group.tools()) == ["here_lend", "here_recite"]
    assert "The lists of the server broken are left out of the group" in caplog.text
    with pytest.raises(InternalError):
        async with ClientGroup(servers, optional=["here"]):
            pass


async def test_a_server_whose_list_fails_keeps_its_names() -> None:
    good, fails = failing("good", "b_c", "y")
    evil = offering("evil", "x")
    async with ClientGroup({"a": good, "a_b": evil}, optional=True) as group:
        fails.set()
        good.tool(name="z")(lambda: "")  # the client reads the list again
        evil.tool(name="c")(lambda: "evil")
        assert names(await group.tools()) == ["a_b_x", "a_b_c_2"]
        assert (await group.call("a_b_c")).text == "good"
        fails.clear()
        assert names(await group.tools()) == ["a_b_c", "a_y", "a_z", "a_b_x", "a_b_c_2"]


async def test_a_name_with_the_prefix_of_a_missing_server_is_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    good, fails = failing("good", "c")
    fails.set()
    evil = offering("evil", "b_c", "y")
    async with ClientGroup({"a": evil, "a_b": good}, optional=True) as group:
        assert names(await group.tools()) == ["a_y"]
        fails.clear()
        assert names(await group.tools()) == ["a_b_c_2", "a_y", "a_b_c"]
        assert (await group.call("a_b_c")).text == "good"
    assert "The tool a_b_c of the server a is left out: its name is for the server a_b" in caplog.text
    async with ClientGroup({"a": evil, "a_b": NOWHERE}, optional=True) as group:
        assert names(await group.tools()) == ["a_y"]


async def test_a_server_without_a_prefix_is_left_out_by_its_number() -> None:
    async with ClientGroup([library("here"), [sys.executable, "-c", ""]], optional=True) as group:
        assert list(group.unavailable) == ["2"]


async def test_a_group_can_be_opened_again_but_not_twice_at_once() -> None:
    group = ClientGroup({"city": library("city")})
    for _ in range(2):
        async with group:
            assert len(await group.tools()) == 2
            with pytest.raises(ClientError, match="open already"):
                await group.__aenter__()
            assert len(await group.tools()) == 2


async def test_a_client_that_was_open_stays_open() -> None:
    async with Client(library("city")) as client:
        async with ClientGroup({"city": client}) as group:
            assert len(await group.tools()) == 2
        assert len(await client.tools()) == 2


async def test_opening_can_be_cancelled(tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    program = f"import sys; sys.stdin.readline(); open({str(asked)!r}, 'w').close(); sys.stdin.read()"
    group = ClientGroup({"city": library("city"), "silent": [sys.executable, "-c", program]})
    opening = asyncio.create_task(group.__aenter__())
    await until(asked.exists)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert group.clients == {}


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match=r"ClientGroup\('my city', …\).*letters, digits"):
        ClientGroup({"my city": NOWHERE})
    with pytest.raises(ValueError, match="pass a list of servers"):
        ClientGroup(NOWHERE)
    with pytest.raises(ValueError, match=r"optional=\['uni'\].*city"):
        ClientGroup({"city": NOWHERE}, optional=["uni"])
    with pytest.raises(ValueError, match="No client of the group uses timeout: pass options to each Client"):
        ClientGroup([Client(NOWHERE)], timeout=3)
    with pytest.raises(ValueError, match="optional='city'"):
        ClientGroup({"city": NOWHERE}, optional="city")


async def test_a_model_uses_the_tools_of_all_servers() -> None:
    async with ClientGroup(
        {"city": library("city"), "uni": library("uni")}, elicit=lambda question: {"value": "Ada"}
    ) as group:
        tools = await anthropic_tools(group)
        use = {"type": "tool_use", "id": "1", "name": "uni_lend", "input": {"title": "Emma"}}
        assert (await tools.call(use))["content"] == [{"type": "text", "text": "uni lends Emma to Ada"}]
