"""Apps on a page of the console: what they get, what they may ask for, and what the person decides."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from antiphon import Artifact, Context, Result, Server
from antiphon.console.routes import ConsoleUser
from antiphon.console.sources import StoreSource
from antiphon.store import open_store
from tests.apps.browser import PACKAGES, until_true
from tests.console.apps.app_page import AppPage, app_page
from tests.console.browser import accessibility_problems, expect
from tests.support.polling import DEADLINE

pytestmark = pytest.mark.asyncio(loop_scope="session")

TIME = "ui://get-time/mcp-app.html"
DEBUG = "ui://debug-tool/mcp-app.html"
PROBE = (Path(__file__).parent / "probe.html").read_text(encoding="utf-8")

ASKING = (Path(__file__).parent / "asking.html").read_text(encoding="utf-8")
"""An App that asks in place of a form."""
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def example(name: str, *options: str) -> list[str]:
    program = PACKAGES / "@modelcontextprotocol" / name / "dist" / "index.js"
    return ["node", str(program), "--stdio", *options]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('store')}/tasks.db"


@pytest.fixture(scope="module")
def server(store: str) -> Server:
    server = Server("shop", store=store)
    server.add_ui(PROBE, "ui://shop/probe")
    server.add_ui(
        PROBE,
        "ui://shop/wide",
        csp={"connect_domains": ["https://api.example.com"]},
        permissions=["clipboard_write"],
        prefers_border=False,
    )
    server.add_tool(lambda: "fresh", name="refresh", visibility=["app"])
    server.add_tool(lambda: "bought", name="buy", visibility=["model"])

    @server.tool(ui=server.artifact_ui)
    async def orders() -> Result:
        rows = [{"id": 1, "who": "<b>Ada</b>"}, {"id": 2, "who": "Bob"}]
        return Result("Two orders.", artifact=Artifact(rows, title="Orders"))

    server.add_ui(ASKING, "ui://shop/asking")
    server.add_tool(lambda: "shown", name="show_probe", ui="ui://shop/probe")

    @server.tool
    async def travel(ctx: Context, page: str) -> str:
        city = await ctx.elicit("Where to?", CITY, ui=f"ui://shop/{page}")
        return f"To {city['city']}"

    @server.tool(task="required", poll_interval=0.02)
    async def approve(ctx: Context) -> str:
        city = await ctx.elicit("Which city?", CITY, to="finance", ui="ui://shop/asking")
        return f"To {city['city']}"

    return server


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def page(
    chromium: Any, server: Server, store: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[AppPage]:
    log = tmp_path_factory.mktemp("debug") / "log"
    targets = {
        "shop": server,
        "time": example("server-basic-vanillajs"),
        "debug": example("server-debug", f"--log-file={log}"),
    }
    stores = [StoreSource("shop", "tasks.db", open_store(store))]
    async with app_page(chromium, targets, stores=stores) as page:
        yield page


async def probe(page: AppPage, **options: Any) -> None:
    await page.show("shop", "ui://shop/probe", **options)
    await page.app.get_by_text("A probe.").wait_for()


async def start(page: AppPage, **options: Any) -> Any:
    """Show the probe, and let it initialize; return what the console answered."""
    await probe(page, **options)
    answer = await page.in_app("initialize()")
    await page.in_app("initialized()")
    await page.in_app("ask('ping')")  # messages come in order, so the console has begun by now
    return answer


# Apps of the official examples


async def count(page: AppPage, callback: str) -> int:
    """Return how often the App heard of something, by its own table."""
    row = page.app.locator("#callback-table-body tr", has=page.page.get_by_text(callback, exact=True))
    return int(await row.locator("td").nth(2).inner_text())


async def test_an_official_app_gets_the_result_and_calls_a_tool(page: AppPage) -> None:
    result = {"content": [{"type": "text", "text": "noon"}], "structuredContent": {"time": "noon"}}
    await page.show("time", TIME, tool="get-time", input={}, result=result)
    await page.app.get_by_text("noon", exact=True).wait_for()
    await page.app.get_by_role("button", name="Get Server Time").click()
    await page.wait_in_app("document.querySelector('#server-time').textContent.startsWith('20')")
    assert await page.activity() == ["tool get-time"]
    assert page.problems == []


async def test_everything_that_an_official_app_asks_of_a_host(page: AppPage) -> None:
    app, view = page.app, page.node
    await page.show("debug", DEBUG, tool="debug-tool")
    await app.get_by_text("antiphon-console", exact=False).first.wait_for()
    # Arguments in parts, then all of them, then the result; each once.
    await page.call(
        """() => {
          view.showInput({ text: "a" }, { partial: true });
          view.showInput({ text: "ab" });
          view.showInput({ text: "never" }, { partial: true });
          view.showResult({ content: [{ type: "text", text: "done" }] });
          view.cancel("changed my mind");
          app.theme.set("dark");
        }"""
    )
    await page.wait_in_app("document.body.innerText.includes('onhostcontextchanged:')")
    for callback in ("ontoolinput", "ontoolinputpartial", "ontoolresult", "ontoolcancelled"):
        assert await count(page, callback) == 1, callback
    await expect(app.locator("#host-context-info dd").first).to_have_text("dark", use_inner_text=True)
    # Messages, logs and context go to the person.
    for button in ("#send-message-text-btn", "#log-warning-btn", "#update-context-structured-btn"):
        await app.locator(button).click()
    await app.locator("#call-debug-refresh-btn").click()
    await view.locator("details li", has_text="debug-refresh").wait_for(state="attached")
    activity = "\n".join(await page.activity())
    assert 'message [{"type":"text","text":"Hello from debug app!"}]' in activity
    assert "log warning Debug log data" in activity
    assert "context for the model {" in activity
    # The size, and the display mode.
    await app.locator("#auto-resize-toggle").uncheck()
    await app.locator("#resize-400x300-btn").click()
    await until_true(page.page, "document.querySelector('section.app iframe').style.height === '300px'")
    await app.locator("#display-pip-btn").click()
    await app.locator("#display-fullscreen-btn").click()
    await page.page.locator("section.app.full").wait_for()
    await view.get_by_role("button", name="Leave full screen").click()
    await page.page.locator("section.app:not(.full)").wait_for()
    # A link opens if the person agrees.
    await page.page.context.route(
        "https://modelcontextprotocol.io/**", lambda route: route.fulfill(body="ok")
    )
    await app.locator("#open-link-btn").click()
    dialog = page.page.get_by_role("dialog")
    assert "https://modelcontextprotocol.io/" in await dialog.inner_text()
    async with page.page.context.expect_page() as opened:
        await dialog.get_by_role("button", name="Open", exact=True).click()
    tab = await opened.value
    assert await tab.evaluate("window.opener") is None
    await tab.close()
    assert page.problems == []


# The App that shows artifacts


async def test_the_app_of_an_artifact_reads_it_through_the_console(page: AppPage, server: Server) -> None:
    called = await page.console.post("/api/servers/shop/app/call", {"name": "orders"})
    await page.show("shop", server.artifact_ui, tool="orders", result=called["result"])
    await page.app.get_by_role("columnheader", name="who").wait_for()
    await expect(page.app.locator("tbody tr td:nth-child(2)")).to_have_text(
        ["<b>Ada</b>", "Bob"], use_inner_text=True
    )
    assert page.problems == []


# The handshake and the end


async def test_an_app_hears_nothing_before_it_is_initialized(page: AppPage) -> None:
    result = {"content": [], "structuredContent": {"a": 1}}
    await probe(page, tool="orders", input={"x": 1}, result=result)
    answer = await page.in_app("initialize()")
    assert await page.in_app("heard") == []
    assert answer["protocolVersion"] == "2026-01-26"
    assert answer["hostInfo"]["name"] == "antiphon-console"
    assert answer["hostCapabilities"].keys() >= {
        "openLinks",
        "serverTools",
        "serverResources",
        "logging",
        "sandbox",
    }
    context = answer["hostContext"]
    assert context["toolInfo"]["tool"]["name"] == "orders"
    assert context["theme"] == "light"
    assert context["displayMode"] == "inline"
    assert context["containerDimensions"]["width"] > 100
    assert context["styles"]["variables"]["--color-text-primary"].startswith("light-dark(#")
    await page.in_app("initialized()")
    await page.wait_in_app("heard.length >= 2")
    assert [each["method"] for each in await page.in_app("heard")][:2] == [
        "ui/notifications/tool-input",
        "ui/notifications/tool-result",
    ]
    assert [each["params"] for each in await page.in_app("heard")][:2] == [{"arguments": {"x": 1}}, result]


async def test_an_app_is_told_before_it_ends_and_may_ask_to_end(page: AppPage) -> None:
    await start(page)
    await page.call("() => view.close()")
    assert await page.activity() == ["log info goodbye"]
    assert "The App is closed." in await page.node.inner_text()
    await start(page)
    await page.in_app("tell({ method: 'ui/notifications/request-teardown' })")
    await page.node.get_by_text("The App is closed.").wait_for()


# What an App may ask for


async def test_an_app_calls_tools_for_apps_and_reads_resources_of_its_server_only(page: AppPage) -> None:
    await start(page)
    fresh = await page.in_app("ask('tools/call', { name: 'refresh', arguments: {} })")
    assert fresh["content"] == [{"type": "text", "text": "fresh"}]
    for name in ("buy", "get-time", "debug-refresh"):
        refused = await page.in_app(f"ask('tools/call', {{ name: '{name}', arguments: {{}} }})")
        assert refused == {
            "code": -32000,
            "message": f"The server has no tool '{name}' that an App may call.",
        }
    read = await page.in_app("ask('resources/read', { uri: 'ui://shop/probe' })")
    assert read["contents"][0]["uri"] == "ui://shop/probe"
    assert (await page.in_app(f"ask('resources/read', {{ uri: '{TIME}' }})"))["code"] == -32602
    assert await page.in_app("ask('ping')") == {}
    for method in (
        "sampling/createMessage",
        "tools/list",
        "constructor",
        "__proto__",
        "ui/notifications/sandbox-x",
    ):
        answer = page.in_app(
            f"Promise.race([ask('{method}', {{}}), ask('ping').then(() => ({{ code: 0 }}))])"
        )
        assert (await answer)["code"] in (-32601, 0), method
    assert (await page.activity())[0] == "tool refresh"


async def test_a_link_is_opened_only_by_the_person(page: AppPage) -> None:
    await start(page)
    for url in ("javascript:alert(1)", "data:text/html,x", "file:///etc/passwd", "nothing", ""):
        refused = await page.in_app(f"ask('ui/open-link', {{ url: '{url}' }})")
        assert refused == {"code": -32000, "message": "Only http and https addresses are opened."}
    await page.in_app("{ window.first = ask('ui/open-link', { url: 'https://a.example/x' }); 0 }")
    dialog = page.page.get_by_role("dialog")
    assert "App ui://shop/probe of shop wants to open https://a.example/x" in await dialog.inner_text()
    second = await page.in_app("ask('ui/open-link', { url: 'https://b.example/' })")
    assert second["message"] == "The person is asked about another link."
    await dialog.get_by_role("button", name="Back").click()
    assert (await page.in_app("window.first"))["message"] == "The person did not open the link."
    assert len(page.page.context.pages) == 1


async def test_an_app_is_shown_in_modes_that_it_declared(page: AppPage) -> None:
    await probe(page)
    await page.in_app("initialize({ availableDisplayModes: ['inline'] })")
    await page.in_app("initialized()")
    assert await page.in_app("ask('ui/request-display-mode', { mode: 'fullscreen' })") == {"mode": "inline"}
    assert await page.in_app("ask('ui/request-display-mode', { mode: 'pip' })") == {"mode": "inline"}
    assert not await page.node.get_by_role("button", name="Full screen").is_visible()
    await page.in_app("tell({ method: 'ui/notifications/size-changed', params: { height: 99999 } })")
    await until_true(page.page, "document.querySelector('section.app iframe').style.height === '800px'")


async def test_an_app_fills_the_page_only_after_a_person_used_it(page: AppPage) -> None:
    await start(page)
    wish = "ask('ui/request-display-mode', { mode: 'fullscreen' })"
    # Code that a test runs counts as a person's action, so this says that nobody did anything.
    idle = "Object.defineProperty(navigator, 'userActivation', { value: {}, configurable: true })"
    await page.page.evaluate(f"{idle}, 0")
    assert await page.in_app(wish) == {"mode": "inline"}
    await page.page.evaluate("delete navigator.userActivation")
    await page.app.get_by_text("A probe.").click()
    assert await page.in_app(wish) == {"mode": "fullscreen"}
    await page.page.keyboard.press("Escape")
    await page.page.locator("section.app:not(.full)").wait_for()


async def test_a_large_message_of_an_app_is_cut(page: AppPage) -> None:
    await start(page)
    await page.in_app(
        """ask('ui/message', { content: [
            Array.from({ length: 200000 }, (_, at) => at),
            Object.fromEntries(Array.from({ length: 100000 }, (_, at) => [at, at])),
        ] })"""
    )
    (line,) = await page.activity()
    assert 1000 < len(line) <= 4010


async def test_a_flood_of_messages_is_refused(page: AppPage) -> None:
    await start(page)
    answers = await page.in_app("Promise.all(Array.from({ length: 1000 }, () => ask('ping')))")
    assert {"code": -32000, "message": "The App sends too many messages."} in answers
    await page.wait_in_app("ask('ping').then((answer) => !answer.code)")


async def test_the_text_of_an_app_stays_text(page: AppPage) -> None:
    await start(page)
    hostile = "<img src=x onerror=alert(1)>"
    await page.in_app(
        f"ask('ui/message', {{ role: 'user', content: [{{ type: 'text', text: '{hostile}' }}] }})"
    )
    assert hostile in "".join(await page.activity())
    assert await page.node.locator("details img").count() == 0


# What the person decides


async def test_an_app_that_reaches_further_waits_for_the_person(page: AppPage) -> None:
    await page.show("shop", "ui://shop/wide")
    await page.node.get_by_text("send data to https://api.example.com").wait_for()
    assert await page.node.locator("li").all_inner_texts() == [
        "write to the clipboard",
        "send data to https://api.example.com",
    ]
    assert await page.node.locator("iframe").count() == 0
    await page.node.get_by_role("button", name="Show the App").click()
    await page.app.get_by_text("A probe.").wait_for()
    answer = await page.in_app("initialize()")
    assert answer["hostCapabilities"]["sandbox"] == {
        "csp": {"connectDomains": ["https://api.example.com"]},
        "permissions": {"clipboardWrite": {}},
    }
    assert await page.in_app("document.featurePolicy.allowsFeature('clipboard-write')")
    assert not await page.in_app("document.featurePolicy.allowsFeature('camera')")
    assert await page.page.locator("section.app iframe.bordered").count() == 0
    # The person is not asked again on this page.
    await page.show("shop", "ui://shop/wide")
    await page.app.get_by_text("A probe.").wait_for()


# At the workbench


async def test_the_app_of_a_tool_is_beside_its_result_and_its_messages_are_listed(page: AppPage) -> None:
    await page.page.goto(page.console.url + "/workbench/shop")
    tool = page.page.locator(".bench-item strong")
    await tool.get_by_text("orders", exact=True).click()
    await page.page.get_by_role("button", name="Call", exact=True).click()
    header = page.app.get_by_role("columnheader", name="who")
    await header.wait_for()
    await expect(page.page.get_by_role("region", name="Answer").get_by_text("Two orders.")).to_have_count(1)
    assert await accessibility_problems(page.page) == []
    # The App starts again if the person comes back to the tool.
    await tool.get_by_text("refresh", exact=True).click()
    await header.wait_for(state="detached")
    await tool.get_by_text("orders", exact=True).click()
    await header.wait_for()
    await page.page.keyboard.press("m")
    await page.page.get_by_role("button", name="resources/read", exact=True).first.wait_for()


async def sends(page: AppPage, text: str) -> None:
    """Send what an App wants to answer, as soon as the page shows it."""
    dialog = page.page.get_by_role("dialog", name="Send this answer?")
    await dialog.get_by_text(text).wait_for()
    assert await accessibility_problems(page.page) == []
    await dialog.get_by_role("button", name="Send", exact=True).click()


async def test_an_app_asks_in_place_of_a_form(page: AppPage) -> None:
    await page.page.goto(page.console.url + "/workbench/shop")
    await page.page.locator(".bench-item strong").get_by_text("travel", exact=True).click()
    answer = page.page.get_by_role("region", name="Answer")

    async def call(name: str) -> None:
        await page.page.get_by_label("page", exact=True).fill(name)
        await page.page.get_by_role("button", name="Call", exact=True).click()

    await call("asking")
    await page.app.get_by_role("heading", name="Where to?").wait_for()
    await page.app.get_by_role("button", name="Oslo").click()
    await sends(page, "Oslo")
    await answer.get_by_text("To Oslo", exact=True).wait_for()
    # An answer that the person does not send leads to the form.
    await call("asking")
    await page.app.get_by_role("button", name="Oslo").click()
    await page.page.get_by_role("dialog").get_by_role("button", name="Back").click()
    await answer.get_by_text("You did not send the answer of the App.").wait_for()
    await answer.get_by_label("city").fill("Paris")
    await answer.get_by_role("button", name="Answer").click()
    await answer.get_by_text("To Paris", exact=True).wait_for()
    # The person may use the form all the same; and an App that is not there cannot ask.
    await call("asking")
    await page.app.get_by_role("heading", name="Where to?").wait_for()
    await answer.get_by_role("button", name="Use the form").click()
    await answer.get_by_label("city").fill("Rome")
    await answer.get_by_role("button", name="Answer").click()
    await answer.get_by_text("To Rome", exact=True).wait_for()
    await call("missing")
    await answer.get_by_label("city").fill("Bern")
    await answer.get_by_role("button", name="Answer").click()
    await answer.get_by_text("To Bern", exact=True).wait_for()


async def test_a_tool_that_an_app_calls_asks_the_person(page: AppPage) -> None:
    await page.page.goto(page.console.url + "/workbench/shop")
    await page.page.locator(".bench-item strong").get_by_text("show_probe", exact=True).click()
    await page.page.get_by_role("button", name="Call", exact=True).click()
    await page.in_app("initialize()")
    await page.in_app("initialized()")
    await page.in_app(
        "{ window.trip = ask('tools/call', { name: 'travel', arguments: { page: 'missing' } }); 0 }"
    )
    question = page.page.get_by_role("region", name="Question")
    await question.get_by_label("city").fill("Bern")
    await question.get_by_role("button", name="Answer").click()
    assert (await page.in_app("window.trip"))["content"] == [{"type": "text", "text": "To Bern"}]


# In the inbox


async def test_an_app_asks_in_the_inbox(page: AppPage, server: Server) -> None:
    operator = ConsoleUser("tester", None, may_operate=True, may_write=True)
    client = await page.console.app.sources.server("shop").client(operator)
    task = await client.submit("approve")
    await page.page.goto(page.console.url + "/inbox")
    question = page.page.get_by_role("article")
    await question.get_by_role("button", name="Answer in the App").click()
    await page.app.get_by_role("heading", name="Which city?").wait_for()
    await expect(question.get_by_label("city")).to_be_visible()  # the form stays
    await page.app.get_by_role("button", name="Oslo").click()
    await page.page.get_by_role("dialog").get_by_role("button", name="Back").click()
    await page.app.get_by_role("heading").wait_for(state="detached")
    # The App answers again, and nothing was sent in between.
    await question.get_by_role("button", name="Answer in the App").click()
    await page.app.get_by_role("button", name="Oslo").click()
    assert (await task.status()).status == "working"  # it asks others than its caller
    await sends(page, "Oslo")
    assert (await task.result(timeout=DEADLINE)).text == "To Oslo"
