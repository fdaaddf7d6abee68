"""Which functions can be dependencies: everything that cannot work is refused when it is registered."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import fastapi
import pytest

from antiphon import Client, Context, DefinitionError, Depends, Server


def fine() -> int:
    return 1


def first(value: Annotated[int, Depends(second)]) -> int:
    return value


def second(value: Annotated[int, Depends(first)]) -> int:
    return value


def itself(value: Annotated[int, Depends(itself)]) -> int:
    return value


def needs_argument(url: str) -> int:
    return 1


def needs_untyped(ctx) -> int:  # type: ignore[no-untyped-def]
    return 1


def star(*values: int) -> int:
    return 1


def positional(value: Annotated[int, Depends(fine)], /) -> int:
    return value


def two_marks(value: Annotated[int, Depends(fine)] = Depends(fine)) -> int:
    return value


def optional(value: Annotated[int, Depends(fine)] | None = None) -> int:
    return value or 0


def of_fastapi(value: Annotated[int, fastapi.Depends(fine)]) -> int:
    return value


@dataclass(eq=True)
class Unhashable:
    def __call__(self) -> int:
        return 1


REFUSED: list[tuple[Callable[..., Any], str]] = [
    (first, r"first: this dependency depends on itself: first -> second -> first\. Remove one"),
    (itself, r"itself: this dependency depends on itself: itself -> itself\."),
    (
        needs_argument,
        r"needs_argument: nothing passes the parameter 'url' of this dependency\. Give it a def",
    ),
    (needs_untyped, r"needs_untyped: the parameter 'ctx' has no annotation"),
    (star, r"star: a dependency cannot have '\*values'"),
    (positional, r"positional: the dependency 'value' cannot be passed by name"),
    (two_marks, r"two_marks: the parameter 'value' has two Depends"),
    (
        of_fastapi,
        r"of_fastapi: the Depends of the parameter 'value' comes from 'fastapi.*from antiphon import",
    ),
    (optional, r"optional: the Depends of the parameter 'value' is inside another type\. Put it outside"),
    (Unhashable(), r"Unhashable: this object has no hash"),
]


@pytest.mark.parametrize(("function", "message"), REFUSED)
def test_a_function_that_cannot_be_a_dependency_is_refused_at_registration(
    function: Callable[..., Any], message: str
) -> None:
    async def use(value: int = Depends(function)) -> int:
        return value

    server = Server("tests")
    with pytest.raises(DefinitionError, match=message):
        server.add_tool(use)
    with pytest.raises(DefinitionError, match=message):
        server.add_prompt(use)
    with pytest.raises(DefinitionError, match=message):
        server.add_resource(use, "data://x")
    with pytest.raises(DefinitionError, match=message):
        server.dependency_overrides[fine] = function
    assert not server.dependency_overrides
    assert not server.tools


def test_a_value_that_is_not_a_function_is_refused() -> None:
    with pytest.raises(
        DefinitionError, match=r"Depends\(1\): this is not a function\. Pass the function itself"
    ):
        Depends(fine())  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match=r"The override of 'fine' is not a function: 2"):
        Server("tests").dependency_overrides[fine] = 2  # type: ignore[assignment]


def test_the_depends_of_fastmcp_is_refused() -> None:
    of_fastmcp = pytest.importorskip("uncalled_for").Depends(fine)

    async def use(value: int = of_fastmcp) -> int:
        return value

    with pytest.raises(
        DefinitionError, match=r"use: the Depends of .* comes from 'uncalled_for.*from antiphon"
    ):
        Server("tests").add_tool(use)


def test_a_variable_of_a_template_is_not_a_dependency() -> None:
    async def read(key: Annotated[int, Depends(fine)]) -> str:
        return str(key)

    with pytest.raises(DefinitionError, match="the function has no parameter of that name"):
        Server("tests").add_resource(read, "data://{key}")


class Repository:
    """A class is a function that makes an object."""

    def __init__(self, number: Annotated[int, Depends(fine)], ctx: Context, table: str = "books") -> None:
        self.text = f"{table} {number} {ctx.principal.id!r}"

    def count(self, factor: Annotated[int, Depends(fine)]) -> int:
        return factor * 7


class Counter:
    async def __call__(self, number: Annotated[int, Depends(fine)]) -> str:
        return f"called {number}"


bound = object.__new__(Repository)


def with_options(number: Annotated[int, Depends(fine)], *, factor: int, **others: int) -> int:
    return number * factor + len(others)


async def test_classes_methods_partials_and_callable_objects_are_functions_too() -> None:
    async def use(
        a: Annotated[Repository, Depends(Repository)],
        b: Annotated[int, Depends(bound.count)],
        c: Annotated[str, Depends(Counter())],
        d: Annotated[int, Depends(functools.partial(with_options, factor=3))],
    ) -> str:
        return f"{a.text} {b} {c} {d}"

    server = Server("tests")
    server.add_tool(use)
    async with Client(server) as client:
        assert (await client.call("use")).text == "books 1 '' 7 called 1 3"
