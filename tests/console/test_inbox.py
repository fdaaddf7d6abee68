"""The API of the inbox: who sees which questions, and what becomes of answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from antiphon import BearerTokens, Client, Console, Principal, Server
from antiphon.console.inbox import server_questions
from antiphon.console.inbox.open_question import NO_SUCH_QUESTION
from antiphon.console.sources import ServerSource
from antiphon.model.task import Task
from antiphon.runtime.tasks.records import ASKING_TAG, head_of
from antiphon.store.contract import Entry, Record
from tests.console.people import OWN, PEOPLE, asked, shop, store_source, store_url
from tests.console.support import RunningConsole, serving_app, serving_console
from tests.support.polling import DEADLINE, until
from tests.support.serving import serving


@asynccontextmanager
async def console_and_client(folder: Path, **options: Any) -> AsyncIterator[tuple[RunningConsole, Client]]:
    """A console of an operator, and a client of the shop on the same store."""
    server = shop(store_url(folder))
    async with (
        Client(server, principal=Principal("ada")) as client,
        serving_console(stores=[store_source(folder)], **options) as console,
    ):
        yield console, client


def answer_to(row: dict[str, Any], content: Any = None, *, action: str = "accept") -> dict[str, Any]:
    return {"task": row["task"], "key": row["key"], "action": action, "content": content}


async def test_an_operator_answers_questions_to_callers_and_to_others(tmp_path: Path) -> None:
    async with console_and_client(tmp_path) as (console, client):
        greeting = await client.submit("greet")
        await asked(console)
        expense = await client.submit("expense", amount=12)
        first, second = await asked(console, 2)
        assert (first["task"], first["asksOwner"], first["owner"]) == (greeting.id, True, "ada")
        assert (second["task"], second["to"], second["asksOwner"]) == (expense.id, ["finance"], False)
        assert second["deadline"] - second["asked"] == 86_400_000
        assert second["about"] == "expense asks finance for ada · amount=12 · shop"
        assert await console.get("/api/inbox/count") == {"badge": "2"}

        question = (await console.get(f"{OWN}/question", task=second["task"], key="approve"))["question"]
        assert question["message"] == "Approve 12 €?"
        assert question["schema"]["properties"]["value"]["type"] == "boolean"
        link = {"link": [f"tasks/main/{expense.id}", "Open the task"]}
        assert (question["facts"], question["note"]) == (["amount=12", "shop, tasks.db", link], "")
        question = (await console.get(f"{OWN}/question", task=first["task"], key="name"))["question"]
        assert question["note"] == "You answer in place of ada. The log of the task names you."

        await console.post(f"{OWN}/answer", answer_to(first, {"value": "Ada"}))
        await console.post(f"{OWN}/answer", answer_to(second, {"value": True}))
        assert (await greeting.result(timeout=DEADLINE)).text == "Hello Ada!"
        assert (await expense.result(timeout=DEADLINE)).text == "True by operator:tester"
        assert await asked(console, 0) == []
        closed = (await console.get(f"{OWN}/question", task=greeting.id, key="name"))["closed"]
        assert (closed["by"], closed["action"]) == ("operator:tester", "accept")
        assert closed["text"] == ["Answered elsewhere by operator:tester, ", {"ago": closed["at"]}, "."]


async def test_a_question_is_declined(tmp_path: Path) -> None:
    async with console_and_client(tmp_path) as (console, client):
        task = await client.submit("greet")
        (row,) = await asked(console)
        await console.post(f"{OWN}/answer", answer_to(row, action="decline"))
        assert (await task.result(timeout=DEADLINE, check=False)).is_error
        closed = (await console.get(f"{OWN}/question", task=task.id, key="name"))["closed"]
        assert closed["action"] == "decline"


async def test_what_is_wrong_is_said_at_its_field(tmp_path: Path) -> None:
    async with console_and_client(tmp_path) as (console, client):
        task = await client.submit("order")
        (row,) = await asked(console)
        wrong = answer_to(row, {"count": 10, "size": "xl"})
        problem = await console.post(f"{OWN}/answer", wrong, status=422)
        assert problem["fields"] == {
            "count": "This must be at most 9.",
            "mail": "This is required.",
            "size": "This must be one of s, m.",
        }
        await console.post(f"{OWN}/answer", answer_to(row, {"count": 2, "mail": "ada@example.org"}))
        assert "ada@example.org" in (await task.result(timeout=DEADLINE)).text


@pytest.mark.parametrize("change", [{"action": "cancel"}, {"content": [1]}, {"action": None}])
async def test_an_answer_that_is_none_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    async with console_and_client(tmp_path) as (console, client):
        await client.submit("greet")
        (row,) = await asked(console)
        await console.post(f"{OWN}/answer", answer_to(row, {"value": "Ada"}) | change, status=400)
        assert len(await asked(console)) == 1


async def test_the_second_answer_to_a_question_is_told_who_was_first(tmp_path: Path) -> None:
    async with console_and_client(tmp_path) as (console, client):
        task = await client.submit("greet")
        (row,) = await asked(console)
        await client.task(task.id).answer({"name": {"value": "Ada"}})
        problem = await console.post(f"{OWN}/answer", answer_to(row, {"value": "Eve"}), status=404)
        assert problem["message"] == NO_SUCH_QUESTION
        closed = (await console.get(f"{OWN}/question", task=task.id, key="name"))["closed"]
        assert closed["by"] == "ada"
        assert (await task.result(timeout=DEADLINE)).text == "Hello Ada!"


async def test_operators_are_one_of_several_who_approve(tmp_path: Path) -> None:
    async with console_and_client(tmp_path) as (console, client):
        task = await client.submit("expense", amount=5, approvals=2)
        (row,) = await asked(console)
        assert (row["approvals"], row["answered"]) == (2, 0)
        assert "0 of 2 answers" in row["about"]
        await console.post(f"{OWN}/answer", answer_to(row, {"value": True}))
        assert await asked(console, 0) == []
        assert (await client.task(task.id).status()).message == "Waiting for 2 answers from finance, 1 given."


async def test_a_read_only_console_shows_questions_and_takes_no_answers(tmp_path: Path) -> None:
    async with console_and_client(tmp_path, read_only=True) as (console, client):
        await client.submit("greet")
        (row,) = await asked(console)
        question = (await console.get(f"{OWN}/question", task=row["task"], key="name"))["question"]
        assert question["note"] == "This console is read-only."
        await console.post(f"{OWN}/answer", answer_to(row, {"value": "Ada"}), status=403)


async def test_an_address_is_shown_so_that_it_imitates_no_other(tmp_path: Path) -> None:
    async with console_and_client(tmp_path) as (console, client):
        for url in ("https://bank.test@evil.example/x", "https://bänk.example/", "https://a.example/b"):
            await client.submit("sign", url=url)
        rows = await asked(console, 3)
        shown = []
        for row in rows:
            found = await console.get(f"{OWN}/question", task=row["task"], key="sign")
            shown.append(found["question"]["shownUrl"])
        assert shown == ["https://***@evil.example/x", "https://xn--bnk-qla.example/", "https://a.example/b"]


async def test_texts_that_reorder_what_a_person_reads_are_cleaned_and_values_are_not(tmp_path: Path) -> None:
    override, choice = "\u202e", "a\u202eb"
    async with console_and_client(tmp_path) as (console, client):
        task = await client.submit(
            "ask", message=f"M{override}", to=f"G{override}", field=f"f{override}", choice=choice
        )
        (row,) = await asked(console)
        found = (await console.get(f"{OWN}/question", task=row["task"], key="ask"))["question"]
        field = found["schema"]["properties"][f"f{override}"]
        assert (row["message"], row["to"], found["message"]) == ("M", ["G"], "M")
        assert (field["title"], field["description"]) == ("f", "M")
        assert field["oneOf"] == [{"const": choice, "title": "ab"}, {"const": "b", "title": "b"}]
        await console.post(f"{OWN}/answer", answer_to(row, {f"f{override}": choice}))
        await task.result(timeout=DEADLINE)


async def test_questions_come_in_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("antiphon.console.inbox.store_questions.PAGE_TASKS", 2)
    async with console_and_client(tmp_path) as (console, client):
        tasks = [await client.submit("greet") for _ in range(5)]
        found: list[str] = []

        async def read_all() -> bool:
            found.clear()
            page: dict[str, Any] = {"cursor": None}
            while True:
                query = {} if page["cursor"] is None else {"cursor": page["cursor"]}
                page = await console.get("/api/inbox", **query)
                found.extend(row["task"] for row in page["questions"])
                if page["cursor"] is None:
                    return len(found) == 5

        await until(read_all)
        assert found == [task.id for task in tasks]
        assert (await console.get("/api/inbox/count"))["badge"] == "2+"
        # The filter searches all pages, and a list that is not the whole one says so.
        last = await console.get("/api/inbox", filter=f"NAME {tasks[-1].id}")
        assert [row["task"] for row in last["questions"]] == [tasks[-1].id]
        assert (last["more"], last["note"]) == (False, "")
        nothing = await console.get("/api/inbox", filter="nothing like this")
        assert (nothing["questions"], nothing["empty"][0]) == ([], "No question matches")
        first = await console.get("/api/inbox")
        assert first["note"] == "These are the 2 oldest questions. Filter to find others."
        monkeypatch.setattr("antiphon.console.inbox.api.SEARCHED_PAGES", 1)
        some = await console.get("/api/inbox", filter="nothing like this")
        assert (some["more"], some["note"]) == (True, "Not all questions were searched.")
        several = [await console.get("/api/inbox", pages=str(pages)) for pages in (2, 3)]
        assert [(len(page["questions"]), page["more"]) for page in several] == [(4, True), (5, False)]
        async with console.http.get(f"{console.url}/api/inbox", params={"pages": "9"}) as response:
            assert response.status == 400
        for cursor in (
            "x",
            "[]",
            '{"stores/main": "x"}',
            '{"stores/main": "[1]"}',
            '{"stores/main": "[null]"}',
        ):
            async with console.http.get(f"{console.url}/api/inbox", params={"cursor": cursor}) as response:
                assert response.status == 400


async def test_tasks_that_sleep_do_not_hide_questions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("antiphon.console.inbox.store_questions.OLDEST_TASKS", 5)
    async with console_and_client(tmp_path) as (console, client):
        store = store_source(tmp_path).store
        await store.open()
        for number in range(20):
            task = Task(id=f"nap_{number}", tool="nap", created=1000 + number, updated=1000, state="parked")
            record = Record(
                task.id, "ada", "nap", "waiting", 1, task.created, 1000, None, head_of(task), "shop"
            )
            await store.restore(record, [Entry(1, "created", 1000, {})])
        await store.close()
        greeting = await client.submit("greet")
        assert [row["task"] for row in await asked(console)] == [greeting.id]
        assert await console.get("/api/inbox/count") == {"badge": "1"}


async def test_questions_of_earlier_versions_are_found_too(tmp_path: Path) -> None:
    async with console_and_client(tmp_path) as (console, client):
        task = await client.submit("greet")
        await asked(console)
        store = store_source(tmp_path).store
        await store.open()
        record = await store.get(task.id)
        assert record is not None
        assert record.tags == (ASKING_TAG,)
        # Earlier versions park a task without the tag.
        await store.append(task.id, [], expect=record.version, phase="waiting", head=record.head)
        await store.close()
        (row,) = await asked(console)
        await console.post(f"{OWN}/answer", answer_to(row, {"value": "Ada"}))
        assert (await task.result(timeout=DEADLINE)).text == "Hello Ada!"


async def test_a_function_that_waits_in_its_process_is_answered(tmp_path: Path) -> None:
    async with (
        shared_console(tmp_path, "a-token", "m-token") as (server, browsers),
        Client(server, principal=PEOPLE["a-token"]) as client,
    ):
        for browser in browsers:
            task = await client.submit("hold")
            (row,) = await asked(browser)
            await browser.post(f"{SHARED}/answer", answer_to(row, {"value": "on"}))
            assert (await task.result(timeout=DEADLINE)).text == "on"


# People who are not operators


@asynccontextmanager
async def shared_console(folder: Path, *people: str) -> AsyncIterator[tuple[Server, list[RunningConsole]]]:
    """A shop with its own console, and the browsers of some people."""
    server = shop(store_url(folder), authenticate=BearerTokens(PEOPLE))
    app = server.asgi(console=Console(operators=["max"]))
    async with serving_app(app) as url:
        browsers = [
            RunningConsole(
                f"{url}/console", app, aiohttp.ClientSession(headers={"authorization": f"Bearer {token}"})
            )
            for token in people
        ]
        try:
            yield server, browsers
        finally:
            for browser in browsers:
                await browser.http.close()


SHARED = "/api/inbox/stores/own"


async def test_people_see_their_own_questions_and_those_that_they_can_answer(tmp_path: Path) -> None:
    async with shared_console(tmp_path, "a-token", "b-token", "e-token", "m-token") as (server, browsers):
        ada, bob, eve, max = browsers
        async with Client(server, principal=PEOPLE["a-token"]) as client:
            greeting, expense = await client.submit("greet"), await client.submit("expense", amount=7)
            await asked(max, 2)
            (own,) = await asked(ada, 1)
            (other,) = await asked(bob, 1)
            assert (own["task"], other["task"]) == (greeting.id, expense.id)
            assert "amount" not in other["about"]  # the arguments are for the owner and for operators

            # Nobody learns of a question of others: not by its address, and not by answering it.
            for browser, row in ((bob, own), (ada, other)):
                place = {"task": row["task"], "key": row["key"]}
                async with browser.http.get(f"{browser.url}{SHARED}/question", params=place) as response:
                    assert (response.status, (await response.json())["message"]) == (404, NO_SUCH_QUESTION)
                answer = answer_to(row, {"value": "x"})
                assert (await browser.post(f"{SHARED}/answer", answer, status=404))[
                    "message"
                ] == NO_SUCH_QUESTION

            await bob.post(f"{SHARED}/answer", answer_to(other, {"value": True}))
            assert (await expense.result(timeout=DEADLINE)).text == "True by bob"
            # Eve could have answered, and is not told who did. Ada owns the task, and was not asked.
            for browser in (eve, ada):
                place = {"task": other["task"], "key": other["key"]}
                async with browser.http.get(f"{browser.url}{SHARED}/question", params=place) as response:
                    found = await response.json()
                    assert "bob" not in str(found)
            await ada.post(f"{SHARED}/answer", answer_to(own, {"value": "Ada"}))
            assert (await greeting.result(timeout=DEADLINE)).text == "Hello Ada!"


async def test_an_operator_with_a_login_answers_by_their_own_right_first(tmp_path: Path) -> None:
    people = {**PEOPLE, "m-token": Principal("max", scopes=frozenset({"finance"}))}
    server = shop(store_url(tmp_path), authenticate=BearerTokens(people))
    app = server.asgi(console=Console(operators=["max"]))
    headers = {"authorization": "Bearer m-token"}
    async with serving_app(app) as url, aiohttp.ClientSession(headers=headers) as http:
        max = RunningConsole(f"{url}/console", app, http)
        async with Client(server, principal=PEOPLE["a-token"]) as client:
            greeting, expense = await client.submit("greet"), await client.submit("expense", amount=7)
            for row in await asked(max, 2):
                await max.post(f"{SHARED}/answer", answer_to(row, {"value": True if row["to"] else "Ada"}))
            assert (await expense.result(timeout=DEADLINE)).text == "True by max"
            assert (await greeting.result(timeout=DEADLINE)).text == "Hello Ada!"
            closed = (await max.get(f"{SHARED}/question", task=greeting.id, key="name"))["closed"]
            assert closed["by"] == "operator:max"


async def test_an_operator_with_a_login_does_not_approve_their_own_task(tmp_path: Path) -> None:
    people = {**PEOPLE, "m-token": Principal("max", scopes=frozenset({"finance"}))}
    server = shop(store_url(tmp_path), authenticate=BearerTokens(people))
    app = server.asgi(console=Console(operators=["max", "bob"]))
    async with serving_app(app) as url, AsyncExitStack() as stack:

        async def browser_of(token: str) -> RunningConsole:
            headers = {"authorization": f"Bearer {token}"}
            http = await stack.enter_async_context(aiohttp.ClientSession(headers=headers))
            return RunningConsole(f"{url}/console", app, http)

        max, bob = await browser_of("m-token"), await browser_of("b-token")
        async with Client(server, principal=people["m-token"]) as client:
            expense = await client.submit("expense", amount=7)
            (row,) = await asked(bob)
            refused = await max.post(f"{SHARED}/answer", answer_to(row, {"value": True}), status=404)
            assert refused["message"] == NO_SUCH_QUESTION
            assert await asked(max, 0) == []
            await bob.post(f"{SHARED}/answer", answer_to(row, {"value": True}))
            assert (await expense.result(timeout=DEADLINE)).text == "True by bob"


# Servers


async def test_the_inbox_of_a_server_is_answered_as_the_person_who_is_logged_in(tmp_path: Path) -> None:
    server = shop(store_url(tmp_path), authenticate=BearerTokens(PEOPLE))
    async with serving(server) as address:
        source = ServerSource(
            "shop", "shop", "url", lambda user, **options: Client(address.url, auth="b-token", **options)
        )
        gone = ServerSource(
            "gone", "gone", "url", lambda user, **options: Client("http://127.0.0.1:9/mcp", **options)
        )
        async with (
            Client(address.url, auth="a-token") as ada,
            serving_console(servers=[source, gone]) as console,
        ):
            task = await ada.submit("expense", amount=3)
            (row,) = await asked(console)
            assert (row["tool"], row["owner"], row["to"]) == ("expense", "ada", ["finance"])
            path = "/api/inbox/servers/shop/answer"
            problem = await console.post(path, answer_to(row, {"value": "yes"}), status=422)
            assert problem["fields"] == {"value": "This must be of type boolean."}
            # A server that cannot be reached does not hide the questions of the others.
            (problem,) = (await console.get("/api/inbox"))["problems"]
            assert problem.startswith("gone: The console cannot talk to gone: ")
            assert (await console.get("/api/inbox/count"))["badge"] == "1+"
            await console.post(path, answer_to(row, {"value": True}))
            assert (await task.result(timeout=DEADLINE)).text == "True by bob"
            assert (await console.post(path, answer_to(row, {"value": False}), status=404))[
                "message"
            ] == NO_SUCH_QUESTION


async def test_a_server_without_an_inbox_has_no_questions() -> None:
    server = Server("plain")
    source = ServerSource("plain", "plain", "url", lambda user, **options: Client(server, **options))
    program = ServerSource(
        "program", "program", "command", lambda user, **options: pytest.fail("was started")
    )
    async with serving_console(servers=[source, program]) as console:
        assert await console.get("/api/inbox") == {
            "questions": [],
            "cursor": None,
            "more": False,
            "empty": ["Nobody asks you anything", "A question that you can answer appears here by itself."],
            "note": "",
            "problems": [],
        }


async def test_a_source_that_fails_does_not_hide_the_questions_of_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(user: Any, **options: Any) -> Client:
        raise RuntimeError("a defect")

    broken = ServerSource("broken", "broken", "url", fail)
    async with console_and_client(tmp_path, servers=[broken]) as (console, client):
        await client.submit("greet")
        await asked(console)
        (problem,) = (await console.get("/api/inbox"))["problems"]
        assert problem.startswith("broken: The console failed to ask for questions.")
        assert await console.get("/api/inbox/count") == {"badge": "1+"}
        nothing = await console.get("/api/inbox", filter="nothing like this")
        assert nothing["empty"] == ["No question is known", "Not everything could be asked: see above."]
        assert "a defect" in caplog.text


async def test_pages_hear_of_questions_that_come_and_go(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(DEADLINE),
        console_and_client(tmp_path) as (console, client),
        console.http.get(f"{console.url}/api/live") as live,
    ):
        task = await client.submit("greet")
        await shown(console, live, 1)
        await client.task(str(task.id)).answer({"name": {"value": "Ada"}})
        await shown(console, live, 0)


async def test_pages_hear_of_questions_on_servers(tmp_path: Path) -> None:
    server = shop(store_url(tmp_path), authenticate=BearerTokens(PEOPLE))
    source = ServerSource(
        "shop", "shop", "url", lambda user, **options: Client(server, principal=PEOPLE["b-token"])
    )
    async with (
        asyncio.timeout(DEADLINE),
        Client(server, principal=PEOPLE["a-token"]) as ada,
        Client(server, principal=PEOPLE["b-token"]) as bob,
        serving_console(servers=[source]) as console,
        console.http.get(f"{console.url}/api/live") as live,
    ):
        task = await ada.submit("expense", amount=3)
        await shown(console, live, 1)
        (item,) = await bob.inbox()
        await item.answer(True)
        await shown(console, live, 0)
        assert (await task.result(timeout=DEADLINE)).text == "True by bob"


async def shown(console: RunningConsole, live: aiohttp.ClientResponse, count: int) -> None:
    """Fetch the list after each change, as the page does, until it has so many questions."""
    while len((await console.get("/api/inbox"))["questions"]) != count:
        while b'"inbox"' not in await live.content.readline():
            pass


async def test_the_console_stops_listening_to_a_server_that_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_questions, "RETRY_SECONDS", 0.0)
    async with (
        serving(shop(store_url(tmp_path), authenticate=BearerTokens(PEOPLE))) as address,
        serving_console() as console,
    ):
        before = asyncio.all_tasks()
        added = await console.post("/api/servers", {"url": address.url, "token": "b-token"})
        await console.get("/api/inbox")
        await until(lambda: address.under_way == 1)
        await console.post(f"/api/servers/{added['id']}/remove")
        await until(lambda: not (names_of(asyncio.all_tasks() - before) & {"_report", "_fetch"}))


def names_of(tasks: set[asyncio.Task[Any]]) -> set[str]:
    """Return the names of the functions that tasks run."""
    return {getattr(task.get_coro(), "__name__", "") for task in tasks}
