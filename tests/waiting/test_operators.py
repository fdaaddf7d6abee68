"""Operators who answer questions to others: they are one person, and the question stays in the inbox."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from antiphon import Context, Principal, Server
from antiphon.cli.call.questions import ElicitationHandler, PreparedAnswers
from antiphon.cli.exit_codes import CommandError
from antiphon.cli.operator_name import operator_name
from antiphon.cli.tasks.store_tasks import StoreTasks
from antiphon.client.tasks.handle import TaskHandle
from antiphon.errors import TaskNotFound, TaskNotWaiting
from antiphon.runtime.tasks.inbox import Inbox, is_same_person
from antiphon.runtime.tasks.records import ASKING_TAG, audience_tag, task_of
from antiphon.store import open_store
from antiphon.store.contract import Store
from antiphon.store.memory import MemoryStore
from tests.support.polling import until
from tests.waiting.people import PEOPLE, expenses
from tests.waiting.support import accept, asked, client_of, inbox

BOB = PEOPLE["b-token"]


def sign_in_as(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Let the user of this process have another login name."""
    monkeypatch.setattr("pwd.getpwuid", lambda uid: SimpleNamespace(pw_name=name))


@pytest.mark.parametrize("second", ["operator:ann", "operator:max", "ann"])
async def test_operators_count_as_one_person(second: str) -> None:
    store = MemoryStore()
    server = expenses(store, approvals=2)
    async with client_of(server) as client:
        handle = await client.submit("expense", amount=5)
        await asked(server, BOB)
        service = inbox(server)
        operators = Inbox(store, server.engine.tasks.feed, server="shop", for_operator=True)
        await operators.answer(Principal("operator:ann"), handle.id, "approve", accept(value=True))
        answering = operators if second.startswith("operator:") else service
        other = Principal(second, scopes=frozenset({"finance"}))
        with pytest.raises(TaskNotFound):
            await answering.answer(other, handle.id, "approve", accept(value=False))
        await service.answer(BOB, handle.id, "approve", accept(value=True))
        assert (await handle.result(timeout=60)).text == "[True, True] by operator:ann, bob"


OWNERS = ("ada", "Ada", "https://issuer.example#ada", "https://other.example#Ada", "ada@example.com")


@pytest.mark.parametrize("owner", OWNERS)
async def test_an_operator_does_not_answer_a_question_of_their_own_task(owner: str) -> None:
    store = MemoryStore()
    server = expenses(store)
    async with client_of(server, owner) as client:
        handle = await client.submit("expense", amount=5)
        await asked(server, BOB)
        operators = Inbox(store, server.engine.tasks.feed, server="shop", for_operator=True)
        for login in ("ada", "ADA", owner):
            ada = Principal(f"operator:{login}")
            assert not await operators.questions_of(ada, handle.id, ())
            with pytest.raises(TaskNotFound):
                await operators.answer(ada, handle.id, "approve", accept(value=True))
        await operators.answer(Principal("operator:max"), handle.id, "approve", accept(value=True))
        assert (await handle.result(timeout=60)).text == "True by operator:max"


@pytest.mark.parametrize("member", OWNERS)
async def test_nobody_answers_as_an_operator_and_as_themselves(member: str) -> None:
    ada = Principal(member, scopes=frozenset({"finance"}))
    for first in ("operator", "member"):
        store = MemoryStore()
        server = expenses(store, approvals=2)
        async with client_of(server, "eve") as client:
            handle = await client.submit("expense", amount=5)
            await asked(server, BOB)
            members = inbox(server)
            operators = Inbox(store, server.engine.tasks.feed, server="shop", for_operator=True)
            ways = [(operators, Principal("operator:ada")), (members, ada)]
            (way, principal), (other_way, other) = ways if first == "operator" else reversed(ways)
            await way.answer(principal, handle.id, "approve", accept(value=True))
            with pytest.raises(TaskNotFound):
                await other_way.answer(other, handle.id, "approve", accept(value=True))
            await members.answer(BOB, handle.id, "approve", accept(value=True))
            assert (await handle.result(timeout=60)).text == f"[True, True] by {principal.id}, bob"


async def test_a_login_in_capital_letters_is_the_same_person() -> None:
    server = expenses(MemoryStore(), approvals=2)
    async with client_of(server, "Eve") as client:
        handle = await client.submit("expense", amount=5)
        await asked(server, BOB)
        for name in ("eve", "EVE"):
            principal = Principal(name, scopes=frozenset({"finance"}))
            with pytest.raises(TaskNotFound):
                await inbox(server).answer(principal, handle.id, "approve", accept(value=True))


@pytest.mark.parametrize(
    ("id", "other", "same"),
    [
        ("https://one.example#ada", "https://two.example#ada", False),
        ("operator:https://one.example#ada", "https://two.example#ada", False),
        ("operator:https://one.example#ada", "https://one.example#ada", True),
        ("operator:ada@example.com", "https://one.example#ada@example.com", True),
        ("operator:ada@example.com", "ada@example.org", False),
        ("ada@example.com", "ada@example.org", False),
        ("operator:ada", "adam", False),
        ("operator:ada", "", False),
        ("operator:\uff21\uff24\uff21", "ada", True),
        ("operator:one", "operator:two", True),
    ],
)
def test_who_may_be_the_same_person(id: str, other: str, same: bool) -> None:
    assert is_same_person(id, other) is same
    assert is_same_person(other, id) is same


async def test_an_operator_answers_a_question_of_their_own_task_that_names_them() -> None:
    store = MemoryStore()
    server = Server("shop", store=store)

    @server.tool(task="required", poll_interval=0.02)
    async def remind(ctx: Context) -> str:
        return str(await ctx.elicit("Really?", str, key="really", to=Principal("ada")))

    async with client_of(server) as client:
        handle = await client.submit("remind")
        await asked(server, Principal("ada"))
        operators = Inbox(store, server.engine.tasks.feed, server="shop", for_operator=True)
        await operators.answer(Principal("operator:ada"), handle.id, "really", accept(value="yes"))
        assert (await handle.result(timeout=60)).text == "yes"


async def test_the_command_line_says_why_an_operator_cannot_answer_their_own_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path}/tasks.db"
    server = expenses(open_store(url))
    sign_in_as(monkeypatch, "ada")
    async with client_of(server) as client:
        handle = await client.submit("expense", amount=5)
        await asked(server, BOB)
        handler = ElicitationHandler(PreparedAnswers(["value=true"]), no_input=True)
        async with StoreTasks(url) as operator:
            with pytest.raises(CommandError, match=r"belongs to ada.*somebody else has to"):
                await operator.answer(handle.id, handler, None)
            sign_in_as(monkeypatch, "max")
            assert await operator.answer(handle.id, handler, None) == ["approve"]
        assert (await handle.result(timeout=60)).text == "True by operator:max"


async def test_a_variable_of_the_environment_makes_nobody_another_operator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path}/tasks.db"
    server = expenses(open_store(url))
    sign_in_as(monkeypatch, "ada")
    async with client_of(server) as client:
        handle = await client.submit("expense", amount=5)
        await asked(server, BOB)
        handler = ElicitationHandler(PreparedAnswers(["value=true"]), no_input=True)
        for variable in ("LOGNAME", "USER", "LNAME", "USERNAME"):
            monkeypatch.setenv(variable, "max")
        async with StoreTasks(url) as operator:
            with pytest.raises(CommandError, match=r"belongs to ada.*somebody else has to"):
                await operator.answer(handle.id, handler, None)


def test_a_user_without_a_name_is_known_by_the_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.setattr("pwd.getpwuid", fail)
    assert operator_name() == f"uid-{os.getuid()}"


async def test_a_task_without_a_server_stays_in_the_inbox_after_an_answer_of_an_operator(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(store_url)
    server = expenses(store, approvals=2)
    async with client_of(server) as client:
        handle = await client.submit("expense", amount=5)
        await asked(server, BOB)
        record = await store.get(handle.id)
        assert record is not None
        # As a task of an earlier version, which has no server, and which a server of this version has parked.
        old = msgspec.structs.replace(record, id="expense_old", server="")
        old.head["id"] = "expense_old"
        assert await store.restore(old, await store.read(handle.id))
        sign_in_as(monkeypatch, "ann")
        handler = ElicitationHandler(PreparedAnswers(["value=true"]), no_input=True)
        async with StoreTasks(store_url) as operator:
            assert await operator.answer("expense_old", handler, None) == ["approve"]
            sign_in_as(monkeypatch, "max")
            with pytest.raises(CommandError, match="All operators count as one person"):
                await operator.answer("expense_old", handler, None)
        found = await store.get("expense_old")
        assert found is not None
        assert found.tags == (audience_tag("shop", "finance"), ASKING_TAG)
        assert task_of(found).waits["approve"].answered_by == ("operator:ann",)
        assert [item.task_id for item in await asked(server, BOB, 2)] == [handle.id, "expense_old"]


async def test_the_log_names_the_operator_who_answers_for_the_owner_of_a_task(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(store_url)
    server = Server("shop", store=store)

    @server.tool(task="required", poll_interval=0.02)
    async def greet(ctx: Context) -> str:
        first = await ctx.elicit("First?", str, key="first")
        return f"{first} {await ctx.elicit('Last?', str, key='last')}"

    sign_in_as(monkeypatch, "max")
    async with client_of(server) as client:
        handle = await client.submit("greet")
        for key, name in (("first", "Ada"), ("last", "Byron")):
            await until(lambda key=key: _asks(handle, key))
            async with StoreTasks(store_url) as operator:
                handler = ElicitationHandler(PreparedAnswers([f"value={name}"]), no_input=True)
                assert await operator.answer(handle.id, handler, None) == [key]
        assert (await handle.result(timeout=60)).text == "Ada Byron"
        answers = [entry.data for entry in await store.read(handle.id) if entry.kind == "answered"]
        assert [answer["answered_by"] for answer in answers] == ["operator:max", "operator:max"]


async def test_an_answer_in_place_of_the_owner_is_refused_if_its_question_is_closed(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/tasks.db"
    server = Server("shop", store=url)

    @server.tool(task="required", poll_interval=0.02)
    async def greet(ctx: Context) -> str:
        first, _ = await asyncio.gather(
            ctx.elicit("First?", str, key="first"), ctx.elicit("Last?", str, key="last")
        )
        return str(first)

    async with client_of(server) as client:
        handle = await client.submit("greet")
        await until(lambda: _asks(handle, "first"))
        owner, ada = Principal("ada"), {"first": accept(value="Ada")}
        async with StoreTasks(url) as operator:
            service = operator.service
            await service.answer(handle.id, owner, ada, by="operator:ann")
            with pytest.raises(TaskNotWaiting):
                await service.answer(handle.id, owner, {"first": accept(value="Eve")}, by="operator:max")
            await service.answer(handle.id, owner, ada, by="operator:ann")  # repeats the answer


async def test_operators_find_all_tasks_that_ask_people_by_one_tag(store: Store) -> None:
    server = Server("shop", store=store)

    @server.tool(task="required", poll_interval=0.02)
    async def ask(ctx: Context, whom: str) -> str:
        if whom == "nobody":
            await ctx.sleep(3600)
        to = None if whom == "owner" else whom
        return str(await ctx.elicit(f"Ask {whom}?", str, key=whom, to=to))

    async with client_of(server) as client:
        asking = [(await client.submit("ask", whom=whom)).id for whom in ("owner", "finance", "nobody")]

        async def all_wait() -> bool:
            return await store.count("waiting") == len(asking)

        await until(all_wait)
        page = await store.list_tagged([ASKING_TAG])
        assert [record.id for record in page.records] == asking[:2]
        await client.task(asking[0]).answer({"owner": {"value": "yes"}})
        assert (await client.task(asking[0]).result(timeout=60)).text == "yes"
        assert [record.id for record in (await store.list_tagged([ASKING_TAG])).records] == [asking[1]]


async def _asks(handle: TaskHandle, key: str) -> bool:
    return key in (await handle.status()).questions
