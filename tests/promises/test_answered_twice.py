"""The first answer to a question counts: the same one may be repeated, and another one is refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from antiphon import Context, Principal
from antiphon.errors import TaskNotWaiting
from antiphon.runtime.relay import Relay
from antiphon.runtime.tasks.inbox_feed import InboxFeed
from antiphon.runtime.tasks.operating import operating_service
from antiphon.runtime.tasks.responses import is_same_answer
from antiphon.store.memory import MemoryStore
from tests.asking.driving import accept
from tests.promises.speaking import RELATED, Patient, answer, begin, look, reach
from tests.promises.test_questions import asked, asked_for, ended, redeeming, say, until_asked
from tests.promises.tooling import Name, Workshop, speaker
from tests.support import http
from tests.support.http import Response
from tests.support.process import started
from tests.support.serving import serving
from tests.support.speakers import Bare, Speaker

OTHER = "there is another answer already, and the first one counts"
STEPS = 100


@pytest.fixture(params=["draft", "2026-07-28"])
async def client(request: pytest.FixtureRequest, port: int) -> Speaker:
    """A client of each dialect in which an answer is a request."""
    return await speaker(request.param, port)


@pytest.fixture
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a store that several servers share."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/tasks.db"
    return str(request.getfixturevalue("database").url())


def method(client: Speaker) -> str:
    """Return the method that answers a task."""
    return "tasks/update" if isinstance(client, Patient) else "tasks/input_response"


def is_refused(response: Response) -> bool:
    """Return whether an answer was refused because there is another one."""
    if "error" not in response.frame:
        return False
    assert response.error["code"] == -32602
    assert OTHER in response.error["message"]
    return True


@pytest.mark.parametrize("store_url", ["sqlite", "postgres"], indirect=True)
@pytest.mark.parametrize("speak", [Bare, Patient])
async def test_of_different_answers_at_once_in_three_processes_one_is_acknowledged(
    store_url: str, speak: type[Speaker], tmp_path: Path
) -> None:
    env = {"ANTIPHON_STORE": store_url, "EFFECTS": str(tmp_path / "effects")}
    with ExitStack() as stack:
        servers = [stack.enter_context(started("promising.py", tmp_path, env=env)) for _ in range(3)]
        clients = [speak(servers[number % 3].port) for number in range(4)]
        for _ in range(5):
            id = (await begin(clients[0], "journey"))["taskId"]
            await asked(clients[0], id)
            names = [f"name {number}" for number in range(4)]
            given = await asyncio.gather(
                *(answer(each, id, first=name) for each, name in zip(clients, names, strict=True))
            )
            taken = [name for name, each in zip(names, given, strict=True) if not is_refused(each)]
            assert len(taken) == 1
            again = [await answer(each, id, first=taken[0]) for each in clients]
            assert not any(map(is_refused, again))
            await asked_for(clients[0], id, "second")
            assert not is_refused(await answer(clients[1], id, second="b", third="c"))
            await reach(clients[2], id, "completed")
            happened = (tmp_path / "effects").read_text().splitlines()
            assert [what for what in happened if what.startswith("two ")] == [f"two {taken[0]}"]
            (tmp_path / "effects").write_text("")


async def test_another_answer_is_refused_and_the_answers_beside_it_are_taken(client: Speaker) -> None:
    id = (await begin(client, "ask"))["taskId"]
    await asked(client, id)
    await answer(client, id, first="a")
    assert not is_refused(await answer(client, id, first="a", nobody="asked for this"))
    refused = await answer(client, id, first="too late", second="b")
    assert is_refused(refused)
    assert "'first'" in refused.error["message"]
    assert "'second'" not in refused.error["message"]
    await asked_for(client, id, "third")
    for given in ({"first": "x"}, {"first": "a", "second": "x"}):
        assert is_refused(await answer(client, id, **given))
    assert not is_refused(await answer(client, id, first="a", second="b"))
    assert not is_refused(await answer(client, id, first="a", third="c"))
    assert await ended(client, id) == "a b c"
    assert is_refused(await answer(client, id, second="x"))
    assert not is_refused(await answer(client, id, first="a", second="b", third="c"))


async def test_another_answer_is_refused_after_the_task_was_cancelled(client: Speaker) -> None:
    id = (await begin(client, "ask"))["taskId"]
    await asked(client, id)
    await answer(client, id, first="a")
    await client.ask("tasks/cancel", {"taskId": id})
    assert is_refused(await answer(client, id, first="x"))
    assert "error" not in (await answer(client, id, first="a")).frame


async def test_an_answer_that_the_function_refused_makes_room_for_another(client: Speaker) -> None:
    async def give(key: str, number: int) -> Response:
        responses = {key: accept(number=number)}
        return await client.ask(method(client), {"taskId": id, "inputResponses": responses})

    id = (await begin(client, "pick"))["taskId"]
    await asked_for(client, id, "number")
    assert not is_refused(await give("number", 3))
    again = "number~2" if isinstance(client, Patient) else "number"
    await asked_for(client, id, again, "3 is odd")
    if isinstance(client, Patient):
        # A client that repeats its request does not answer the next question with it.
        assert not is_refused(await give("number", 3))
        assert is_refused(await give("number", 5))
        assert again in await asked(client, id)
    assert not is_refused(await give(again, 8))
    assert await ended(client, id) == "8"
    assert is_refused(await give(again, 3))
    assert not is_refused(await give(again, 8))


@pytest.mark.parametrize("dialect", ["draft", "2026-07-28"])
async def test_another_answer_is_refused_however_long_ago_the_first_one_was(dialect: str) -> None:
    workshop = Workshop(MemoryStore())

    @workshop.server.tool(task="optional", poll_interval=0.05)
    async def patient(ctx: Context) -> str:
        first = await ctx.elicit("First?", Name, key="first")
        for _ in range(STEPS):
            await ctx.step(workshop.did, "step")
        last = await ctx.elicit("Last?", Name, key="last")
        return f"{first.name} {last.name}"

    async with serving(workshop.server) as address:
        client = await speaker(dialect, address.port)
        id = (await begin(client, "patient"))["taskId"]
        await asked(client, id)
        await answer(client, id, first="a")
        await asked_for(client, id, "last")
        assert workshop.ran["step"] == STEPS
        assert is_refused(await answer(client, id, first="x"))
        assert not is_refused(await answer(client, id, first="a"))
        await answer(client, id, last="b")
        assert await ended(client, id) == "a b"


async def test_another_answer_than_that_of_an_operator_is_refused(
    client: Speaker, workshop: Workshop
) -> None:
    id = (await begin(client, "ask"))["taskId"]
    await asked(client, id)
    relay = Relay("")
    await relay.open(workshop.store)
    service, owner = operating_service(workshop.store, relay, InboxFeed(relay)), Principal("anyone")
    await service.answer(id, owner, {"first": accept(name="a")}, by="operator:ann")
    assert is_refused(await answer(client, id, first="x"))
    assert not is_refused(await answer(client, id, first="a"))
    with pytest.raises(TaskNotWaiting, match=OTHER):
        await service.answer(id, owner, {"first": accept(name="x")}, by="operator:max")
    await relay.close()


async def test_the_draft_refuses_another_answer_with_the_request_for_the_result(port: int) -> None:
    client = Bare(port)
    id = (await begin(client, "ask"))["taskId"]
    await asked(client, id)
    await answer(client, id, first="a", second="b")
    await asked_for(client, id, "third")
    await answer(client, id, third="c")
    assert await ended(client, id) == "a b c"

    async def redeem(name: str) -> Response:
        given = {"taskId": id, "inputResponses": {"third": accept(name=name)}}
        return await client.ask("tasks/result", given)

    assert is_refused(await redeem("x"))
    assert (await redeem("c")).text == "a b c"


async def test_a_response_that_is_posted_again_is_taken_and_another_one_is_refused(port: int) -> None:
    client = Bare(port)
    id = (await begin(client, "ask"))["taskId"]
    await asked(client, id)
    await answer(client, id, first="a", second="b")
    await asked_for(client, id, "third")

    async def post(name: str) -> Response:
        result = {**accept(name=name), "_meta": {RELATED: {"taskId": id}}}
        body = json.dumps({"jsonrpc": "2.0", "id": 9, "result": result}).encode()
        return await http.request(port, "POST", client.headers, body)

    answers = await asyncio.gather(*(post(name) for name in ("c", "d", "e")))
    assert sorted(each.status for each in answers) == [202, 400, 400]
    taken = "cde"[[each.status for each in answers].index(202)]
    assert await ended(client, id) == f"a b {taken}"
    assert (await post(taken)).status == 202
    refused = await post("x")
    assert refused.status == 400
    assert OTHER in refused.error["message"]


class GatedStore:
    """A store in memory in which the answers that contain a text wait."""

    def __init__(self, text: str) -> None:
        self._store = MemoryStore()
        self._text = text
        self.waits = asyncio.Event()
        self.gate = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def append(self, id: str, entries: Any, **options: Any) -> int:
        if self._text in str(entries):
            self.waits.set()
            await self.gate.wait()
        return await self._store.append(id, entries, **options)


@pytest.fixture
async def gated() -> AsyncIterator[tuple[GatedStore, int]]:
    """A server whose store keeps the answer `late` waiting, and its port."""
    store: Any = GatedStore("'late'")
    async with serving(Workshop(store).server) as address:
        yield store, address.port


async def test_a_session_learns_that_its_answer_does_not_count(gated: tuple[GatedStore, int]) -> None:
    store, port = gated
    session, other = await speaker("2025-11-25", port), Bare(port)
    id = (await begin(session, "ask"))["taskId"]
    async with redeeming(session, id) as (_, frames):  # type: ignore[arg-type]
        requests = await until_asked(frames, "First?", "Second?")
        await say(session, requests["First?"]["id"], accept(name="late"))  # type: ignore[arg-type]
        await asyncio.wait_for(store.waits.wait(), 30)
        await answer(other, id, first="a", second="b")
        await asked_for(other, id, "third")
        store.gate.set()
        *_, last = [frame async for frame in frames]
    assert OTHER in last["error"]["message"]
    assert last["error"]["code"] == -32602
    assert (await look(session, id))["status"] == "input_required"


async def test_a_session_whose_answer_is_the_same_gets_the_result(gated: tuple[GatedStore, int]) -> None:
    store, port = gated
    session, other = await speaker("2025-11-25", port), Bare(port)
    id = (await begin(session, "ask"))["taskId"]
    async with redeeming(session, id) as (_, frames):  # type: ignore[arg-type]
        requests = await until_asked(frames, "First?", "Second?")
        await say(session, requests["First?"]["id"], accept(name="late"))  # type: ignore[arg-type]
        await asyncio.wait_for(store.waits.wait(), 30)
        store.gate.set()
        await answer(other, id, first="late", second="b")
        third = await until_asked(frames, "Third?")
        await say(session, third["Third?"]["id"], accept(name="c"))  # type: ignore[arg-type]
        *_, last = [frame async for frame in frames]
    assert last["result"]["content"][0]["text"] == "late b c"


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        (accept(sure=True), accept(sure=True), True),
        (accept(sure=True), accept(sure=1), False),
        (accept(amount=1), accept(amount=1.0), True),
        (accept(amount=0), accept(amount=False), False),
        (accept(names=["a", 1]), accept(names=["a", True]), False),
        (accept(names=["a"]), accept(names=["a", "b"]), False),
        (accept(name="a"), accept(name="a", nick="b"), False),
        ({"action": "decline"}, {"action": "cancel"}, False),
    ],
)
def test_answers_are_compared_as_json(first: Any, second: Any, same: bool) -> None:
    assert is_same_answer(first, second) is same
    assert is_same_answer(second, first) is same


async def test_a_task_that_was_answered_twice_ends_once(client: Speaker, workshop: Workshop) -> None:
    id = (await begin(client, "ask"))["taskId"]
    await asked(client, id)
    given = await asyncio.gather(*(answer(client, id, first=name, second="b") for name in "stuv"))
    assert sum(not is_refused(each) for each in given) == 1
    await asked_for(client, id, "third")
    await answer(client, id, third="c")
    await reach(client, id, "completed")
    assert workshop.ran == {"began": 1, "went on": 1}
