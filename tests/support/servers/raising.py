"""A server whose functions raise anything: `python raising.py PORT`, or `python raising.py --stdio`."""

from __future__ import annotations

import asyncio
import concurrent.futures
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import uvicorn
from pydantic import BaseModel, field_validator
from tests.support.polling import turns

from antiphon import Context, HttpRequest, Server


class Own(BaseException):
    """An exception that no `except Exception` catches."""


KINDS: dict[str, Callable[[], BaseException]] = {
    "exit": lambda: SystemExit(3),
    "interrupt": lambda: KeyboardInterrupt(),
    "generator_exit": lambda: GeneratorExit(),
    "own": lambda: Own("own"),
    "group": lambda: BaseExceptionGroup("several", [SystemExit(3), Own("own")]),
    "cancelled": lambda: asyncio.CancelledError(),
    "cancelled_future": lambda: concurrent.futures.CancelledError(),
    "stop_iteration": lambda: StopIteration(1),
    "stop_async_iteration": lambda: StopAsyncIteration(1),
    "memory": lambda: MemoryError(),
    "recursion": lambda: RecursionError(),
}


def fail(kind: str) -> str:
    """Raise an exception of a kind."""
    raise KINDS[kind]()


async def fail_later(kind: str) -> str:
    """Raise an exception of a kind, after the event loop had its turn."""
    await turns()
    return fail(kind)


class Checked(BaseModel):
    """An argument whose validation raises."""

    kind: str

    @field_validator("kind")
    @classmethod
    def check(cls, kind: str) -> str:
        """Raise."""
        return fail(kind)


async def raises_around(incoming: Any, call_next: Any) -> Any:
    """Raise for the calls of one tool."""
    if getattr(incoming.request, "name", None) == "guarded":
        fail(incoming.request.arguments["kind"])
    return await call_next()


server = Server("raising", middleware=[raises_around], store="memory:")


@server.tool
async def healthy() -> str:
    """Work."""
    return "fine"


@server.tool
async def plain(kind: str) -> str:
    """Raise in the event loop."""
    return await fail_later(kind)


@server.tool
def threaded(kind: str) -> str:
    """Raise in a thread."""
    return fail(kind)


@server.tool
async def with_context(ctx: Context, kind: str) -> str:
    """Raise in a function that has a context."""
    return await fail_later(kind)


@server.tool
async def generating(kind: str) -> AsyncIterator[str]:
    """Raise after a segment."""
    yield "a"
    fail(kind)


@server.tool
def generating_in_thread(kind: str) -> Iterator[str]:
    """Raise after a segment, in a thread."""
    yield "a"
    fail(kind)


@server.tool
async def stepping(ctx: Context, kind: str) -> str:
    """Raise in a step."""
    return await ctx.step(fail_later, kind)


@server.tool
async def stepping_in_thread(ctx: Context, kind: str) -> str:
    """Raise in a step that runs in a thread."""
    return await ctx.step(fail, kind)


@server.tool
def threaded_stepping(ctx: Context, kind: str) -> str:
    """Raise in a step of a function that runs in a thread."""
    return ctx.wait(ctx.step(fail, kind))


@server.tool
def waiting(ctx: Context, kind: str) -> str:
    """Raise in a coroutine for which a thread waits."""
    return ctx.wait(fail_later(kind))


@server.tool
async def stepping_beside(ctx: Context, kind: str) -> str:
    """Raise in a step that runs beside another one."""
    return "".join(await asyncio.gather(ctx.step(fail_later, kind), ctx.step(fail, kind)))


@server.tool
async def checked(given: Checked) -> str:
    """Raise while the arguments are checked."""
    return given.kind


@server.tool
async def guarded(kind: str) -> str:
    """Raise in the middleware."""
    return kind


@server.tool(task="required")
async def as_task(kind: str) -> str:
    """Raise as a task."""
    return await fail_later(kind)


@server.tool(task="required")
async def step_as_task(ctx: Context, kind: str) -> str:
    """Raise in a step of a task."""
    return await ctx.step(fail, kind)


@server.tool(task="required")
def thread_as_task(kind: str) -> str:
    """Raise in a thread as a task."""
    return fail(kind)


@server.tool(task="required", answer_within=5.0)
async def converted(ctx: Context, kind: str) -> str:
    """Raise after the call became a task."""
    await ctx.promise()
    return await fail_later(kind)


@server.tool(task="required")
async def checked_task(given: Checked) -> str:
    """Raise while the arguments of a task are checked."""
    return given.kind


@server.prompt
async def prompt(kind: str) -> str:
    """Raise."""
    return await fail_later(kind)


@server.prompt
def prompt_in_thread(kind: str) -> str:
    """Raise in a thread."""
    return fail(kind)


@server.resource("u://async/{kind}")
async def resource(kind: str, ctx: Context) -> str:
    """Raise."""
    return await fail_later(kind)


@server.resource("u://thread/{kind}")
def resource_in_thread(kind: str) -> str:
    """Raise in a thread."""
    return fail(kind)


@server.completion("prompt", "kind")
async def complete(value: str) -> list[str]:
    """Raise."""
    return [await fail_later(value)]


@server.completion("prompt_in_thread", "kind")
def complete_in_thread(value: str) -> Iterator[str]:
    """Raise while the values are read."""
    return (fail(value) for _ in (1,))


@server.route("/page")
async def page(request: HttpRequest) -> str:
    """Raise."""
    return await fail_later(request.query["kind"])


@server.route("/page_in_thread")
def page_in_thread(request: HttpRequest) -> str:
    """Raise in a thread."""
    return fail(request.query["kind"])


if __name__ == "__main__":
    if sys.argv[1] == "--stdio":
        asyncio.run(server.stdio())
    else:
        uvicorn.run(server.asgi(), port=int(sys.argv[1]), log_level="warning", timeout_graceful_shutdown=5)
