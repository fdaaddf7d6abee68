"""The frame of the console in Chromium: navigation, keyboard, theme, forms, and what other pages try."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.request import url2pathname

import pytest

from antiphon.cli.console.browser import BrowserPage
from tests.apps.browser import launched
from tests.console.browser import accessibility_problems, expect, open_tab
from tests.console.support import serving_app, serving_console
from tests.support.polling import DEADLINE

FOREIGN_REQUESTS = """async url => {
    const load = () => new Promise((done, fail) => {
        const script = document.createElement("script");
        Object.assign(script, { src: `${url}/main.js`, onload: done, onerror: fail });
        document.body.append(script);
    });
    const write = { method: "POST", credentials: "include", mode: "no-cors" };
    const attempts = [
        () => fetch(`${url}/api/sign-in-links`, write).then(response => response.type),
        () => fetch(`${url}/api/session`, { credentials: "include" }),
        load,
    ];
    const outcomes = [];
    for (const attempt of attempts) outcomes.push(await attempt().catch(() => "refused"));
    return outcomes;
}"""
"""What a page on another port tries: a write, a read, and a script of the console."""

INTRUSIONS = """async () => {
    const make = (name, properties) => Object.assign(document.createElement(name), properties);
    const body = document.body;
    const attempts = {
        markup: () => { body.innerHTML = '<img src=x onerror="window.hacked = 1">'; },
        "inserted markup": () => body.insertAdjacentHTML("beforeend", "<b>x</b>"),
        "script text": () => body.append(make("script", { text: "window.hacked = 1" })),
        "script source": () => body.append(make("script", { src: "data:,window.hacked=1" })),
        policy: () => trustedTypes.createPolicy("x", { createHTML: text => text }),
        handler: () => body.setAttribute("onclick", "window.hacked = 1"),
        // These raise no error; nothing happens.
        address: () => {
            const link = make("a", { href: "javascript:window.hacked=1", textContent: "x" });
            body.append(link);
            link.click();
        },
        style: () => body.setAttribute("style", "background: url(https://elsewhere.test/)"),
        image: () => body.append(make("img", { src: "https://elsewhere.test/x.png" })),
        frame: () => body.append(make("iframe", { src: "https://elsewhere.test/" })),
        request: () => fetch("https://elsewhere.test/").catch(() => 0),
    };
    const refused = [];
    const outside = new Set();
    document.addEventListener("securitypolicyviolation", (event) => {
        if (event.blockedURI.startsWith("https://elsewhere.test")) outside.add(event.effectiveDirective);
        if (outside.size === 3) body.append("end"); // the image, the frame and the request
    });
    for (const [name, attempt] of Object.entries(attempts)) {
        try { await attempt(); } catch { refused.push(name); }
    }
    return refused;
}"""
"""What script or markup of somebody else would try inside the page."""

pytestmark = pytest.mark.asyncio(loop_scope="session")

PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True}


class Site:
    """A web page of somebody else, on another port of this machine."""

    def __init__(self) -> None:
        self.markup = ""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            for kind in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{kind}.complete"})
            return
        body = f"<!doctype html><title>Elsewhere</title>{self.markup}".encode()
        headers = [(b"content-type", b"text/html; charset=utf-8"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


@asynccontextmanager
async def elsewhere() -> AsyncIterator[tuple[Site, str]]:
    site = Site()
    async with serving_app(site) as url:
        yield site, url


async def test_the_frame_without_problems_of_accessibility_and_without_a_request_elsewhere(
    browser: Any,
) -> None:
    async with serving_console() as console:
        for options in ({}, {"color_scheme": "dark"}, PHONE):
            tab = await open_tab(browser, console, "/tasks/no/such/page", **options)
            page = tab.page
            await page.wait_for_selector("main h1")
            assert await accessibility_problems(page) == []
            await page.get_by_role("button", name="tester").click()
            await page.get_by_role("button", name="Sign in another browser").click()
            await page.wait_for_selector("dialog input")
            assert await accessibility_problems(page) == []
            address = await page.input_value("dialog input")
            assert address.startswith(f"{console.url}/sign-in?token=")
            assert tab.outside == []
            width = await page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
            assert width <= 0, "The page is wider than the screen."
            if options is PHONE:
                sizes = await page.eval_on_selector_all(
                    "nav a, nav button, dialog button, main button",
                    "nodes => nodes.filter(each => each.checkVisibility())"
                    ".map(each => [each.textContent, each.getBoundingClientRect().height])",
                )
                assert all(height >= 44 for _, height in sizes), sizes
            await page.context.close()


async def test_the_keyboard_reaches_everything_and_the_theme_is_kept(browser: Any) -> None:
    async with serving_console() as console:
        page = (await open_tab(browser, console)).page
        await page.wait_for_selector("nav")
        await page.keyboard.press("2")
        await page.wait_for_url("**/tasks")
        await expect(page.locator("nav li a[href=tasks]")).to_have_attribute("aria-current", "page")
        await page.go_back()
        await page.wait_for_selector("nav li a[href=workbench][aria-current]")
        await page.keyboard.press("?")
        assert "Workbench" in await page.text_content("dialog")
        await page.keyboard.press("Escape")
        await page.wait_for_selector("dialog", state="detached")
        await page.get_by_role("button", name="Switch between light and dark").click()
        dark = await page.evaluate("getComputedStyle(document.documentElement).colorScheme")
        await page.reload()
        await page.wait_for_selector("nav")
        assert dark == "dark"
        assert await page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "dark"
        await page.keyboard.press("Tab")
        assert await page.evaluate("document.activeElement.textContent") == "Skip to the page"


async def test_a_page_is_told_that_the_console_is_gone(browser: Any) -> None:
    async with serving_console() as console:
        page = (await open_tab(browser, console)).page
        await page.wait_for_selector("nav")
    await page.evaluate("import('./lib/api.js').then(api => api.get('/api/session')).catch(() => 0)")
    await page.get_by_text("The console does not respond.").wait_for()


SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Your name", "description": "As on the bill."},
        "note": {"type": "string", "maxLength": 500},
        "count": {"type": "integer", "minimum": 1},
        "ratio": {"type": ["number", "null"]},
        "color": {"type": "string", "enum": ["r", "g"], "enumNames": ["Red", "Green"]},
        "size": {"oneOf": [{"const": 1, "title": "Small"}, {"const": 2, "title": "Large"}]},
        "tags": {"type": "array", "items": {"type": "string", "enum": ["a", "b", "c"]}},
        "sure": {"type": "boolean"},
        "place": {"type": "object", "properties": {"x": {"type": "integer"}}},
        "<img src=x onerror=alert(1)>": {"type": "string", "default": "<b>"},
    },
    "required": ["name", "count", "sure"],
}


async def test_a_form_reads_every_kind_of_field_and_shows_what_is_wrong_at_its_field(browser: Any) -> None:
    async with serving_console() as console:
        tab = await open_tab(browser, console)
        page = tab.page
        await page.wait_for_selector("main h1")
        tab.errors.clear()
        await page.evaluate(
            """async schema => {
                const { form } = await import("./lib/form.js");
                window.sent = null;
                const onsubmit = values => { window.sent = values; };
                window.shown = form(schema, { submitLabel: "Answer", onsubmit });
                const title = Object.assign(document.createElement("h1"), { textContent: "Form" });
                document.querySelector("main").replaceChildren(title, window.shown.node);
            }""",
            SCHEMA,
        )
        await page.get_by_role("button", name="Answer").click()
        await expect(page.locator("p.error:visible")).to_have_text(
            ["Enter a value.", "Enter a value."], use_inner_text=True
        )
        assert (
            await page.evaluate("document.activeElement.previousElementSibling.textContent")
            == "As on the bill."
        )
        await page.get_by_label("Your name").fill("Ada")
        await page.get_by_label("note").fill("two\nlines")
        await page.get_by_label("count").fill("3")
        await page.get_by_label("ratio").fill("0.5")
        await page.get_by_label("color").select_option(label="Green")
        await page.get_by_label("size").select_option(label="Large")
        for tag in ("a", "c"):
            await page.get_by_role("checkbox", name=tag, exact=True).check()
        await page.get_by_role("checkbox", name="sure").check()
        await page.get_by_label("place").fill("{x: 1}")
        await page.get_by_role("button", name="Answer").click()
        assert "not JSON" in await page.locator("p.error:visible").inner_text()
        await page.get_by_label("place").fill('{"x": 1}')
        await page.keyboard.press("Tab")
        assert await accessibility_problems(page) == []
        await page.get_by_role("button", name="Answer").click()
        assert await page.evaluate("window.sent") == {
            "name": "Ada",
            "note": "two\nlines",
            "count": 3,
            "ratio": 0.5,
            "color": "g",
            "size": 2,
            "tags": ["a", "c"],
            "sure": True,
            "place": {"x": 1},
            "<img src=x onerror=alert(1)>": "<b>",
        }
        await page.evaluate("window.shown.showErrors({count: 'At most 2.', other: 'Missing.'})")
        await expect(page.locator("p.error:visible")).to_have_text(
            ["At most 2.", "other: Missing."], use_inner_text=True
        )
        await expect(page.get_by_label("count")).to_have_attribute("aria-invalid", "true")
        # Names of fields are names, also those that every object has.
        assert await page.evaluate(
            """async text => {
                const { form } = await import("./lib/form.js");
                const shown = form(JSON.parse(text), { onsubmit: () => {} });
                const inputs = [...shown.node.querySelectorAll("input")].map(each => each.value);
                const errors = shown.node.querySelectorAll(".error:not([hidden])").length;
                return [JSON.stringify(shown.values()), inputs, errors];
            }""",
            '{"properties": {"constructor": {"type": "string"}, "toString": {"type": "integer"}, '
            '"__proto__": {"type": "string", "default": "x"}}}',
        ) == ['{"__proto__":"x"}', ["", "", "x"], 0]
        assert tab.errors == []


async def test_other_pages_neither_write_nor_read_nor_frame_the_console(
    browser: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    async with elsewhere() as (site, foreign), serving_console() as console:
        page = (await open_tab(browser, console)).page
        await page.wait_for_selector("nav")
        context = page.context
        monkeypatch.setattr(console.app.sign_in, "create_link", lambda *options: made.append("link"))
        site.markup = f"""
            <form method="post" action="{console.url}/api/sign-in-links"><button>Send</button></form>
            <iframe src="{console.url}/tasks"></iframe>"""
        other = await context.new_page()
        await other.goto(foreign)
        # The ports of one host are one site, so the browser sends the cookie: only the guard refuses.
        assert await other.evaluate(FOREIGN_REQUESTS, console.url) == ["refused"] * 3
        assert await other.frames[1].evaluate("document.querySelector('nav')") is None
        async with other.expect_navigation() as navigation:
            await other.get_by_role("button", name="Send").click()
        assert (await navigation.value).status == 403
        assert made == []


async def test_links_in_other_pages_lead_into_the_console(browser: Any) -> None:
    async with elsewhere() as (site, foreign), serving_console() as console:
        page = await (await browser.new_context()).new_page()
        for address in (console.link(), f"{console.url}/tasks"):
            site.markup = f'<a href="{address}">Look</a>'
            await page.goto(foreign)
            await page.get_by_role("link", name="Look").click()
            await page.wait_for_selector("nav")


async def test_a_name_that_is_bound_to_this_machine_does_not_reach_the_console() -> None:
    async with (
        serving_console() as console,
        launched("--host-resolver-rules=MAP rebound.test 127.0.0.1") as browser,
    ):
        page = await browser.new_page()
        port = console.url.rpartition(":")[2]
        for path in ("/", "/api/session", "/sign-in?token=x"):
            response = await page.goto(f"http://rebound.test:{port}{path}")
            assert response.status == 421


async def test_a_link_works_once_in_a_browser_and_stays_out_of_its_history(browser: Any) -> None:
    async with serving_console() as console:
        link = console.link()
        page = await (await browser.new_context()).new_page()
        await page.goto(link)
        await page.wait_for_selector("nav")
        assert "token" not in page.url
        assert await page.evaluate("document.cookie") == ""
        thief = await (await browser.new_context()).new_page()
        assert (await thief.goto(f"{console.url}/api/session")).status == 401
        assert (await thief.goto(link)).status == 401
        assert await accessibility_problems(thief) == []


async def test_the_page_of_the_command_leads_into_the_console_once(
    browser: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: queue.Queue[str] = queue.Queue()
    monkeypatch.setattr("webbrowser.open", opened.put)
    async with serving_console() as console:
        leading = BrowserPage()
        leading.open(lambda used: f"{console.url}/sign-in?token={console.app.sign_in.create_link(used)}")
        address = await asyncio.to_thread(opened.get, timeout=DEADLINE)
        assert "token" not in address
        page = await (await browser.new_context()).new_page()
        await page.goto(address)
        await page.wait_for_selector("nav")
        assert not Path(url2pathname(address.removeprefix("file://"))).parent.exists()


async def test_script_that_got_into_the_page_does_not_run(browser: Any) -> None:
    async with serving_console() as console:
        tab = await open_tab(browser, console)
        page = tab.page
        await page.wait_for_selector("main h1")
        refused = await page.evaluate(INTRUSIONS)
        assert refused == ["markup", "inserted markup", "script text", "script source", "policy", "handler"]
        await page.get_by_text("end").wait_for()
        assert await page.evaluate("window.hacked") is None
        assert tab.outside == []
