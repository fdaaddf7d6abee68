"""The App that shows artifacts, in Chromium, inside a host of the official package."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from antiphon import Artifact, Client, Result, Server
from tests.apps.browser import Host, host_for
from tests.patterns.tooling import png

pytestmark = pytest.mark.asyncio(loop_scope="session")

HOSTILE = '<img src=x onerror="document.title=1"><script>document.title=1</script>'
ORDERS = [
    {"id": 10, "who": "Ada", "total": 9.5, "lines": [{"sku": "a"}]},
    {"id": 9, "who": "bob", "total": 100, "lines": []},
    {"id": 1, "who": HOSTILE, "total": None},
]
MARKDOWN = f"""# Report

Some **bold**, *slanted* and `code`, see [the site](https://example.com/a) or [this](javascript:alert(1)).
{HOSTILE}

- one
  - nested
- two

1. first
2. second

> quoted

```
let x = "<b>";
```

| Name | Count |
|---|---:|
| b | 10 |
| a | 9 |

![a picture](https://example.com/p.png)
"""
VALUES: dict[str, Artifact[Any]] = {
    "orders": Artifact(ORDERS, type="order_list", title="Orders"),
    "markdown": Artifact(MARKDOWN, mime_type="text/markdown"),
    "tree": Artifact({"a": {"b": {"c": [1, 2]}}, "rows": [{"x": 1}], "text": HOSTILE, "none": None}),
    "csv": Artifact('name,n\n"a, ""b""",2\nc,10\n', mime_type="text/csv"),
    "text": Artifact("plain <b>\n", mime_type="text/plain"),
    "image": Artifact(png(), mime_type="image/png"),
    "long": Artifact([{"n": number} for number in range(1000)]),
    "paged": Artifact("x" * 200_000, mime_type="text/plain"),
    "binary": Artifact(b"\0\1", mime_type="application/zip"),
}


@pytest.fixture(scope="module")
def server() -> Server:
    """A server that keeps artifacts, with an App and a tool of its own."""
    server = Server("shop")

    @server.tool(ui=server.artifact_ui)
    async def keep(name: str) -> Result:
        return Result(f"Kept **{name}**.", artifact=VALUES[name])

    server.add_ui(
        "<p>",
        "ui://shop/page",
        csp={"connect_domains": ["https://a.example"], "frame_domains": ["https://b.example"]},
        permissions=["camera", "clipboard_write"],
        domain="a.host.example",
        prefers_border=True,
    )
    server.add_tool(lambda: "x", name="refresh", visibility=["app"])
    return server


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def client(server: Server) -> AsyncIterator[Client]:
    """A client that shows Apps."""
    async with Client(server, shows_ui=True) as client:
        yield client


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def browser(chromium: Any, client: Client) -> AsyncIterator[Host]:
    """A host in a browser."""
    async with host_for(chromium, client) as host:
        yield host


@pytest_asyncio.fixture(loop_scope="session")
async def host(browser: Host) -> AsyncIterator[Host]:
    """The host. At the end, the App has loaded nothing from elsewhere, and has broken no rule."""
    yield browser
    assert browser.outside == []
    assert browser.messages == []
    assert (await browser.seen())["errors"] == []


async def show(host: Host, client: Client, name: str, **options: Any) -> Any:
    """Show the App of an artifact, by its own address; return the App."""
    result = await client.call("keep", name=name)
    page = (await client.read(result.meta["ui_uri"])).contents[0].text
    await host.show(page, **options)
    await host.app.locator("#view > *").wait_for()
    return host.app


async def column(app: Any, number: int) -> list[str]:
    return [text.strip() for text in await app.locator(f"tbody tr td:nth-child({number})").all_inner_texts()]


async def test_a_list_of_records_is_a_table_that_can_be_sorted(host: Host, client: Client) -> None:
    app = await show(host, client, "orders")
    assert await app.locator("h1").inner_text() == "Orders"
    assert await app.locator("#about").inner_text() == "order_list · application/json · " + (
        f"{len(msgspec.json.encode(ORDERS))} bytes"
    )
    assert await app.locator("th").all_inner_texts() == ["id", "who", "total", "lines"]
    assert await column(app, 2) == ["Ada", "bob", HOSTILE]
    assert await column(app, 4) == ["[1]", "[0]", ""]
    await app.get_by_role("button", name="id").click()
    assert await column(app, 1) == ["1", "9", "10"]
    assert await app.locator("th").first.get_attribute("aria-sort") == "ascending"
    total = app.get_by_role("button", name="total")
    await total.click()
    assert await column(app, 3) == ["9.5", "100", ""]
    await total.click()
    assert await column(app, 3) == ["100", "9.5", ""]
    assert await app.locator("th").first.get_attribute("aria-sort") is None
    await host.wait_for("window.seen.sizes.length")
    sizes = (await host.seen())["sizes"]
    assert all(size["height"] > 0 for size in sizes)


async def test_markdown_becomes_nodes_and_its_html_stays_text(host: Host, client: Client) -> None:
    app = await show(host, client, "markdown")
    for selector, text in {
        "h2": "Report",
        "strong": "bold",
        "em": "slanted",
        "p code": "code",
        "blockquote": "quoted",
        "pre code": 'let x = "<b>";',
        "ul ul li": "nested",
        "ol li:nth-child(2)": "second",
    }.items():
        assert (await app.locator(f"main {selector}").inner_text()).strip() == text
    assert HOSTILE in await app.locator("main").inner_text()
    assert await app.locator("main img, main script, main iframe").count() == 0
    assert await app.locator("main a").all_inner_texts() == ["the site", "a picture"]
    await app.get_by_role("button", name="Count").click()
    assert await column(app, 1) == ["a", "b"]
    await app.get_by_role("link", name="the site").click()
    await host.wait_for("window.seen.links.length")
    assert (await host.seen())["links"] == ["https://example.com/a"]
    assert await host.evaluate_in_app("document.title") == "Artifact"


async def test_a_value_is_a_tree_that_can_be_folded(host: Host, client: Client) -> None:
    app = await show(host, client, "tree")
    assert await app.locator("main summary").all_inner_texts() == ["a: {1}", "b: {1}", "rows: [1]"]
    assert await app.locator("main table th").all_inner_texts() == ["x"]
    assert await app.locator("main details details").get_attribute("open") is None
    await app.get_by_text("b: {1}").click()
    await app.get_by_text("c: [2]").click()
    assert HOSTILE in await app.locator("main").inner_text()
    await app.get_by_text("a: {1}").click()
    assert await app.get_by_text("c: [2]").is_hidden()


@pytest.mark.parametrize(
    ("name", "selector", "text"),
    [
        ("csv", "tbody tr:first-child td:first-child", 'a, "b"'),
        ("text", "pre", "plain <b>"),
        ("paged", "pre", "x" * 200_000),
        ("binary", "p", "There is no view for application/zip."),
    ],
)
async def test_other_kinds_of_text(host: Host, client: Client, name: str, selector: str, text: str) -> None:
    app = await show(host, client, name)
    assert (await app.locator(f"main {selector}").inner_text()).strip() == text


async def test_a_picture_is_shown(host: Host, client: Client) -> None:
    app = await show(host, client, "image")
    await app.locator("main img").wait_for()
    assert await host.evaluate_in_app("document.querySelector('main img').decode().then(() => true)")


async def test_a_long_table_is_shown_in_parts(host: Host, client: Client) -> None:
    app = await show(host, client, "long")
    assert await app.locator("tbody tr").count() == 201
    await app.get_by_role("button", name="Show more (800 left)").click()
    assert await app.locator("tbody tr").count() == 401


@pytest.mark.parametrize("protocol", ["2026-07-28", "2025-11-25", "2024-11-05"])
async def test_the_app_of_a_tool_reads_the_artifact_of_the_result(
    host: Host, server: Server, client: Client, protocol: str
) -> None:
    async with Client(server, protocol=protocol, shows_ui=True) as other:
        result = await other.call("keep", name="csv")
        page = (await other.read("ui://shop/artifact")).contents[0].text
    await host.show(page, result=wire(result))
    await host.app.locator("table").wait_for()
    assert await column(host.app, 1) == ['a, "b"', "c"]


async def test_the_app_listens_to_its_host_alone(host: Host, client: Client) -> None:
    app = await show(host, client, "text")
    await host.evaluate("""() => {
        const other = document.createElement("iframe");
        document.body.append(other);
        const forge = (method, params) => {
            const message = JSON.stringify({ jsonrpc: "2.0", method, params });
            other.contentWindow.eval(`parent.frames[0].postMessage(${message}, "*")`);
        };
        forge("ui/notifications/host-context-changed", { styles: { variables: { "--forged": "yes" } } });
        window.bridge.setHostContext({ theme: "dark" });
    }""")
    await host.wait_for_app("document.documentElement.style.colorScheme === 'dark'")
    assert await host.evaluate_in_app("document.documentElement.style.getPropertyValue('--forged')") == ""
    assert await app.locator("main pre").count() == 1


@pytest.mark.parametrize("name", ["orders", "markdown"])
async def test_without_reads_the_app_shows_what_the_result_contains(
    host: Host, client: Client, name: str
) -> None:
    result = await client.call("keep", name=name)
    for uri in ("ui://shop/artifact", result.meta["ui_uri"]):
        page = (await client.read(uri)).contents[0].text
        await host.show(page, result=wire(result), capabilities={})
        await host.app.locator("main table" if name == "orders" else "main strong").first.wait_for()
        assert await host.app.locator("#status").inner_text() == ""


async def test_an_artifact_that_cannot_be_read_is_explained(host: Host, client: Client) -> None:
    result = await client.call("keep", name="orders")
    page = (await client.read(result.meta["ui_uri"])).contents[0].text
    gone = page.replace(result.meta["artifact_id"], "0" * 32)
    await host.show(gone)
    problem = host.app.get_by_text("The artifact cannot be read")
    await problem.wait_for()
    assert "Resource not found" in await problem.inner_text()
    host.messages.clear()


async def test_the_app_takes_the_theme_and_the_modes_of_its_host(host: Host, client: Client) -> None:
    context = {
        "theme": "dark",
        "styles": {"variables": {"--color-background-primary": "rgb(1, 2, 3)"}},
        "displayMode": "inline",
        "availableDisplayModes": ["inline", "fullscreen"],
    }
    app = await show(host, client, "text", context=context)
    style = "getComputedStyle(document.body).backgroundColor"
    assert await host.evaluate_in_app(style) == "rgb(1, 2, 3)"
    await app.get_by_role("button", name="Full screen").click()
    await app.get_by_role("button", name="Leave full screen").wait_for()
    assert (await host.seen())["modes"] == ["fullscreen"]
    assert await host.evaluate("window.bridge.teardownResource({})") == {}


async def test_the_official_package_reads_the_metadata(host: Host, client: Client) -> None:
    tools = {tool.name: msgspec.to_builtins(tool) for tool in await client.tools()}
    assert await host.evaluate("tool => window.readTool(tool)", tools["keep"]) == {
        "uri": "ui://shop/artifact",
        "appOnly": False,
        "meta": {"resourceUri": "ui://shop/artifact"},
    }
    assert await host.evaluate("tool => window.readTool(tool)", tools["refresh"]) == {
        "uri": None,
        "appOnly": True,
        "meta": {"visibility": ["app"]},
    }
    (contents,) = (await host.read("ui://shop/page"))["contents"]
    assert await host.evaluate("contents => window.readSettings(contents)", contents) == {
        "csp": {"connectDomains": ["https://a.example"], "frameDomains": ["https://b.example"]},
        "permissions": {"camera": {}, "clipboardWrite": {}},
        "domain": "a.host.example",
        "prefersBorder": True,
    }
    await show(host, client, "text")


def wire(result: Any) -> dict[str, Any]:
    """Return a result as the host gets it."""
    return {
        "content": msgspec.to_builtins(result.content),
        "structuredContent": json.loads(msgspec.json.encode(result.data)),
        "_meta": result.meta,
    }
