"""Messages, results, tasks and forms that attack the client: an error of ours, in time, without a flood."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable
from typing import Any

import pytest

from antiphon.client import Elicitation
from antiphon.errors import BadAnswer, TaskLost, TimedOut
from tests.client.fakes import MODERN, Answer, Reply, legacy, modern
from tests.hostile.hostile_server import (
    EVERYTHING,
    connect,
    connected,
    fails_as_ours,
    hostile_server,
    scripted,
    text,
)

# Requests and notifications of the server


async def test_a_flood_of_requests_is_answered_by_few_tasks() -> None:
    async def answer(reply: Reply) -> None:
        if reply.request.method != "tools/call":
            await reply.hang()  # the answers of the client pile up
        await reply.events()
        for number in range(5000):
            identity = number if number % 2 else "same"
            await reply.event({"id": identity, "method": "ping", "params": {}})
        await reply.event({"id": reply.request.id, "result": text("done")})

    async with connected(legacy(answer)) as (client, fake):
        before = len(asyncio.all_tasks())
        assert (await client.call("tool")).text == "done"
        assert len(asyncio.all_tasks()) - before < 300
        assert len(fake.heard) < 300


async def test_requests_that_a_version_forbids_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)

    async def answer(reply: Reply) -> None:
        await reply.events()
        for number in range(100):
            await reply.event({"id": number, "method": "ping"})
        await reply.event({"id": reply.request.id, "result": text("done")})

    async with connected(modern(answer)) as (client, _):
        assert (await client.call("tool")).text == "done"
    assert len(caplog.records) == 1


NOTIFICATIONS: list[dict[str, Any]] = [
    {"method": f"notifications/{kind}", "params": params}
    for kind in ("progress", "message", "cancelled", "resources/updated", "tasks/status", "tasks", "unknown")
    for params in (
        {},
        {"progressToken": {}, "progress": []},
        {"level": [], "data": {}},
        {"uri": 5},
        {"taskId": []},
    )
]
NOTIFICATIONS += [
    {"method": "notifications/progress", "params": {"progressToken": 2, "progress": 10**300, "total": -1}},
    {"method": "notifications/subscriptions/acknowledged", "params": {"notifications": 5}},
    {"method": "notifications/progress"},
    {"method": "\u202e" * 1000, "params": {}},
]


@pytest.mark.parametrize("dialect", [modern, legacy])
async def test_odd_notifications_do_not_fail_a_call(dialect: Callable[[Answer], Answer]) -> None:
    async def answer(reply: Reply) -> None:
        await reply.events()
        for notification in NOTIFICATIONS:
            await reply.event(notification)
        await reply.event({"id": reply.request.id, "result": text("done")})

    async with connected(dialect(answer), on_progress=print, on_log=print) as (client, _):
        assert (await client.call("tool")).text == "done"


@pytest.mark.parametrize(
    "result",
    [
        {"resultType": []},
        {"resultType": "task"},
        {"resultType": "task", "taskId": "", "status": "working"},
        {"resultType": "task", "taskId": "t", "status": []},
        {"resultType": "input_required"},
        {"resultType": "input_required", "inputRequests": [5]},
        {"resultType": "input_required", "inputRequests": {"a": 5}, "requestState": 5},
        {"resultType": "input_required", "inputRequests": {"a": {"method": [], "params": {}}}},
        {"content": 5},
        {"content": [5]},
        {"content": [{"type": []}]},
        {"content": [{"type": "resource", "resource": 5}]},
        {"content": [{"type": "image"}], "isError": "maybe"},
        {"task": {"taskId": 5}},
    ],
)
async def test_any_result_is_a_result_or_an_error_offails_as_ours(result: dict[str, Any]) -> None:
    async with connected(scripted({"tools/call": result}, **EVERYTHING)) as (client, _):
        await fails_as_ours(client.call("tool"))
        await fails_as_ours(client.submit("tool"))


CAPABILITIES = [5, [], {"tools": 5, "extensions": []}, {"extensions": {"io.modelcontextprotocol/tasks": 5}}]
CAPABILITIES += [{"tasks": []}, {"tasks": {"requests": 5}}, {"experimental": 5, "resources": []}]


@pytest.mark.parametrize("declared", CAPABILITIES)
async def test_odd_capabilities_are_read_or_refused(declared: Any) -> None:
    info = {"name": 5, "version": []}
    greeting = {"supportedVersions": [MODERN], "capabilities": declared, "serverInfo": info}
    initialized = {"protocolVersion": "2025-11-25", "capabilities": declared, "serverInfo": info}
    for answers in (
        {"server/discover": greeting},
        {"initialize": initialized, "server/discover": _not_found},
    ):
        with hostile_server(scripted(answers)) as fake:
            await fails_as_ours(connect(fake.url))


async def _not_found(reply: Reply) -> None:
    await reply.body(400, "text/plain", b"What?")


# Tasks and questions


async def test_a_task_that_never_ends_is_polled_ever_more_slowly() -> None:
    status = {"taskId": "t", "status": "working", "pollIntervalMs": 0, "ttlMs": None}
    answers = {"tools/call": {"resultType": "task", **status}, "tasks/get": status, "tasks/cancel": status}
    async with connected(scripted(answers, **EVERYTHING)) as (client, fake):
        task = await client.submit("tool")
        with pytest.raises(TimedOut, match="has not ended within 2 s"):
            await task.result(timeout=2)
        assert sum(request.method == "tasks/get" for request in fake.heard) < 60


@pytest.mark.parametrize(
    "times",
    [["2026-01-01T00:00:00", "2026-01-01T00:00:00Z"], ["0001-01-01", "9999-12-31T23:59:59-14:00"], [5, {}]],
)
async def test_odd_times_of_a_task_are_left_out(times: list[Any]) -> None:
    moments = itertools.cycle(times)

    async def answer(reply: Reply) -> None:
        if reply.request.method == "tasks/get":
            await reply.result(
                {
                    "taskId": "t",
                    "status": "working",
                    "createdAt": next(moments),
                    "lastUpdatedAt": next(moments),
                }
            )
        else:
            await _not_found(reply)

    async with connected(modern(answer, **EVERYTHING)) as (client, _):
        status = await client.task("t").status()
        assert status.created_at is None or status.created_at.tzinfo is not None


async def test_a_task_under_another_id_is_refused() -> None:
    answers = {"tasks/get": {"taskId": "other", "status": "working"}}
    async with connected(scripted(answers, **EVERYTHING)) as (client, _):
        with pytest.raises((BadAnswer, TaskLost)):
            await client.task("t").result(timeout=30)


FORMS: list[Any] = [
    {"properties": 5},
    {"properties": {"a": 5}},
    {"properties": {"a": True}, "required": 5},
    {"properties": {"a": {"type": "string", "minLength": "x"}}},
    {"properties": {"a": {"type": "integer", "minimum": "x"}}},
    {"properties": {"a": {"enum": "abc"}}},
    {"properties": {"a": {"enum": [1], "enumNames": 5}}},
    {"properties": {"a": {"oneOf": [5]}}},
    {"properties": {"a": {"oneOf": 5}}},
    {"properties": {"a": {"type": "array", "items": 5}}},
    {"properties": {"a": {"type": [], "format": []}}},
    {"properties": {"a": {"type": "string", "pattern": "(a+)+$", "maxLength": -1}}},
    {"properties": {"a": {"type": "string", "enum": list(range(100_000))}}},
]


@pytest.mark.parametrize("number", range(len(FORMS)))
async def test_any_form_is_answered_or_refused(number: int) -> None:
    question = {"method": "elicitation/create", "params": {"message": "?", "requestedSchema": FORMS[number]}}
    asking = {"resultType": "input_required", "inputRequests": {"k": question}, "requestState": "s"}
    task = {"taskId": "t", "status": "input_required", "inputRequests": {"k": question}, "pollIntervalMs": 10}
    ended = {"taskId": "t", "status": "completed", "result": text("done")}

    async def status(reply: Reply) -> None:
        is_answered = any(request.method == "tasks/update" for request in fake.heard)
        await reply.result(ended if is_answered else task)

    answers = {
        "tools/call": asking,
        "tasks/get": status,
        "tasks/update": {"resultType": "complete"},
    }

    async def elicit(question: Elicitation) -> dict[str, Any]:
        return {"a": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!"}

    options: dict[str, Any] = {"elicit": elicit, "max_rounds": 3, "max_message": 64 * 1024 * 1024}
    async with connected(scripted(answers, **EVERYTHING), **options) as (client, fake):
        await fails_as_ours(client.call("tool"))
        await fails_as_ours(client.task("t").result())
