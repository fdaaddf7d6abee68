"""Shutdown under load: every running call gets its response."""

from __future__ import annotations

import asyncio

from tests.robustness.load import reached
from tests.support import http
from tests.support.polling import until
from tests.support.process import ServerProcess
from tests.support.speakers import Bare, Modern, Session

CALLS = 100


async def test_running_calls_finish_after_sigterm(commanded: ServerProcess) -> None:
    modern, bare, session = Modern(commanded.port), Bare(commanded.port), Session(commanded.port)
    await session.open()
    askers = [modern, bare, session]

    async def call(number: int) -> http.Response:
        asker = askers[number % 3]
        meta = {"progressToken": number} if number % 2 else None
        return await asker.ask("tools/call", asker.tool_call("work", meta, seconds=3.0), id=number)

    async with (
        session.listening() as stream,
        modern.asking("subscriptions/listen", {"notifications": {}}) as listen,
    ):
        assert (await stream.receive_head()).status == 200
        assert (await listen.receive_head()).status == 200
        calls = [asyncio.create_task(call(number)) for number in range(CALLS)]
        await reached(modern, lambda state: state["working"] == CALLS)
        commanded.terminate()
        answers = await asyncio.gather(*calls)
        assert [event async for event in stream.events() if not event.comment] == []
        assert [event.frame async for event in listen.events() if not event.comment][-1]["id"] == 1
    assert [(answer.frame["id"], answer.text) for answer in answers] == [
        (n, "worked 3.0") for n in range(CALLS)
    ]
    await until(lambda: commanded.process.poll() is not None)
    assert commanded.process.returncode == 0, commanded.log
    assert "Traceback" not in commanded.log


async def test_new_connections_are_refused_after_sigterm(commanded: ServerProcess) -> None:
    asker = Modern(commanded.port)
    call = asyncio.create_task(asker.call("work", seconds=3.0))
    await reached(asker, lambda state: state["working"] == 1)
    commanded.terminate()
    refused = False
    while not call.done():
        try:
            answer = await asker.call("add", a=1, b=2)
            assert answer.status in (200, 503)
        except (OSError, EOFError):
            refused = True
        await asyncio.sleep(0.01)
    assert refused
    assert (await call).text == "worked 3.0"
