"""The inbox in Chromium: by keyboard, in two browsers, with hostile texts, and while a process is killed."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from antiphon import Client, Principal
from tests.console.browser import PHONE, Tab, accessibility_problems, expect, open_tab, small_targets
from tests.console.people import asked, shop, store_source, store_url
from tests.console.support import RunningConsole, serving_console
from tests.support.polling import DEADLINE
from tests.support.process import started

pytestmark = pytest.mark.asyncio(loop_scope="session")

HOSTILE = "<img src=x onerror=hacked=1><script>hacked=1</script> [x](javascript:hacked=1) \u202e{{7*7}}"


@asynccontextmanager
async def shop_and_console(folder: Path) -> AsyncIterator[tuple[Client, RunningConsole]]:
    """A client of the shop, and a console of its store."""
    server = shop(store_url(folder))
    async with (
        Client(server, principal=Principal("ada")) as client,
        serving_console(stores=[store_source(folder)]) as console,
    ):
        yield client, console


def failures(tab: Tab) -> list[str]:
    """Return the errors of a page, without the answers of the API that are errors on purpose."""
    return [error for error in tab.errors if not error.startswith("Failed to load resource")] + tab.outside


async def test_questions_are_answered_by_keyboard_alone(browser: Any, tmp_path: Path) -> None:
    async with shop_and_console(tmp_path) as (client, console):
        order = await client.submit("order")
        await asked(console)
        greeting = await client.submit("greet")
        await asked(console, 2)
        expense = await client.submit("expense", amount=12)
        await asked(console, 3)
        tab = await open_tab(browser, console, "/inbox")
        page = tab.page
        await page.get_by_role("heading", name="How many, and where to?").wait_for()
        await expect(page.locator("nav .badge").first).to_have_text("3", use_inner_text=True)

        # A wrong value is told at its field; what the browser cannot know, the server says.
        await page.keyboard.press("j")
        await page.keyboard.press("Enter")
        await page.keyboard.type("12")
        await page.keyboard.press("Tab")
        await page.keyboard.type("nobody")
        await page.keyboard.press("Enter")
        await page.get_by_text("This must be at most 9.").wait_for()
        await page.get_by_text("This must be written as email.").wait_for()
        field = page.get_by_label("How many")
        await expect(field).to_have_attribute("aria-invalid", "true")
        assert await accessibility_problems(page) == []
        await page.keyboard.press("ControlOrMeta+a")
        await page.keyboard.type("2")
        await page.keyboard.press("Tab")
        await page.keyboard.press("ControlOrMeta+a")
        await page.keyboard.type("ada@example.org")
        await page.keyboard.press("ControlOrMeta+Enter")
        assert "ada@example.org" in (await order.result(timeout=DEADLINE)).text

        # The next question is chosen. A second person would have to confirm a no.
        await page.get_by_role("heading", name="What is your name?").wait_for()
        await page.keyboard.press("d")
        await page.keyboard.press("Tab")
        await page.keyboard.press("Enter")
        assert (await greeting.result(timeout=DEADLINE, check=False)).is_error

        await page.get_by_role("heading", name="Approve 12 €?").wait_for()
        await page.keyboard.press("/")
        await page.keyboard.type("nothing like this")
        await page.get_by_text("No question matches").wait_for()
        await page.keyboard.press("Escape")
        await page.keyboard.press("a")
        await page.keyboard.press("Enter")
        assert (await expense.result(timeout=DEADLINE)).text == "True by operator:tester"
        await page.get_by_text("Nobody asks you anything").wait_for()
        await page.locator("nav .badge").first.wait_for(state="hidden")
        assert await accessibility_problems(page) == []
        assert failures(tab) == []


async def test_a_list_that_was_fetched_before_an_answer_does_not_bring_the_question_back(
    browser: Any, tmp_path: Path
) -> None:
    async with shop_and_console(tmp_path) as (client, console):
        expense = await client.submit("expense", amount=12)
        await asked(console)
        tab = await open_tab(browser, console, "/inbox")
        page = tab.page
        await page.get_by_role("heading", name="Approve 12 €?").wait_for()
        fetched, answered = asyncio.Event(), asyncio.Event()

        async def late(route: Any) -> None:
            response = await route.fetch()
            fetched.set()
            await answered.wait()
            await route.fulfill(response=response)

        await page.route(re.compile(r"/api/inbox\?"), late)
        await page.get_by_label("Filter questions").fill("Approve")
        await asyncio.wait_for(fetched.wait(), DEADLINE)
        await page.keyboard.press("Enter")
        await page.get_by_role("button", name="Yes").click()
        assert (await expense.result(timeout=DEADLINE)).text == "True by operator:tester"
        await page.get_by_text("Answered.").wait_for()
        answered.set()
        await page.get_by_text("No question matches").wait_for()
        assert await page.locator(".row").count() == 0
        assert failures(tab) == []


async def test_the_second_of_two_browsers_is_told_and_keeps_what_was_typed(
    browser: Any, tmp_path: Path
) -> None:
    async with shop_and_console(tmp_path) as (client, console):
        task = await client.submit("greet")
        await asked(console)
        first, second = [await open_tab(browser, console, "/inbox", **look) for look in ({}, PHONE)]
        await second.page.get_by_role("button", name="What is your name?").click()
        await second.page.get_by_label("value").fill("Byron")
        await first.page.get_by_label("value").fill("Ada")
        await first.page.get_by_role("button", name="Answer", exact=True).click()
        assert (await task.result(timeout=DEADLINE)).text == "Hello Ada!"

        await second.page.get_by_text("Answered elsewhere by operator:tester").wait_for()
        await second.page.get_by_text("What you typed is below. It was not sent.").wait_for()
        await expect(second.page.get_by_label("value")).to_have_value("Byron")
        await expect(second.page.get_by_role("button", name="Answer", exact=True)).to_be_disabled()
        assert await accessibility_problems(second.page) == []
        assert await small_targets(second.page) == []
        await second.page.get_by_role("button", name="Dismiss").click()
        await second.page.get_by_text("Nobody asks you anything").wait_for()

        # The address of the question still says what became of it.
        await first.page.goto(f"{console.url}/inbox?kind=stores&source=main&task={task.id}&key=name")
        await first.page.get_by_text("Answered elsewhere by operator:tester").wait_for()
        assert failures(first) + failures(second) == []


async def test_texts_of_others_are_text_and_addresses_open_by_a_click_only(
    browser: Any, tmp_path: Path
) -> None:
    async with shop_and_console(tmp_path) as (client, console):
        await client.submit("ask", message=HOSTILE, to=HOSTILE, field=HOSTILE, choice=HOSTILE)
        await asked(console)
        await client.submit("sign", url="javascript:hacked=1")
        await asked(console, 2)
        await client.submit("sign", url="https://contract.example/4711")
        await asked(console, 3)
        tab = await open_tab(browser, console, "/inbox", color_scheme="dark")
        page = tab.page
        await page.get_by_role("heading", name="<img src=x").wait_for()
        option = page.locator("option", has_text="<script>hacked=1</script>")
        await expect(option).to_have_count(1)
        assert await page.locator(".question img, .question script, .inbox-list img").count() == 0
        assert await accessibility_problems(page) == []

        await page.keyboard.press("j")
        await page.keyboard.press("j")
        await page.get_by_text("This is not an address of the web").wait_for()
        assert await page.get_by_role("link", name="Open the page").count() == 0
        await page.keyboard.press("j")
        await page.get_by_text("https://contract.example/4711", exact=True).wait_for()
        assert await page.evaluate("window.hacked") is None
        assert failures(tab) == []
        await page.context.route("https://contract.example/**", lambda route: route.abort())
        async with page.context.expect_page() as opened:
            await page.get_by_role("link", name="Open the page").click()
        assert await (await opened.value).evaluate("window.opener") is None


async def test_a_question_is_answered_while_the_process_of_its_task_is_killed(
    browser: Any, tmp_path: Path
) -> None:
    script = Path(__file__).parent / "shop_server.py"
    environment = {"SHOP_STORE": store_url(tmp_path)}
    async with serving_console(stores=[store_source(tmp_path)]) as console:
        tab = await open_tab(browser, console, "/inbox")
        await tab.page.get_by_text("Nobody asks you anything").wait_for()
        with started(script, tmp_path, command=True, env=environment) as process:
            async with Client(process.url) as client:
                task = await client.submit("greet")
                await tab.page.get_by_role("heading", name="What is your name?").wait_for()
                process.process.kill()
                await asyncio.to_thread(process.process.wait)
                await tab.page.get_by_label("value").fill("Ada")
                await tab.page.get_by_role("button", name="Answer", exact=True).click()
                await tab.page.get_by_text("Nobody asks you anything").wait_for()
        with started(script, tmp_path, command=True, env=environment) as process:
            async with Client(process.url) as client:
                assert (await client.task(str(task.id)).result(timeout=DEADLINE)).text == "Hello Ada!"
        assert failures(tab) == []
