"""Tasks and workers in a browser: many tasks are cancelled, output is watched, failures come first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from antiphon import Artifact, Client, Context, Failure, Image, Principal, Server
from antiphon.console.sources import StoreSource
from antiphon.store import open_store
from antiphon.store.contract import Store
from antiphon.store.memory import MemoryStore
from tests.apps.browser import until_true
from tests.cli.stored_tasks import DAY, HOUR, create_task
from tests.console.browser import PHONE, Tab, accessibility_problems, expect, open_tab, small_targets
from tests.console.support import RunningConsole, serving_console
from tests.console.test_task_api import PIXEL
from tests.support.polling import DEADLINE

pytestmark = pytest.mark.asyncio(loop_scope="session")

EVIL = "<img src=x onerror=alert(1)><script>alert(2)</script>"


class Day(BaseModel):
    """An answer."""

    day: str


class Shop:
    """A server whose tools ask, fail, stream and return hostile text."""

    def __init__(self, store: Store | None = None) -> None:
        self.store: Store = store or MemoryStore()
        self.server = Server("shop", store=self.store)
        self.gate = asyncio.Event()

        async def fetch() -> str:
            return "fetched"

        @self.server.tool(task="required", poll_interval=0.05)
        async def book(city: str, ctx: Context) -> str:
            await ctx.step(fetch)
            answer = await ctx.elicit("Which day?", Day, key="day")
            return f"Booked for {answer.day}"

        @self.server.tool(task="required", poll_interval=0.05)
        async def pay(order: int, ctx: Context) -> str:
            raise Failure(f"The card for order {order} has expired.")

        @self.server.tool(task="required", poll_interval=0.05)
        async def tell(ctx: Context) -> None:
            await ctx.emit("The first sentence. ")
            await self.gate.wait()
            await ctx.emit("The last sentence.")

        @self.server.tool(task="required", poll_interval=0.05)
        async def attack(text: str) -> Any:
            link = f"# {EVIL}\n\n[click](javascript:alert(3)) {EVIL}"
            return [link, Image("PHN2Zy8+", "image/svg+xml"), Image('x" onerror="alert(4)', "image/png")]

        @self.server.tool(task="required", poll_interval=0.05)
        async def table() -> Artifact[Any]:
            return Artifact(
                [{"city": EVIL, "count": 3}, {"city": "Oslo", "count": 20}], type="table", title=EVIL
            )

        @self.server.tool(task="required", poll_interval=0.05)
        async def draw() -> Any:
            return [Image(PIXEL, "image/png"), "# Drawn\n\n- one\n- two"]

    @asynccontextmanager
    async def opened(self, principal: str = "ann") -> AsyncIterator[tuple[Client, RunningConsole]]:
        """Run the server, and serve a console of its store."""
        async with Client(self.server, principal=Principal(principal)) as client:
            artifacts = self.server.engine.artifacts.open_store
            source = StoreSource("s", "shop", self.store, is_own=False, artifacts=artifacts)
            async with serving_console(stores=[source]) as console:
                yield client, console


async def status_of(client: Client, id: str, wanted: str) -> None:
    """Wait until a task has a status."""
    async with asyncio.timeout(DEADLINE):
        async for status in client.task(id).updates():
            if status.status == wanted:
                return


def no_problems(tab: Tab) -> bool:
    return tab.errors == [] and tab.outside == []


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """A store of each kind that servers share."""
    if request.param == "sqlite":
        return open_store(f"sqlite:///{tmp_path}/tasks.db")
    return open_store(request.getfixturevalue("database").url())


async def test_fifty_tasks_are_cancelled_after_their_number_is_confirmed(browser: Any, store: Store) -> None:
    shop = Shop(store)
    async with shop.opened() as (client, console):
        handles = [await client.submit("book", {"city": f"City {n}"}) for n in range(50)]
        await client.submit("tell", {})
        for handle in handles:
            await status_of(client, handle.id, "input_required")
        tab = await open_tab(browser, console, "/tasks?tool=book")
        page = tab.page
        waiting = page.get_by_role("button", name="Waiting")
        await page.get_by_role("button", name="Waiting 50").click()
        await page.get_by_role("button", name="Cancel all of these…").click()
        dialog = page.get_by_role("dialog", name="Cancel 50 tasks?")
        confirm = dialog.get_by_role("button", name="Cancel 50 tasks")
        await expect(confirm).to_be_disabled()
        await dialog.get_by_label("Type 50 to confirm").fill("49")
        await expect(confirm).to_be_disabled()
        await dialog.get_by_label("Type 50 to confirm").fill("50")
        await confirm.click()
        await dialog.get_by_text("50 of 50 tasks cancelled.").wait_for()
        await dialog.get_by_role("button", name="Close").click()
        await page.get_by_role("button", name="Waiting 0").wait_for()
        await page.get_by_role("button", name="Cancelled 50").click()
        await until_true(page, "document.querySelectorAll('table.tasks tbody tr.cancelled').length === 50")
        await expect(waiting).to_have_attribute("aria-pressed", "false")
        assert "status=cancelled" in page.url
        assert no_problems(tab)
        shop.gate.set()


async def test_the_output_of_a_task_is_seen_as_it_comes_and_its_question_is_answered_in_place(
    browser: Any, store: Store
) -> None:
    shop = Shop(store)
    async with shop.opened() as (client, console):
        told = await client.submit("tell", {})
        tab = await open_tab(browser, console, f"/tasks/s/{told.id}")
        page = tab.page
        output = page.get_by_role("log", name="Output")
        await output.get_by_text("The first sentence.").wait_for()
        assert "last" not in await output.inner_text()
        shop.gate.set()
        await output.get_by_text("The last sentence.").wait_for()
        await page.locator(".task-head .status.done").wait_for()
        await page.reload()
        await output.get_by_text("The last sentence.").wait_for()
        await output.get_by_text("The first sentence.").wait_for()
        # Each segment is a block, as at the command line and at the workbench.
        lines = (await output.inner_text()).splitlines()
        assert [line.strip() for line in lines if line.strip()] == [
            "The first sentence.",
            "The last sentence.",
        ]
        booked = await client.submit("book", {"city": "Oslo"})
        await page.goto(f"{console.url}/tasks/s/{booked.id}")
        await page.get_by_label("day").fill("Monday")
        await page.get_by_role("button", name="Answer", exact=True).click()
        await page.get_by_text("Booked for Monday", exact=True).wait_for()
        bars = page.locator(".waterfall li")
        await bars.nth(3).wait_for()
        assert [kind async for kind in _kinds(bars)] == ["run", "step", "question", "run"]
        await page.get_by_role("button", name="Step: fetch").click()
        await page.locator(".log details[open]").get_by_text("fetched", exact=True).wait_for()
        assert no_problems(tab)


async def _kinds(bars: Any) -> AsyncIterator[str]:
    for bar in await bars.all():
        yield await bar.get_attribute("data-kind")


async def test_tabs_in_the_background_leave_the_connections_of_the_browser_to_others(browser: Any) -> None:
    shop = Shop()
    async with shop.opened() as (client, console):
        told = await client.submit("tell", {})
        tab = await open_tab(browser, console, "/tasks")
        hide = """Object.defineProperty(document, "hidden", { get: () => window.isHidden ?? true });"""
        await tab.page.context.add_init_script(hide)
        tabs = [await tab.page.context.new_page() for _ in range(8)]  # a browser has six connections
        for page in tabs:
            await page.goto(f"{console.url}/tasks/s/{told.id}")
            await page.get_by_role("heading", name="tell").wait_for()
        first = tabs[0]
        shop.gate.set()
        await status_of(client, told.id, "completed")
        assert await first.get_by_text("The last sentence.").count() == 0
        show = """window.isHidden = false; document.dispatchEvent(new Event("visibilitychange"))"""
        await first.evaluate(show)
        await first.get_by_text("The last sentence.").first.wait_for()
        assert no_problems(tab)


async def test_a_failed_task_is_one_click_away_and_says_why_first(browser: Any) -> None:
    shop = Shop()
    async with shop.opened() as (client, console):
        for number in range(30):
            await create_task(shop.store, f"done{number}", age=HOUR, tool="old")
        failed = await client.submit("pay", {"order": 4711})
        await failed.result(check=False)
        tab = await open_tab(browser, console, "/tasks?age=newer:1d")
        page = tab.page
        await page.get_by_role("button", name="Failed 1").click()
        await page.keyboard.press("j")
        await page.keyboard.press("Enter")
        error = page.locator(".failure")
        await error.get_by_text("The card for order 4711 has expired.").wait_for()
        await page.evaluate("navigator.clipboard.writeText = async (text) => (window.copied = text)")
        await page.get_by_role("button", name="Copy as JSON").click()
        await page.get_by_text("The task is copied as JSON.").wait_for()
        assert "4711" in await page.evaluate("window.copied")
        await page.get_by_role("button", name="Run again…").click()
        await page.get_by_role("dialog").get_by_role("button", name="Run again").click()
        await until_true(page, f"!location.pathname.includes('{failed.id}')")
        await page.go_back()
        await page.go_back()
        await page.get_by_role("button", name="Failed 2").wait_for()  # the filter is in the address
        await expect(page.get_by_label("Age")).to_have_value("newer:1d")
        await page.get_by_role("button", name="Clear filters").first.click()
        await page.get_by_role("button", name="All 32").wait_for()
        assert no_problems(tab)


async def test_hostile_names_arguments_and_results_stay_text(browser: Any) -> None:
    shop = Shop()
    async with shop.opened(EVIL) as (client, console):
        attack = await client.submit("attack", {"text": EVIL})
        await attack.result()
        shown = await client.submit("table", {})
        await shown.result()
        await create_task(shop.store, "failed1", age=HOUR, tool=EVIL, principal=EVIL)
        tab = await open_tab(browser, console, "/tasks")
        page = tab.page
        dialogs: list[str] = []
        page.on("dialog", lambda dialog: dialogs.append(dialog.message))
        await page.get_by_role("link", name=EVIL).first.wait_for()
        await page.goto(f"{console.url}/tasks/s/{attack.id}")
        await page.locator(".waterfall li").first.wait_for()
        await page.get_by_role("button", name="Plain text").click()
        assert await page.locator("a[href^='javascript' i]").count() == 0
        assert await page.locator(".page img, .page script, .page iframe").count() == 0
        await page.goto(f"{console.url}/tasks/s/{shown.id}")
        await page.get_by_role("button", name="count").click()
        await expect(page.locator(".artifact tbody td").first).to_have_text(EVIL, use_inner_text=True)
        await page.goto(f"{console.url}/workers")
        await page.get_by_role("row", name=EVIL).wait_for()
        assert dialogs == []
        assert no_problems(tab)


async def test_the_pages_are_accessible_in_light_and_dark_and_on_phones(browser: Any) -> None:
    shop = Shop()
    async with shop.opened() as (client, console):
        for kind in ("done", "failed", "waiting", "cancelled", "queued"):
            await create_task(shop.store, f"{kind}1", age=2 * DAY, principal="bob")
        drawn = await client.submit("draw", {})
        await drawn.result()
        booked = await client.submit("book", {"city": "Oslo"})
        await status_of(client, booked.id, "input_required")
        tab = await open_tab(browser, console, "/tasks")
        phone = await open_tab(browser, console, **PHONE)
        for path, selector in (
            ("/tasks", "table.tasks"),
            (f"/tasks/s/{drawn.id}", ".picture"),
            (f"/tasks/s/{booked.id}", ".in-place"),
            ("/tasks/s/failed1", ".failure"),
            ("/workers", ".plot"),
        ):
            await tab.page.goto(console.url + path)
            await tab.page.locator(selector).first.wait_for()
            for scheme, width in (("light", 1280), ("dark", 390)):
                await tab.page.emulate_media(color_scheme=scheme)
                await tab.page.set_viewport_size({"width": width, "height": 844})
                assert await accessibility_problems(tab.page) == [], (path, scheme, width)
                wide = await tab.page.evaluate("document.documentElement.scrollWidth > innerWidth")
                assert not wide, (path, width)
            await phone.page.goto(console.url + path)
            await phone.page.locator(selector).first.wait_for()
            assert await small_targets(phone.page) == [], path
        assert no_problems(tab)
