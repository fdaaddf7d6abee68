"""A server that sends what a test wants: a raw socket with scripted answers, on a thread of its own.

The command line runs in processes, and the client's tests must not share an event loop with the attacker.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from antiphon import Client
from antiphon.errors import AntiphonError
from tests.client.fakes import MODERN, Answer, Fake, Reply, serving
from tests.test_printable import BIDIRECTIONAL, CONTROL

POISON = f"\x1b]0;pwned\x07\x1b[2J\x9b2J{CONTROL}{BIDIRECTIONAL}\u2028\u2029\n\r\nError: forged"
"""Everything that a terminal must not get and that JSON can carry."""
TASKS = {"io.modelcontextprotocol/tasks": {}}
EVERYTHING: dict[str, Any] = {"tools": {}, "resources": {}, "prompts": {}, "extensions": TASKS}


@contextmanager
def hostile_server(answer: Answer) -> Iterator[Fake]:
    """Run a server that answers every request with `answer`."""
    started: list[tuple[Fake, Callable[[], None]]] = []
    ready = threading.Event()

    async def run() -> None:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        async with serving(answer) as fake:
            started.append((fake, lambda: loop.call_soon_threadsafe(stop.set)))
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    try:
        assert ready.wait(60)
        yield started[0][0]
    finally:
        started[0][1]()
        thread.join(60)
        assert not thread.is_alive()


def scripted(answers: Mapping[str, Any], name: str = "hostile", **capabilities: Any) -> Answer:
    """Answer each method with a result, with an exception's JSON-RPC error, or as a function does."""

    async def answer(reply: Reply) -> None:
        method = reply.request.method
        if method not in answers and method == "server/discover":
            await reply.result(
                {
                    "resultType": "complete",
                    "supportedVersions": [MODERN],
                    "capabilities": capabilities,
                    "serverInfo": {"name": name, "version": name},
                }
            )
        elif method not in answers:
            error = {"code": -32601, "message": f"There is no {method}."}
            await reply.message({"id": reply.request.id, "error": error}, 404)
        elif callable(answers[method]):
            await answers[method](reply)
        else:
            await reply.result(answers[method])

    return answer


def fails_with(message: str, code: int = -32603) -> Answer:
    """Answer with a JSON-RPC error."""

    async def answer(reply: Reply) -> None:
        await reply.message({"id": reply.request.id, "error": {"code": code, "message": message}})

    return answer


def tool(schema: Any, name: str = "tool", **fields: Any) -> dict[str, Any]:
    """Return a list with one tool."""
    return {"tools": [{"name": name, "inputSchema": schema, **fields}]}


def text(value: str, **fields: Any) -> dict[str, Any]:
    """Return the result of a tool."""
    return {"resultType": "complete", "content": [{"type": "text", "text": value}], **fields}


@asynccontextmanager
async def connected(answer: Answer, **options: Any) -> AsyncIterator[tuple[Client, Fake]]:
    """A client of a server that answers so. The server has a thread, so that it cannot delay the client."""
    options = {"timeout": 60, "max_message": 1024 * 1024, **options}
    with hostile_server(answer) as fake:
        async with Client(fake.url, **options) as client:
            yield client, fake


def cpu_seconds() -> float:
    return time.process_time()


async def connect(url: str) -> None:
    async with Client(url, timeout=60):
        pass


async def fails_as_ours(work: Any) -> None:
    """Await a request. It may fail with an error of this library, and with no other one."""
    try:
        await work
    except AntiphonError:
        pass
