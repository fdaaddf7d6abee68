"""The functions on which a function depends, and those on which they depend in turn, read at registration.

Owns which functions can be dependencies, and their overrides. It must not know how values are made.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterator, Mapping, MutableMapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

from antiphon.errors import DefinitionError
from antiphon.runtime.authoring.signature import name_of, split_parameters, underlying_function

__all__ = ["Dependency", "DependencyOverrides", "read_dependencies"]


@dataclass(frozen=True, slots=True)
class Dependency:
    """A function whose value other functions get."""

    function: Callable[..., Any]
    make: Callable[..., Any]
    """Returns the value, or an object that is entered for the value and left after the call."""
    is_async: bool
    """Whether `make` returns a coroutine. If not, and if it is no generator, it runs in a thread."""
    is_generator: bool
    """Whether the function is a generator: then `make` only creates it."""
    context: str | None
    """The name of the parameter that gets the `Context`, or `None`."""
    dependencies: Mapping[str, Dependency]
    """What the function itself depends on, by parameter."""


def read_dependencies(
    functions: Mapping[str, Callable[..., Any]], context: type, path: tuple[Callable[..., Any], ...] = ()
) -> Mapping[str, Dependency]:
    """Return the dependencies of a function, by parameter.

    `path` has the functions that lead to it. Raises `DefinitionError` for a function that depends on itself,
    and for a parameter that nothing passes.
    """
    return {name: _read(function, context, path) for name, function in functions.items()}


def _read(function: Callable[..., Any], context: type, path: tuple[Callable[..., Any], ...]) -> Dependency:
    label = name_of(function)
    if not isinstance(function, Hashable):
        raise DefinitionError(
            f"{label}: this object has no hash, so it cannot be a dependency. Use a function."
        )
    if function in path:
        circle = " -> ".join(map(name_of, (*path[path.index(function) :], function)))
        raise DefinitionError(
            f"{label}: this dependency depends on itself: {circle}. Remove one of these Depends."
        )
    parameters = split_parameters(function, context)
    for parameter in parameters.passed:
        if parameter.kind is parameter.VAR_POSITIONAL:
            raise DefinitionError(f"{label}: a dependency cannot have '*{parameter.name}'. Remove it.")
        if parameter.kind is not parameter.VAR_KEYWORD and parameter.default is parameter.empty:
            raise DefinitionError(
                f"{label}: nothing passes the parameter {parameter.name!r} of this dependency. Give it a "
                "default, or annotate it with Context or with Annotated[…, Depends(…)]. The arguments of a "
                "call are for the tool itself."
            )
    target = underlying_function(function)
    make, is_generator = function, True
    if inspect.isasyncgenfunction(target):
        make = asynccontextmanager(function)
    elif inspect.isgeneratorfunction(target):
        make = contextmanager(function)
    else:
        is_generator = False
    return Dependency(
        function,
        make,
        inspect.iscoroutinefunction(target),
        is_generator,
        parameters.context,
        read_dependencies(parameters.dependencies, context, (*path, function)),
    )


class DependencyOverrides(MutableMapping[Callable[..., Any], Callable[..., Any]]):
    """The functions that replace others as dependencies. `found` has them ready to run.

    Setting an item raises `DefinitionError` if the new function cannot be a dependency.
    """

    def __init__(self, context: type) -> None:
        self._context = context
        self.found: dict[Callable[..., Any], Dependency] = {}
        """The dependencies to use, by the functions that they replace."""

    def replace(self, overrides: Mapping[Callable[..., Any], Callable[..., Any]]) -> None:
        """Use these overrides and no others; raises `DefinitionError`, and changes nothing."""
        if not isinstance(overrides, Mapping):
            raise DefinitionError(
                f"dependency_overrides cannot be {overrides!r}. Pass a dictionary: {{get_db: get_fake}}."
            )
        self.found = {function: self._read(function, override) for function, override in overrides.items()}

    def __setitem__(self, function: Callable[..., Any], override: Callable[..., Any]) -> None:
        self.found[function] = self._read(function, override)

    def _read(self, function: Callable[..., Any], override: Callable[..., Any]) -> Dependency:
        if not callable(override):
            raise DefinitionError(
                f"The override of {name_of(function)!r} is not a function: {override!r}. Pass a function "
                "that returns the value."
            )
        return _read(override, self._context, ())

    def __getitem__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return self.found[function].function

    def __delitem__(self, function: Callable[..., Any]) -> None:
        del self.found[function]

    def __iter__(self) -> Iterator[Callable[..., Any]]:
        return iter(self.found)

    def __len__(self) -> int:
        return len(self.found)
