"""Tools, resources and prompts that are enabled and disabled while the server runs, and their options."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from antiphon import Client, DefinitionError, NotFound, Principal, RequestError, Server
from antiphon.model.catalog import Kind
from tests.cli.command import running
from tests.support.polling import forever, until, wait_until
from tests.support.serving import serving


async def unsure(principal: Principal | None) -> bool:
    return True


def shop(**options: Any) -> Server:
    server = Server("shop", **options)

    @server.tool(tags={"admin", "slow"})
    def reset() -> str:
        return "reset"

    @server.tool(tags=["admin"], enabled=False)
    def drop() -> str:
        return "dropped"

    @server.tool
    def look() -> str:
        return "looked"

    @server.resource("shop://{item}", tags={"admin"})
    def item(item: str) -> str:
        return item

    @server.resource("shop://all")
    def everything() -> str:
        return "all"

    @server.prompt(tags={"admin"}, enabled=False)
    def sell(what: str) -> str:
        return what

    @server.completion("sell", "what")
    def whats(typed: str) -> list[str]:
        return ["tea"]

    return server


async def listed(client: Client) -> list[str]:
    return [
        *(each.name for each in await client.tools()),
        *(each.name for each in await client.resources()),
        *(each.name for each in await client.templates()),
        *(each.name for each in await client.prompts()),
    ]


async def test_items_are_enabled_and_disabled_by_name_and_by_tag_and_the_last_switch_counts() -> None:
    server = shop()
    async with Client(server) as client:
        assert await listed(client) == ["reset", "look", "everything", "item"]
        server.enable(tags={"admin"})
        assert await listed(client) == ["reset", "drop", "look", "everything", "item", "sell"]
        assert (await client.call("drop")).text == "dropped"
        assert (await client.complete("sell", "what", "")).values == ("tea",)
        server.disable(tags={"admin"})
        server.enable("reset", "shop://{item}")
        assert await listed(client) == ["reset", "look", "everything", "item"]
        server.disable("shop://all", "look", tags={"slow"})
        assert await listed(client) == ["item"]
        for request in (client.call("look"), client.call("drop"), client.prompt("sell", {"what": "tea"})):
            with pytest.raises(RequestError, match="Unknown"):
                await request
        content = (await client.read("shop://tea")).contents[0]
        assert getattr(content, "text", None) == "tea"
        with pytest.raises(RequestError, match="Resource not found: shop://all"):
            await client.read("shop://all")  # also not through the template, which fits this address
        server.disable("shop://{item}")
        with pytest.raises(RequestError, match="Resource not found: shop://tea"):
            await client.read("shop://tea")
        with pytest.raises(RequestError, match="Unknown prompt: 'sell'"):
            await client.complete("sell", "what", "")
        assert await listed(client) == []


async def test_a_disabled_name_stays_taken_and_a_new_item_has_the_switches_of_its_tags() -> None:
    server = shop()
    server.disable("look", tags={"slow"})
    with pytest.raises(DefinitionError, match="already a tool 'look'"):
        server.add_tool(forever, name="look")
    server.add_tool(lambda: "new", name="new", tags={"slow"})
    assert server.tools == ()
    server.remove_tool("look")
    server.add_tool(lambda: "again", name="look")
    assert server.tools == (), "a switch is for what comes, too"
    server.enable("look")
    assert server.tools == ("look",)
    with pytest.raises(NotFound, match=r"There is no tool, resource or prompt 'nope'\."):
        server.enable("new", "nope")
    assert server.tools == ("look",), "nothing was changed"


async def test_clients_are_notified_once_for_each_list_that_changed() -> None:
    server = shop()
    changes: list[str] = []
    async with (
        Client(server) as client,
        client.listen(lists=True) as listener,
    ):

        async def follow() -> None:
            async for change in listener:
                changes.append(change.kind)  # type: ignore[union-attr]

        following = asyncio.create_task(follow())
        server.disable("look")
        await until(lambda: changes)
        server.disable("look")  # nothing changes
        server.add_tool(lambda: "", name="quiet", enabled=False)
        server.enable(tags={"admin"})
        await until(lambda: "prompts" in changes)
        assert changes == ["tools", "tools", "prompts"]
        following.cancel()
        await asyncio.wait({following})


async def test_a_task_of_a_tool_that_is_disabled_goes_on() -> None:
    server, release = Server("tests"), asyncio.Event()

    @server.tool(task="required")
    async def slow() -> str:
        await release.wait()
        return "done"

    async with Client(server) as client:
        task = await client.submit("slow")
        server.disable("slow")
        with pytest.raises(RequestError, match="Unknown tool: 'slow'"):
            await client.submit("slow")
        assert await client.tools() == []
        release.set()
        assert (await task.result()).text == "done"


async def test_a_mount_follows_the_server_inside_and_has_switches_of_its_own() -> None:
    inner, outer = shop(), Server("outer")
    outer.mount("in", inner)
    async with Client(outer) as client:
        assert await listed(client) == ["in_reset", "in_look", "everything", "item"]
        outer.disable("in_look", tags={"slow"})
        assert await listed(client) == ["everything", "item"]
        inner.enable("drop")  # the items are registered again
        await until(lambda: "in_drop" in outer.tools)
        assert await listed(client) == ["in_drop", "everything", "item"]
        inner.disable("drop", "shop://{item}")
        await until(lambda: "in_drop" not in outer.tools)
        with pytest.raises(RequestError, match="Unknown tool: 'in_drop'"):
            await client.call("in_drop")
        with pytest.raises(RequestError, match="Resource not found"):
            await client.read("shop://tea")
        outer.enable("in_look")
        assert (await client.call("in_look")).text == "looked"


async def test_a_gateway_does_not_ask_the_server_behind_it_for_what_is_disabled() -> None:
    async with serving(shop()) as where:
        outer = Server("outer")
        outer.mount("up", where.url)
        async with Client(outer) as client:
            assert await listed(client) == ["up_reset", "up_look", "everything", "item"]
            outer.disable("up_look", "shop://all", "shop://{item}")
            assert await listed(client) == ["up_reset"]
            with pytest.raises(RequestError, match="Unknown tool: 'up_look'"):
                await client.call("up_look")
            for uri in ("shop://all", "shop://tea"):
                with pytest.raises(RequestError, match="Resource not found"):
                    await client.read(uri)


# Tags that nothing has


def complaints(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "has the tag" in record.getMessage()]


def test_a_tag_that_nothing_has_is_a_warning_when_the_server_starts(tmp_path: Path) -> None:
    program = tmp_path / "shop.py"
    program.write_text(
        "from antiphon import Server\n\nserver = Server('shop')\nserver.disable(tags={'amdin', 'late'})\n\n\n"
        "@server.tool(tags={'admin', 'late'})\ndef reset() -> str:\n    return 'reset'\n\n\n"
        "@server.tool\ndef look() -> str:\n    return 'looked'\n"
    )
    with running(program, directory=tmp_path) as server:
        assert (
            "No tool, resource or prompt of the server 'shop' has the tag 'amdin', with which "
            "server.enable or server.disable was called. Tags in use: 'admin', 'late'."
        ) in server.log
        assert "has the tag 'late'" not in server.log, "it was registered after the switch"


async def test_a_tag_that_nothing_has_is_a_warning_while_the_server_runs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = shop()
    async with Client(server):
        assert complaints(caplog) == []
        server.enable(tags={"admin", "slwo"})
        server.disable(tags={"slwo"})
        (line,) = complaints(caplog)
        assert "has the tag 'slwo'" in line
        assert "Tags in use: 'admin', 'slow'." in line
        server.add_tool(lambda: "", name="quiet", tags={"slwo"})
        assert "quiet" not in server.tools, "a switch is for what comes, too"


async def test_a_mounted_server_may_have_any_tag_at_any_time(caplog: pytest.LogCaptureFixture) -> None:
    inner, outer = shop(), Server("outer")
    outer.disable(tags={"later"})
    outer.mount("in", inner)
    async with Client(outer):
        outer.disable(tags={"even later"})
    assert complaints(caplog) == []


async def test_a_server_inside_another_is_checked_too(caplog: pytest.LogCaptureFixture) -> None:
    inner, outer = shop(), Server("outer")
    inner.disable(tags={"amdin"})
    outer.mount("in", inner)
    async with Client(outer):
        (line,) = complaints(caplog)
    assert "of the server 'shop' has the tag 'amdin'" in line


async def test_a_server_without_tags_says_so(caplog: pytest.LogCaptureFixture) -> None:
    server = Server("plain")
    server.enable(tags={"admin"})
    async with Client(server):
        (line,) = complaints(caplog)
    assert "Nothing has a tag." in line


# Options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tags": "admin"}, r"act: tags='admin' is not a set\. Write \{'admin'\}\."),
        ({"tags": [""]}, r"act: tags cannot have ''\. A tag is a text"),
        ({"tags": {1}}, r"act: tags cannot have 1\."),
        ({"enabled": "no"}, r"act: enabled='no' is invalid\. Use True or False\."),
        ({"visible": False}, r"act: visible=False is not a function\..* use enabled=False\."),
        ({"visible": unsure}, r"act: the function of visible= is async"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], message: str) -> None:
    async def act() -> str:
        return ""

    server = Server("tests")
    with pytest.raises(DefinitionError, match=message):
        server.add_tool(act, **options)
    with pytest.raises(DefinitionError, match=message):
        server.add_prompt(act, **options)
    with pytest.raises(DefinitionError, match=message.replace("act:", "data://act:")):
        server.add_resource(act, "data://act", **options)


def test_a_switch_needs_names_or_tags() -> None:
    with pytest.raises(DefinitionError, match="Pass the names of tools"):
        Server("tests").disable()
    with pytest.raises(DefinitionError, match="tags='admin' is not a set"):
        Server("tests").enable(tags="admin")


def test_switching_does_not_change_a_list_that_another_thread_reads() -> None:
    server = shop()
    kinds: tuple[Kind, ...] = ("tools", "templates")
    for kind in kinds:
        read = server.engine.registry.items(kind)
        names = list(read)
        for name in read:  # a dictionary that changes raises RuntimeError here
            server.disable(name)
        assert list(read) == names


class NotedLock:
    """A lock that notes when another thread than its own wants it."""

    def __init__(self, lock: Any) -> None:
        self._lock, self._own = lock, threading.get_ident()
        self.is_wanted = threading.Event()

    def __enter__(self) -> None:
        if threading.get_ident() != self._own:
            self.is_wanted.set()
        self._lock.__enter__()

    def __exit__(self, *error: object) -> None:
        self._lock.__exit__(*error)


class Interrupted:
    """A tool's definition that another thread disables while a list is computed from it."""

    def __init__(self, server: Server) -> None:
        self.visibility = ("app",)
        self.offer = server.engine.registry.tool("look").offer
        self._server = server
        self._lock: Any = NotedLock(server.engine.registry.changing)
        server.engine.registry.changing = self._lock
        self.switching: threading.Thread | None = None

    @property
    def definition(self) -> Interrupted:
        if self.switching is None:
            self.switching = threading.Thread(target=self._server.disable, args=("look",))
            self.switching.start()
            # It waits for this thread; otherwise it would be done.
            wait_until(lambda: self._lock.is_wanted.is_set() or not self.switching.is_alive())
        return self


@pytest.mark.parametrize("read", ["definitions", "has_hidden_tools"])
def test_a_list_that_is_computed_while_another_thread_switches_is_computed_again(read: str) -> None:
    server = shop()
    registry = server.engine.registry
    interrupted: Any = Interrupted(server)
    registry.tools["look"] = interrupted

    def compute() -> Any:
        return registry.definitions("tools") if read == "definitions" else registry.has_hidden_tools

    compute()
    interrupted.switching.join()
    assert compute() is False if read == "has_hidden_tools" else interrupted not in compute()


@pytest.mark.parametrize("wrong", [{"admin"}, ["look"], None, 1])
def test_a_name_that_is_not_a_text_is_refused(wrong: Any) -> None:
    for switch in (shop().enable, shop().disable):
        with pytest.raises(
            DefinitionError, match=r"is not a name\. Pass each name by itself: 'a', 'b'\. For tags"
        ):
            switch(wrong)


def test_a_resource_that_not_everybody_sees_cannot_be_shared() -> None:
    server = Server("tests")
    for uri in ("data://x", "data://{key}"):
        with pytest.raises(DefinitionError, match=r"visible= and shared=True contradict each other"):
            server.add_resource(lambda key="": key, uri, visible=lambda principal: True, shared=True)
