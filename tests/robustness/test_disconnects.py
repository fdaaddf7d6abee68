"""Clients that disconnect during a request: nothing of them stays in memory."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter

import pytest

from antiphon import Context, Server
from tests.robustness.load import idle, reached
from tests.support import http
from tests.support.polling import forever, turns, until
from tests.support.process import ServerProcess
from tests.support.serving import serving
from tests.support.speakers import Bare, Modern, Session, Speaker

ROUND = 60


class Counted:
    """A server that counts the calls that begin and end."""

    def __init__(self) -> None:
        self.server = Server("tests")
        self.begun = self.ended = self.cancelled = 0
        self.server.add_tool(self.hang)

    async def hang(self, ctx: Context, chatty: bool = False) -> str:
        self.begun += 1
        try:
            while True:
                if chatty:
                    await ctx.info("x" * 1000)
                    await ctx.progress(self.begun)
                    await turns()
                else:
                    await forever()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.ended += 1


@pytest.mark.parametrize("chatty", [False, True])
@pytest.mark.parametrize("kind", [Modern, Bare])
async def test_calls_whose_clients_disconnect_are_cancelled_and_removed(
    kind: type[Speaker], chatty: bool
) -> None:
    counted = Counted()
    async with serving(counted.server) as where:
        asker = kind(where.port)
        assert (await asker.ask("tools/list")).status == 200
        before = len(asyncio.all_tasks())
        for repeat in range(1, 4):
            await asyncio.gather(*(vanish(asker, counted, chatty, repeat * ROUND) for _ in range(ROUND)))
            await until(lambda: counted.ended == counted.begun)
        await until(lambda: where.under_way == 0)
        assert counted.cancelled == counted.begun == 3 * ROUND
        await until(lambda: len(asyncio.all_tasks()) <= before)
        assert (await asker.ask("tools/list")).status == 200


async def vanish(asker: Speaker, counted: Counted, chatty: bool, expected: int) -> None:
    params = asker.tool_call("hang", {"progressToken": 1}, chatty=chatty)
    async with asker.asking("tools/call", params) as connection:
        await until(lambda: counted.begun >= expected)
        connection.vanish()


async def test_calls_of_a_disconnected_session_can_be_cancelled_with_its_id() -> None:
    counted = Counted()
    async with serving(counted.server) as where:
        session = Session(where.port)
        await session.open()
        params = session.tool_call("hang", {"progressToken": 1}, chatty=True)
        for number in range(ROUND):
            async with session.asking("tools/call", params, id=number) as connection:
                await connection.receive_head()
                connection.vanish()
        assert counted.ended == 0, "calls of a session go on: their client may come back"
        assert where.under_way == ROUND
        await session.end()
        await until(lambda: counted.cancelled == ROUND)
        await until(lambda: where.under_way == 0)


def living() -> Counter[str]:
    """Return the number of objects of each class of the library."""
    gc.collect()
    kinds = Counter(type(each) for each in gc.get_objects())
    ours = {kind: count for kind, count in kinds.items() if str(kind.__module__).startswith("antiphon.")}
    return Counter({kind.__qualname__: count for kind, count in ours.items()})


async def test_no_object_of_a_request_is_left_in_memory() -> None:
    counted = Counted()
    async with serving(counted.server) as where:
        asker = Modern(where.port)
        await vanish(asker, counted, True, 1)  # so that the head of the requests is known from here on
        await until(lambda: where.under_way == 0)
        before = living()
        await asyncio.gather(*(vanish(asker, counted, True, ROUND + 1) for _ in range(ROUND)))
        await until(lambda: where.under_way == 0)
        await until(lambda: not living() - before)


async def test_clients_that_disconnect_leave_no_memory_behind(loaded: ServerProcess) -> None:
    asker = Modern(loaded.port)
    other = Modern(loaded.port, source=http.OTHER_LOOPBACK)  # has a share of its own

    async def abandon(number: int) -> None:
        params = asker.tool_call("work", {"progressToken": 1} if number % 2 else None, ends=False)
        async with asker.asking("tools/call", params) as connection:
            if number % 2:
                await connection.receive_head()
            else:
                await turns()
            connection.vanish()

    sizes = []
    for _ in range(5):
        for _ in range(5):
            await asyncio.gather(*(abandon(number) for number in range(100)))
        await reached(other, idle)
        sizes.append(loaded.memory)
    assert sizes[-1] - sizes[1] < 8_000_000, sizes
    assert "Traceback" not in loaded.log


async def test_half_a_request_and_a_disconnect() -> None:
    async with serving(Counted().server) as where:
        whole = (
            http.head("POST", "/mcp", Modern(where.port).headers, 50)
            + b'{"jsonrpc":"2.0","id":1,"method":"ping"}          '
        )
        for length in range(0, len(whole), 3):
            async with http.connect(where.port) as connection:
                await connection.write(whole[:length])
                connection.vanish()
        await until(lambda: where.under_way == 0)
        assert (await Bare(where.port).ask("ping")).status == 200
