"""Steps: functions whose results are recorded, so that they are done once."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pydantic

from antiphon.errors import DefinitionError
from antiphon.runtime.authoring.signature import name_of
from antiphon.runtime.authoring.typed_dicts import adapted
from antiphon.runtime.execution.executor import ThreadExecutor

__all__ = ["Step", "of"]


class Step:
    """A function, and how its results are written down and read again."""

    __slots__ = ("_adapter", "_function", "_is_async", "name")

    def __init__(self, function: Callable[..., Any]) -> None:
        if not callable(function):
            _close(function)
            raise DefinitionError(
                f"ctx.step takes a function and what to call it with, and not a {type(function).__name__}: "
                "write await ctx.step(work, 1), and not await ctx.step(work(1))."
            )
        self.name = name_of(function)
        self._function = function
        self._is_async = inspect.iscoroutinefunction(_target(function))
        self._adapter: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(_returns(function))

    def work(
        self, threads: ThreadExecutor, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Callable[[], Awaitable[Any]]:
        """The step, ready to be done."""
        bound = functools.partial(self._function, *args, **kwargs)
        return bound if self._is_async else lambda: threads.run(bound, {})

    def dump(self, value: Any) -> Any:
        """A result as JSON; raises `DefinitionError` if it cannot be written so."""
        try:
            return self._adapter.dump_python(value, mode="json", by_alias=True, warnings="error")
        except (pydantic.ValidationError, ValueError) as error:
            raise DefinitionError(
                f"The step {self.name!r} returned {type(value).__name__}, which cannot be written as JSON "
                f"and read back through its return annotation: {str(error).splitlines()[0]}. "
                "Return plain data, or an id."
            ) from None

    def load(self, data: Any) -> Any:
        """A result read back from JSON."""
        return self._adapter.validate_python(data)


@functools.lru_cache(maxsize=4096)
def _cached(function: Callable[..., Any]) -> Step:
    return Step(function)


def of(function: Callable[..., Any]) -> Step:
    """The step of a function."""
    if inspect.isfunction(function) and "<lambda>" not in function.__qualname__ and not function.__closure__:
        return _cached(function)
    return Step(function)


def _close(value: Any) -> None:
    if inspect.iscoroutine(value):
        value.close()  # or Python complains that nobody awaited it, which is not what is wrong


def _target(function: Callable[..., Any]) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    return function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004


def _returns(function: Callable[..., Any]) -> Any:
    try:
        hints = typing.get_type_hints(_target(function))
    except (NameError, TypeError):
        return Any
    return adapted(hints.get("return", Any))
