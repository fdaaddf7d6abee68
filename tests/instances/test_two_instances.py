"""Requests that arrive at one instance and take effect on the other, because it is notified at once.

The instances never find a change by looking again (see `open_notified`).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from tests.asking.driving import EVERYTHING, accept
from tests.cli.command import antiphon
from tests.instances.pair import Instance
from tests.promises.speaking import Patient, answer, begin, look, reach
from tests.streaming.speaking import Follower, reading, texts
from tests.support import http
from tests.support.http import Connection
from tests.support.polling import until
from tests.support.proxy import round_robin
from tests.support.speakers import JSON, Modern, Session

ROUNDS = 9
Both = tuple[Instance, Instance]


async def test_an_answer_resumes_the_task_on_the_other_instance_at_once(both: Both) -> None:
    works, serves = both
    for number in range(ROUNDS):
        id = (await begin(Patient(serves.port), "ask", word=str(number)))["taskId"]
        await reach(Patient(serves.port), id, "input_required")
        await answer(Patient(serves.port), id, who="Ann")
        await works.noted(f"answered {number}")
        task = await reach(Patient(serves.port), id, "completed")
        assert task["result"]["content"][0]["text"] == f"{number} Ann"


async def test_a_cancellation_stops_the_run_on_the_other_instance_at_once(both: Both) -> None:
    works, serves = both
    for number in range(ROUNDS):
        id = (await begin(Patient(serves.port), "endless", word=str(number)))["taskId"]
        await works.noted(f"began {number}")
        await Patient(serves.port).ask("tasks/cancel", {"taskId": id})
        await works.noted(f"stopped {number}")
        assert (await look(Patient(works.port), id))["status"] == "cancelled"


async def test_a_segment_of_the_other_instance_is_streamed_at_once(both: Both) -> None:
    works, serves = both
    id = (await begin(Patient(serves.port), "drip", count=ROUNDS))["taskId"]
    async with reading(Follower(serves.port), "tasks/stream", {"taskId": id}) as stream:
        for number in range(1, ROUNDS + 1):
            works.drops.release()
            await stream.up_to(number)  # the next one is only made when this one has arrived
        await stream.rest()
    assert texts(stream.frames) == [f"drop {number}" for number in range(ROUNDS)]


async def test_a_listener_gets_changes_of_a_task_on_the_other_instance(both: Both) -> None:
    works, serves = both
    id = (await begin(Patient(works.port), "ask", word="w"))["taskId"]
    params = {"notifications": {"taskIds": [id]}}
    async with Patient(serves.port).asking("subscriptions/listen", params) as connection:
        events = await _events(connection)
        await _until(events, lambda frame: "acknowledged" in frame.get("method", ""))
        await reach(Patient(works.port), id, "input_required")
        await answer(Patient(works.port), id, who="Ann")
        await _until(events, lambda frame: frame.get("params", {}).get("status") == "completed")


async def test_an_artifact_can_be_used_and_read_on_the_other_instance(both: Both) -> None:
    works, serves = both
    made = (await Modern(works.port).call("keep", text="hello")).result
    id = made["structuredContent"]["artifact_id"]
    assert (await Modern(serves.port).call("use", artifact_id=id)).text == "hello"
    (link,) = [block for block in made["content"] if block["type"] == "resource_link"]
    assert link["uri"].rpartition("/")[2] == id
    read = (await Modern(serves.port).ask("resources/read", {"uri": link["uri"]})).result
    assert [contents["uri"] for contents in read["contents"]] == [link["uri"]]


async def test_changes_reach_listeners_on_the_other_instance(both: Both) -> None:
    works, serves = both
    params = {"notifications": {"toolsListChanged": True, "resourceSubscriptions": ["note://one"]}}
    async with Modern(serves.port).asking("subscriptions/listen", params) as connection:
        events = await _events(connection)
        await _until(events, lambda frame: "acknowledged" in frame.get("method", ""))
        works.server.remove_tool("plain")
        await _until(events, lambda frame: frame.get("method") == "notifications/tools/list_changed")
        await asyncio.to_thread(works.server.notify_resource_updated, "note://one")
        told = await _until(events, lambda frame: frame.get("method") == "notifications/resources/updated")
        assert told["params"]["uri"] == "note://one"


# Sessions of 2025-11-25, behind a load balancer


async def test_the_answer_to_a_question_on_a_connection_may_arrive_at_the_other_instance(both: Both) -> None:
    ports = [instance.port for instance in both]
    async with round_robin(ports) as balancer:
        session = Session(balancer.port)
        await session.open(capabilities=EVERYTHING)
        for _ in range(6):  # whichever instance gets which request
            async with session.asking("tools/call", {"name": "held", "arguments": {}}) as connection:
                events = await _events(connection)
                question = await _until(events, lambda frame: frame.get("method") == "elicitation/create")
                taken = await _respond(session, question["id"], accept(name="Ann"))
                assert taken.status == 202
                end = await _until(events, lambda frame: "result" in frame)
                assert end["result"]["content"][0]["text"] == "held Ann"


async def test_a_call_on_the_other_instance_can_be_cancelled(both: Both) -> None:
    works, serves = both
    session = Session(works.port)
    await session.open()
    async with session.asking("tools/call", {"name": "endless", "arguments": {"word": "x"}}, id=7):
        await works.noted("began x")
        elsewhere = _moved(session, serves.port)
        await elsewhere.tell("notifications/cancelled", {"requestId": 7})
        await works.noted("stopped x")


async def test_a_subscription_reaches_the_stream_on_the_other_instance(both: Both) -> None:
    works, serves = both
    session = Session(works.port)
    await session.open()
    for uri in ("note://one", "note://two"):
        assert (await session.ask("resources/subscribe", {"uri": uri})).result == {}
    async with _moved(session, serves.port).listening() as connection:
        events = await _events(connection)
        is_heard = False

        def tell() -> (
            bool
        ):  # repeatedly: a new stream gets its subscriptions from the other instance only later
            works.server.notify_resource_updated("note://one")
            return is_heard

        telling = asyncio.create_task(until(tell))
        await _until(events, _updated("note://one"))
        is_heard = True
        await telling
        await session.ask("resources/unsubscribe", {"uri": "note://one"})

        async def has_crossed() -> bool:
            return "note://one" not in await _changes(events, serves)

        await until(has_crossed)


async def test_a_session_ends_on_both_instances(both: Both) -> None:
    works, serves = both
    session = Session(works.port)
    await session.open()
    elsewhere = _moved(session, serves.port)
    assert (await elsewhere.ask("ping")).status == 200
    assert (await session.end()).status == 204

    async def is_unknown() -> bool:
        return (await elsewhere.ask("ping")).status == 404

    await until(is_unknown)


async def _changes(events: Any, instance: Instance) -> list[str]:
    """Change both resources, and return the notifications up to the second one."""
    heard: list[str] = []
    instance.server.notify_resource_updated("note://one")
    instance.server.notify_resource_updated("note://two")
    while "note://two" not in heard:
        heard.append(_uri(await _until(events, _uri)))
    return heard


def _uri(frame: dict[str, Any]) -> str:
    """Return the resource that a message is about."""
    return str(frame.get("params", {}).get("uri", ""))


def _updated(uri: str) -> Callable[[dict[str, Any]], bool]:
    """Return a function that tests whether a message says that this resource has changed."""
    return lambda frame: frame.get("method") == "notifications/resources/updated" and _uri(frame) == uri


def _moved(session: Session, port: int) -> Session:
    """Return the same session, at another instance."""
    other = Session(port, headers=session.headers)
    other.headers = dict(session.headers)
    return other


async def _respond(session: Session, id: str, result: Any) -> http.Response:
    body = json.dumps({"jsonrpc": "2.0", "id": id, "result": result}).encode()
    return await http.request(session.port, "POST", {**JSON, **session.headers}, body)


async def _events(connection: Connection) -> Any:
    head = await connection.receive_head()
    assert head.is_stream
    return connection.events()


async def _until(events: Any, wanted: Any) -> dict[str, Any]:
    """Return the first message that fulfils the condition."""
    async for event in events:
        if event.data and wanted(event.frame):
            return dict(event.frame)
    raise AssertionError("the stream ended")


async def test_cancelling_in_the_store_stops_the_run_on_any_instance(both: Both, place: str) -> None:
    works, serves = both
    id = (await begin(Patient(serves.port), "endless", word="x"))["taskId"]
    await works.noted("began x")
    done = await asyncio.to_thread(antiphon, "tasks", "cancel", place, id)
    assert done.returncode == 0, done.stderr
    await works.noted("stopped x")
    assert (await look(Patient(works.port), id))["status"] == "cancelled"
