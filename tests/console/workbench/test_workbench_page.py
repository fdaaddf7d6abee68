"""The workbench in a browser: forms, JSON, questions, streams, messages, and text that wants to be markup."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.apps.browser import until_true
from tests.console.browser import PHONE, accessibility_problems, expect, open_tab, small_targets
from tests.console.support import serving_console
from tests.console.workbench.bench_server import bench_console, bench_server, source_at
from tests.support.serving import serving

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def choose(page: Any, name: str) -> None:
    await page.locator(".bench-item strong").get_by_text(name, exact=True).click()


async def focused(page: Any) -> str:
    """Return the text of the control that has the focus."""
    return str(await page.evaluate("document.activeElement.textContent"))


async def call(page: Any) -> None:
    await page.get_by_role("button", name="Call", exact=True).click()


async def test_a_person_tries_every_kind_of_tool(browser: Any) -> None:
    async with bench_console() as console:
        tab = await open_tab(browser, console, "/workbench/bench")
        page = tab.page
        answer = page.get_by_role("region", name="Answer")

        # The keyboard keeps its place, whatever is drawn again.
        await page.locator(".bench-item").first.wait_for()
        names = await page.locator(".bench-item strong").all_inner_texts()
        for key, name in (("j", names[0]), ("j", names[1]), ("Enter", names[1]), ("j", names[2])):
            await page.keyboard.press(key)
            assert (await focused(page)).startswith(name)
        await choose(page, "add")
        for name in ("JSON", "Form"):
            await page.get_by_role("group", name="Arguments").get_by_role("button", name=name).focus()
            await page.keyboard.press("Enter")
            assert await focused(page) == name

        # The form and the JSON are two views of the same arguments.
        await choose(page, "add")
        await page.get_by_label("a", exact=True).fill("4")
        await page.get_by_role("group").get_by_role("button", name="JSON").click()
        text = page.get_by_label("Arguments as JSON")
        assert json.loads(await text.input_value()) == {"a": 4, "b": 2}
        await text.fill('{"a": 40,')
        await call(page)
        await page.get_by_text("This is not JSON").wait_for()
        await text.fill('{"a": 40}')
        await page.get_by_role("group").get_by_role("button", name="Form").click()
        await expect(page.get_by_label("a", exact=True)).to_have_value("40")
        await call(page)
        await answer.get_by_text("42", exact=True).wait_for()

        # A question is answered in place; what is wrong stands at its field.
        await choose(page, "plan")
        await call(page)
        question = page.get_by_role("region", name="Question")
        await question.get_by_label("city").fill("Oslo")
        await question.get_by_label("days").fill("99")
        await question.get_by_role("button", name="Answer").click()
        await question.get_by_text("at most 14").wait_for()
        await question.get_by_label("days").fill("3")
        await question.get_by_role("button", name="Answer").click()
        await answer.get_by_text("3 days in Oslo").wait_for()

        # Markdown, images and links are shown; markup in text stays text, and a link to a resource is read.
        await choose(page, "show")
        await call(page)
        await answer.get_by_role("heading", name="A heading").wait_for()
        await answer.get_by_text("<script>document.title='owned'</script>").wait_for()
        assert await answer.get_by_role("img").evaluate("image => image.naturalWidth") == 1
        assert await accessibility_problems(page) == []
        await answer.get_by_role("button", name="Read").click()
        await answer.get_by_text("The note one.").wait_for()
        await page.get_by_role("group").get_by_role("button", name="Tools").click()

        await choose(page, "people")
        await call(page)
        await answer.get_by_role("cell", name="1912").wait_for()

        # A stream is shown as it comes, and a call that does not end is cancelled.
        await choose(page, "count")
        await page.get_by_label("to", exact=True).fill("3")
        await call(page)
        await answer.get_by_text("Done").wait_for()
        await choose(page, "wait")
        await call(page)
        await answer.get_by_role("button", name="Cancel").click()
        await answer.get_by_text("Cancelled").wait_for()

        # Every message is listed, and filtered.
        await page.keyboard.press("m")
        await page.get_by_label("Filter messages").fill("tools/call")
        messages = page.get_by_role("region", name="Messages")
        await messages.get_by_role("button", name="tools/call", exact=True).last.click()
        await page.locator(".bench-detail pre", has_text='"a": 40').wait_for()
        async with page.expect_download() as saved:
            await page.get_by_role("link", name="Export").click()
        exported = await (await saved.value).path()
        assert exported.read_text(encoding="utf-8").startswith('{"antiphon":"messages"')

        await expect(page).to_have_title("Workbench · Antiphon")
        assert [error for error in tab.errors if "422" not in error] == []  # the answer that did not fit
        assert tab.outside == []


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_the_workbench_is_accessible_on_a_phone(browser: Any, theme: str) -> None:
    async with bench_console() as console:
        tab = await open_tab(browser, console, "/workbench", color_scheme=theme, **PHONE)
        page = tab.page
        await choose(page, "plan")
        # The editor is below the list, so the page goes there.
        is_there = """node => node.getBoundingClientRect().top < 100
            || scrollY + innerHeight >= document.documentElement.scrollHeight - 1"""
        assert await page.evaluate("scrollY") > 0
        assert await page.locator(".bench-editor").evaluate(is_there)
        await call(page)
        await page.get_by_role("region", name="Question").wait_for()
        assert await accessibility_problems(page) == []
        assert await small_targets(page) == []
        assert await page.evaluate("document.documentElement.scrollWidth") <= 390
        await page.get_by_role("button", name="Check").click()
        await page.get_by_text("The server works.").wait_for()
        assert await accessibility_problems(page) == []
        assert tab.errors == []


async def test_servers_are_added_in_the_page_and_failures_are_explained(browser: Any) -> None:
    async with (
        serving(bench_server()) as address,
        serving_console(servers=[source_at("http://127.0.0.1:9/mcp")]) as console,
    ):
        tab = await open_tab(browser, console, "/workbench")
        page = tab.page
        await page.get_by_text("Is the server running").wait_for()
        await page.get_by_role("button", name="Add server").click()
        await page.get_by_label("Address").fill("javascript:alert(1)")
        await page.get_by_role("button", name="Add", exact=True).click()
        await page.get_by_text("write an address such as").wait_for()
        await page.get_by_label("Address").fill(address.url)
        await page.get_by_role("button", name="Add", exact=True).click()
        await page.get_by_text("Speaks 2026-07-28").wait_for()
        await page.get_by_label("Protocol version").select_option("2025-11-25")
        await page.get_by_text("Speaks 2025-11-25").wait_for()
        await page.get_by_role("group").get_by_role("button", name="Resources").click()
        await choose(page, "note")
        await page.get_by_label("name", exact=True).fill("o")
        await page.locator("datalist option[value=other]").wait_for(state="attached")
        await page.get_by_label("name", exact=True).fill("other")
        await page.get_by_role("button", name="Read", exact=True).click()
        await page.get_by_text("The note other.").wait_for()
        await page.get_by_role("button", name="Remove").click()
        await page.get_by_text("Is the server running").wait_for()
        assert tab.outside == []


async def test_the_version_that_was_chosen_last_is_shown_although_an_earlier_response_comes_later(
    browser: Any,
) -> None:
    chosen, connected = asyncio.Event(), asyncio.Event()

    async def delay_the_first(route: Any) -> None:
        response = await route.fetch()
        if is_first(route.request):
            await chosen.wait()
        await route.fulfill(response=response)

    async with bench_console() as console:
        context = await browser.new_context()
        page = await context.new_page()
        await page.goto(console.link())
        await page.route("**/api/workbench/connections", delay_the_first)
        page.on("requestfinished", lambda request: connected.set() if is_first(request) else None)
        await page.goto(f"{console.url}/workbench/bench")
        await page.get_by_text("Speaks 2026-07-28").wait_for()
        await page.get_by_label("Protocol version").select_option("2025-06-18")
        await page.get_by_label("Protocol version").select_option("2025-11-25")
        await page.get_by_text("Speaks 2025-11-25").wait_for()
        chosen.set()
        await connected.wait()
        await page.evaluate("new Promise(requestAnimationFrame)")
        assert await page.get_by_text("Speaks 2025-11-25").is_visible()
        await context.close()


def is_first(request: Any) -> bool:
    """Return whether a request connects with the version that was chosen first."""
    return request.url.endswith("/api/workbench/connections") and "2025-06-18" in (request.post_data or "")


async def test_a_call_that_ends_before_its_response_arrives_is_shown_whole(browser: Any) -> None:
    async with bench_console() as console:
        context = await browser.new_context()
        page = await context.new_page()
        await page.add_init_script("""
            window.received = [];
            const listen = EventSource.prototype.addEventListener;
            EventSource.prototype.addEventListener = function (name, handle) {
              listen.call(this, name, (event) => (handle(event), window.received.push(event.data)));
            };
        """)

        async def answer_late(route: Any) -> None:
            response = await route.fetch()
            await until_true(page, """received.some((each) => each?.includes('"status":"done"'))""")
            await route.fulfill(response=response)

        await page.goto(console.link())
        await page.goto(f"{console.url}/workbench/bench")
        await page.route("**/calls", answer_late)
        await choose(page, "count")
        await page.get_by_label("to", exact=True).fill("3")
        await call(page)
        answer = page.get_by_role("region", name="Answer")
        await answer.get_by_text("Done").wait_for()
        await answer.get_by_text("counted").wait_for()
