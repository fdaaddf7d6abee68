"""A server whose functions return values that JSON, or a store, may not be able to hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from antiphon import (
    Artifact,
    Completion,
    Context,
    Elicit,
    Failure,
    InputRequired,
    InvalidParams,
    PromptMessage,
    Result,
    Server,
    Text,
    TextContents,
)

LONE = "a lone \udcff, as os.listdir gives"


def recursive() -> list[Any]:
    """Return a list that contains itself."""
    found: list[Any] = []
    found.append(found)
    return found


def nested(levels: int) -> list[Any]:
    """Return a list in a list in a list."""
    found: list[Any] = []
    for _ in range(levels):
        found = [found]
    return found


def _unequal() -> Any:
    class Odd:
        def __repr__(self) -> str:
            raise ValueError("no text")

    return Odd()


UNWRITABLE: Mapping[str, Callable[[], Any]] = {
    "text": lambda: LONE,
    "inside": lambda: {"name": LONE},
    "key": lambda: {LONE: 1},
    "huge": lambda: {"number": 10**5000},
    "recursive": lambda: {"list": recursive()},
    "deep": lambda: {"list": nested(100_000)},
    "bytes": lambda: {"raw": b"\xff\xfe"},
    "bytes_key": lambda: {b"\xff\xfe": 1},
    "odd": lambda: {"value": _unequal()},
}
"""Values that have no form in JSON."""

WRITABLE: Mapping[str, tuple[Callable[[], Any], Any]] = {
    "nan": (lambda: {"number": float("nan")}, {"number": None}),
    "infinity": (lambda: {"number": float("-inf")}, {"number": None}),
    "large": (lambda: {"number": 10**100}, {"number": 10**100}),
    "nul": (lambda: {"text": "a\0b"}, {"text": "a\0b"}),
    "astral": (lambda: {"text": "\U0001f600"}, {"text": "\U0001f600"}),
    "tuple_key": (lambda: {(1, 2): 3}, {"1,2": 3}),
}
"""Values that JSON has a form for, if an unusual one."""


def value_of(kind: str) -> Any:
    """Return a value of a kind."""
    return UNWRITABLE[kind]() if kind in UNWRITABLE else WRITABLE[kind][0]()


def text_of(kind: str) -> str:
    """Return a text which contains the value, if there is one."""
    return LONE if kind in UNWRITABLE else "a\0b \U0001f600"


def build(store: Any = None, *, task: Any = "forbidden") -> tuple[Server, Counter[str]]:
    """Return the server, and how often each function has run."""
    server, runs = Server("unwritable", store=store), Counter[str]()

    @server.tool
    async def healthy() -> str:
        return "fine"

    @server.tool(task=task)
    async def returned(kind: str) -> Any:
        runs["returned"] += 1
        return value_of(kind)

    @server.tool(task=task)
    async def declared(kind: str) -> dict[str, Any]:
        runs["declared"] += 1
        found = value_of(kind)
        return found if isinstance(found, dict) else {"found": found}

    @server.tool(task=task)
    async def given(kind: str) -> Result:
        runs["given"] += 1
        return Result("text", data=value_of(kind), meta={"value": value_of(kind)})

    @server.tool(task=task)
    async def emitted(ctx: Context, kind: str) -> str:
        runs["emitted"] += 1
        await ctx.emit("before")
        await ctx.emit(Text(text_of(kind)))
        await ctx.emit("after")
        return "done"

    @server.tool(task=task)
    async def yielded(kind: str) -> AsyncIterator[Any]:
        runs["yielded"] += 1
        yield "before"
        yield value_of(kind)

    @server.tool(task=task)
    async def block(kind: str) -> Any:
        runs["block"] += 1
        return {"type": "text", "text": "a", "_meta": {"value": value_of(kind)}}

    @server.tool(task=task)
    async def failure(kind: str) -> str:
        runs["failure"] += 1
        raise Failure(text_of(kind), data={"value": value_of(kind)})

    @server.tool(task=task)
    async def refusal(kind: str) -> str:
        runs["refusal"] += 1
        raise InvalidParams(text_of(kind), data={"value": value_of(kind)})

    async def work(kind: str) -> Any:
        return value_of(kind)

    @server.tool(task=task)
    async def stepped(ctx: Context, kind: str) -> str:
        runs["stepped"] += 1
        await ctx.step(work, kind)
        return "done"

    @server.tool(task=task)
    async def asked(ctx: Context, kind: str) -> str:
        runs["asked"] += 1
        return await ctx.elicit(text_of(kind), str, key="q")

    @server.tool(task=task)
    async def asked_schema(ctx: Context, kind: str) -> str:
        runs["asked_schema"] += 1
        field = {"type": "string", "title": text_of(kind)}
        return str(await ctx.elicit("q", {"type": "object", "properties": {"a": field}}, key="q"))

    @server.tool(task=task)
    async def sampled(ctx: Context, kind: str) -> str:
        runs["sampled"] += 1
        return (await ctx.sample("q", metadata={"value": value_of(kind)})).text

    @server.tool(task=task)
    async def returned_question(ctx: Context, kind: str) -> Any:
        runs["returned_question"] += 1
        return InputRequired({"q": Elicit("q", {"type": "object", "properties": {}})}, state=value_of(kind))

    @server.tool(task=task)
    async def artifact(kind: str) -> Any:
        runs["artifact"] += 1
        return Artifact(value_of(kind))

    @server.tool(task=task)
    async def progress(ctx: Context, kind: str) -> str:
        runs["progress"] += 1
        await ctx.progress(1, message=text_of(kind))
        return "done"

    @server.tool(task=task)
    async def logged(ctx: Context, kind: str) -> str:
        runs["logged"] += 1
        await ctx.error(value_of(kind))
        await ctx.error({"value": value_of(kind)}, logger=text_of(kind))
        return "done"

    @server.prompt
    async def prompt(kind: str) -> list[PromptMessage]:
        return [PromptMessage("user", Text(text_of(kind)))]

    @server.resource("u://text/{kind}")
    async def text(kind: str) -> TextContents:
        return TextContents("u://text", text_of(kind))

    @server.resource("u://data/{kind}")
    async def data(kind: str) -> Any:
        return value_of(kind)

    @server.completion("prompt", "kind")
    async def complete(value: str) -> Completion:
        return Completion((text_of(value),))

    return server, runs
