"""The types of the public API as a type checker sees them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pydantic
import pytest
from typing_extensions import TypedDict  # the one of typing has what pydantic needs from 3.12 on

from antiphon import Client, Context, Server

SNIPPET = """
from dataclasses import dataclass
from typing import Annotated, Any, assert_type

from antiphon import Context, Depends

@dataclass
class State:
    shelf: dict[str, int]

def get_shelf(ctx: Context[State]) -> dict[str, int]:
    return ctx.lifespan.shelf

async def find(title: str, ctx: Context[State]) -> int:
    assert_type(ctx.lifespan, State)
    return ctx.lifespan.shelf[title]

async def untyped(ctx: Context, shelf: dict[str, int] = Depends(get_shelf)) -> Any:
    assert_type(ctx.lifespan, Any)
    return ctx.lifespan["anything"]

async def annotated(shelf: Annotated[dict[str, int], Depends(get_shelf)]) -> int:
    return len(shelf)

async def wrong(ctx: Context[State]) -> str:
    return ctx.lifespan.shelves
"""
MODULES = (
    "__init__",
    "runtime/authoring/depends",
    "runtime/execution/call_context",
    "runtime/execution/context",
    "runtime/execution/waiting_context",
)
"""The modules that decide the types. Checking all others would take half a minute."""


def test_a_type_checker_knows_the_type_of_the_lifespan(tmp_path: Path) -> None:
    package = Path(sys.modules["antiphon"].__file__ or "").parent
    snippet = tmp_path / "snippet.py"
    snippet.write_text(SNIPPET)
    checked = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--config-file=", "--cache-dir", str(tmp_path / "cache")),
            *("--follow-imports=skip", "--ignore-missing-imports", "--disallow-any-generics"),
            *(str(package / f"{module}.py") for module in MODULES),
            str(snippet),
        ],
        cwd=package.parent,
        capture_output=True,
        text=True,
        timeout=120,
    )
    problems = [line for line in checked.stdout.splitlines() if "snippet.py" in line]
    assert len(problems) == 1, checked.stdout + checked.stderr
    assert '"State" has no attribute "shelves"' in problems[0]


class Shelf(pydantic.BaseModel):
    books: int = 3


class Shop(TypedDict):
    items: int


@pytest.mark.parametrize(("state", "text"), [(Shelf(), "3"), (Shop(items=3), "3")])
async def test_a_context_with_a_type_is_the_context(state: Shelf | Shop, text: str) -> None:
    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[Shelf | Shop]:
        yield state

    server = Server("tests", lifespan=lifespan)

    async def of_shelf(ctx: Context[Shelf]) -> str:
        return str(ctx.lifespan.books)

    async def of_shop(ctx: Context[Shop] | None = None) -> str:
        assert ctx is not None
        return str(ctx.lifespan["items"])

    server.add_tool(of_shelf if isinstance(state, Shelf) else of_shop, name="count")
    async with Client(server) as client:
        assert (await client.tools())[0].input_schema["properties"] == {}
        assert (await client.call("count")).text == text
