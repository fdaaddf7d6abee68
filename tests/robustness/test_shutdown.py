"""Shutdown under load: every running call gets its response."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.robustness.load import reached
from tests.support import http
from tests.support.polling import until
from tests.support.process import ServerProcess
from tests.support.speakers import Bare, Modern, Session

CALLS = 100


async def test_running_calls_finish_after_sigterm(commanded: ServerProcess, tmp_path: Path) -> None:
    release = tmp_path / "release"
    modern, bare, session = Modern(commanded.port), Bare(commanded.port), Session(commanded.port)
    await session.open()
    askers = [modern, bare, session]

    async def call(number: int) -> http.Response:
        asker = askers[number % 3]
        meta = {"progressToken": number} if number % 2 else None
        return await asker.ask("tools/call", asker.tool_call("hold", meta, file=str(release)), id=number)

    async with (
        session.listening() as stream,
        modern.asking("subscriptions/listen", {"notifications": {}}) as listen,
    ):
        assert (await stream.receive_head()).status == 200
        assert (await listen.receive_head()).status == 200
        calls = [asyncio.create_task(call(number)) for number in range(CALLS)]
        await reached(modern, lambda state: state["working"] == CALLS)
        commanded.terminate()
        await until(lambda: is_refused(modern))
        release.touch()
        answers = await asyncio.gather(*calls)
        assert [event async for event in stream.events() if not event.comment] == []
        assert [event.frame async for event in listen.events() if not event.comment][-1]["id"] == 1
    assert [(answer.frame["id"], answer.text) for answer in answers] == [
        (n, "released") for n in range(CALLS)
    ]
    await until(lambda: commanded.process.poll() is not None)
    assert commanded.process.returncode == 0, commanded.log
    assert "Traceback" not in commanded.log


async def test_new_connections_are_refused_after_sigterm(commanded: ServerProcess, tmp_path: Path) -> None:
    asker, release = Modern(commanded.port), tmp_path / "release"
    call = asyncio.create_task(asker.call("hold", file=str(release)))
    await reached(asker, lambda state: state["working"] == 1)
    commanded.terminate()
    await until(lambda: is_refused(asker))
    assert not call.done()
    release.touch()
    assert (await call).text == "released"


async def is_refused(asker: Modern) -> bool:
    """Return whether the server takes no new connection."""
    try:
        answer = await asker.call("add", a=1, b=2)
    except (OSError, EOFError):
        return True
    assert answer.status in (200, 503)
    return False
