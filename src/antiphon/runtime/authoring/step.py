"""Steps: functions whose results the journal records, so that each runs once.

Owns how the result of a step becomes JSON and is read back. It must not know the journal.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
import pydantic

from antiphon.errors import DefinitionError
from antiphon.runtime.authoring.signature import name_of, underlying_function
from antiphon.runtime.authoring.typed_dicts import adapt_typed_dicts
from antiphon.runtime.execution.executor import ThreadExecutor
from antiphon.runtime.writable import without_non_finite

__all__ = ["Step", "of"]

_encode = msgspec.json.Encoder().encode
_PLAIN_TYPES = (str, int, bool)
"""The types of results that JSON has as they are. A `float` may be infinite."""
_MAX_CACHED_STEPS = 4096
"""How many functions have their steps cached."""


class Step:
    """A function, with a converter between its results and JSON."""

    __slots__ = ("_dump", "_function", "_is_async", "_load", "_plain", "name")

    def __init__(self, function: Callable[..., Any]) -> None:
        if not callable(function):
            _close(function)
            raise DefinitionError(
                f"ctx.step takes a function and its arguments, and got a {type(function).__name__}: "
                "write await ctx.step(work, 1) in place of await ctx.step(work(1))."
            )
        self.name = name_of(function)
        self._function = function
        self._is_async = inspect.iscoroutinefunction(underlying_function(function))
        returns = _returns(function)
        adapter: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(returns)
        self._dump = adapter.serializer.to_python
        self._load = adapter.validator.validate_python
        # A result of exactly this type is the same in JSON, so it is neither converted nor validated.
        self._plain = returns if returns in _PLAIN_TYPES else None

    def check_key(self, key: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Raise `DefinitionError` for a key that is no text, or that may be meant for the function."""
        if not isinstance(key, str) or not key:
            raise DefinitionError(f"The key of the step {self.name!r} must be a text, and is {key!r}.")
        try:
            signature = inspect.signature(self._function)
        except ValueError:  # some functions written in C have none
            return
        if "key" in signature.parameters and "key" not in signature.bind_partial(*args, **kwargs).arguments:
            raise DefinitionError(
                f"The function {self.name!r} has a parameter 'key', and ctx.step has one too: to pass both, "
                "bind the one of the function with functools.partial."
            )

    def check_retry(self, retry: Any) -> None:
        """Raise `DefinitionError` for a `retry` that is no `Retry`: it may be meant for the function."""
        if not hasattr(retry, "delay"):
            raise DefinitionError(
                f"ctx.step(…, retry=) takes a Retry, and got {retry!r}. To pass a parameter 'retry' to the "
                f"function {self.name!r}, bind it with functools.partial."
            )

    def work(
        self, threads: ThreadExecutor, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Callable[[], Awaitable[Any]]:
        """Return a function that runs the step with these arguments."""
        bound = functools.partial(self._function, *args, **kwargs)
        return bound if self._is_async else lambda: threads.run(bound, {})

    def dump(self, value: Any) -> Any:
        """Return a result as JSON; raises `DefinitionError` if JSON cannot represent it."""
        try:
            if type(value) is self._plain:
                _encode(value)  # raises for a text that is not UTF-8
                return value
            data = self._dump(value, mode="json", by_alias=True, warnings="error")
            if b"null" in _encode(data):  # it may stand for NaN
                written = without_non_finite(data)
                if written is not data:
                    self._load(written)
                    return written
            return data
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            raise DefinitionError(
                f"The step {self.name!r} returned {type(value).__name__}, which cannot be written as JSON "
                f"and read back through its return annotation: {str(error).splitlines()[0]}. "
                "Return plain data, or the id of a stored object."
            ) from None

    def load(self, data: Any) -> Any:
        """Return a result read back from JSON; raises what its type raises, which can be anything."""
        return data if type(data) is self._plain else self._load(data)

    def read(self, data: Any) -> Any:
        """Return a result like `load`; raises `DefinitionError` if its type does not take it."""
        try:
            return self.load(data)
        except Exception as error:
            raise DefinitionError(
                f"The result of the step {self.name!r} cannot be read back through its return annotation: "
                f"{str(error).partition(chr(10))[0]}. Return plain data, or the id of a stored object."
            ) from error


@functools.lru_cache(maxsize=_MAX_CACHED_STEPS)
def _cached(function: Callable[..., Any]) -> Step:
    return Step(function)


def of(function: Callable[..., Any]) -> Step:
    """Return the step of a function; steps of module-level functions are cached."""
    if inspect.isfunction(function) and "<lambda>" not in function.__qualname__ and not function.__closure__:
        return _cached(function)
    return Step(function)


def _close(value: Any) -> None:
    if inspect.iscoroutine(value):
        value.close()  # or Python warns about a coroutine that was never awaited, which would mislead


def _returns(function: Callable[..., Any]) -> Any:
    try:
        hints = typing.get_type_hints(underlying_function(function))
    except (NameError, TypeError):
        return Any
    return adapt_typed_dicts(hints.get("return", Any))
