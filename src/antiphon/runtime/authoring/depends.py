"""`Depends`: marks a parameter that gets the value of another function, and not an argument of the caller.

Owns how the mark is written and found. It must not know how a value is made.
"""

from __future__ import annotations

import sys
import typing
from collections.abc import Callable
from typing import Annotated, Any, get_args, get_origin

import typing_extensions

from antiphon.errors import DefinitionError

__all__ = ["Depends", "Marker", "marked_function", "resolve_alias"]

_OTHER_LIBRARIES = ("fastapi", "fastmcp", "uncalled_for", "docket")
"""The packages whose `Depends` people import by mistake."""
_ALIASES: tuple[Any, ...] = (typing_extensions.TypeAliasType, getattr(typing, "TypeAliasType", ()))
"""The classes of type aliases. They are two in some versions of `typing_extensions`."""


class Marker:
    """The mark of a parameter: the function whose value the parameter gets."""

    __slots__ = ("function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def refusal(self) -> DefinitionError:
        """Return the error for a mark that is inside a type, where callers could pass the value."""
        name = getattr(self.function, "__name__", None) or type(self.function).__name__
        return DefinitionError(
            f"Depends({name}) is inside a type, so callers could pass the value. Only a parameter of a "
            "function can have a Depends: add one to the function."
        )

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> Any:
        # pydantic calls this for each type that has the mark, also for a field of a model that is a field of
        # another model. A type that a function returns may have it: `-> User` next to `user: User`.
        if handler.mode == "validation":
            raise self.refusal()
        return handler(schema)


def Depends(function: Callable[..., Any]) -> Any:
    """Mark a parameter that gets the value of `function`: `db: Annotated[Db, Depends(get_db)]`.

    `db: Db = Depends(get_db)` is the same. The function runs once for each call, before the function that
    depends on it. It may be `async`, and may take a `Context` and other dependencies. If it is a generator or
    a function decorated with `contextmanager` or `asynccontextmanager`, the rest of it runs after the call,
    also if the call failed. Raises `DefinitionError` for a value that cannot be called.
    """
    if not callable(function):
        raise DefinitionError(
            f"Depends({function!r}): this is not a function. Pass the function itself, without calling it."
        )
    return Marker(function)


def marked_function(label: str, parameter: str, hint: Any, default: Any) -> Callable[..., Any] | None:
    """Return the function on which a parameter depends; `None` for an argument of the caller.

    Raises `DefinitionError` for the `Depends` of another library, and for two marks.
    """
    values = (*_metadata(hint), default)
    found = [value.function for value in values if isinstance(value, Marker)]
    if len(found) > 1:
        raise DefinitionError(f"{label}: the parameter {parameter!r} has two Depends. Remove one of them.")
    if found:
        return found[0]
    if _has_marker(hint):  # callers could pass the value of a parameter that is not recognized
        raise DefinitionError(
            f"{label}: the Depends of the parameter {parameter!r} is inside another type. Put it outside: "
            "Annotated[Db | None, Depends(…)]."
        )
    for value in values:
        kind = type(value)
        if "Depend" in kind.__name__ and kind.__module__.partition(".")[0] in _OTHER_LIBRARIES:
            raise DefinitionError(
                f"{label}: the Depends of the parameter {parameter!r} comes from {kind.__module__!r}. "
                "Import it from antiphon: from antiphon import Depends."
            )
    return None


def resolve_alias(hint: Any) -> Any:
    """Return the type that `type User = …`, a `TypeAliasType` or a `NewType` stands for, or the type itself.

    Raises `DefinitionError` for a name in it that cannot be found.
    """
    while True:
        alias = get_origin(hint) or hint  # of a generic alias: User[int]
        if isinstance(alias, _ALIASES):
            hint = _value_of(alias)
        elif isinstance(hint, typing.NewType):
            hint = hint.__supertype__
        else:
            return hint


def _value_of(alias: Any) -> Any:
    """Return the value of a type alias. Names in it that are texts are looked up in the alias's module."""

    def holder() -> None: ...

    names = vars(sys.modules[alias.__module__]) if alias.__module__ in sys.modules else {}
    try:
        holder.__annotations__ = {"value": alias.__value__}  # Python evaluates it now
        return typing.get_type_hints(holder, names, include_extras=True)["value"]
    except (NameError, SyntaxError, TypeError) as error:
        raise DefinitionError(
            f"The type alias {alias.__name__!r} cannot be read: {error}. Define or import its names at the "
            "top of its module."
        ) from None


def _metadata(hint: Any) -> list[Any]:
    """Return what `Annotated` adds to a type, also if it is behind aliases."""
    found: list[Any] = []
    while get_origin(hint := resolve_alias(hint)) is Annotated:
        hint, *metadata = get_args(hint)
        found += metadata
    return found


def _has_marker(hint: Any, seen: tuple[Any, ...] = ()) -> bool:
    """Return whether a type has a mark. `seen` has the types around it: an alias may contain itself."""
    if isinstance(hint, Marker):
        return True
    if any(hint is each for each in seen):
        return False
    parts = (*get_args(hint), *(() if (aliased := resolve_alias(hint)) is hint else (aliased,)))
    return any(_has_marker(each, (*seen, hint)) for each in parts)
