"""Converts `typing.TypedDict` classes, so that authors can use them on every Python version.

Before Python 3.12, pydantic accepts only the TypedDict of `typing_extensions`.
"""

from __future__ import annotations

import sys
import types
import typing
from typing import Any, Union, get_args, get_origin

import typing_extensions

__all__ = ["adapt_typed_dicts"]

_converted: dict[type, Any] = {}


def adapt_typed_dicts(hint: Any) -> Any:
    """Return an annotation in which every TypedDict is one that pydantic accepts."""
    if sys.version_info >= (3, 12):
        return hint
    if typing.is_typeddict(hint):
        return _typed_dict(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is None or not arguments:
        return hint
    changed = tuple(adapt_typed_dicts(argument) for argument in arguments)
    if all(new is old for new, old in zip(changed, arguments, strict=True)):
        return hint
    if origin in (Union, types.UnionType):
        return Union[changed]  # noqa: UP007
    if origin is typing.Annotated:
        return typing.Annotated[(changed[0], *hint.__metadata__)]
    return hint.copy_with(changed) if hasattr(hint, "copy_with") else origin[changed]


def _typed_dict(kind: Any) -> Any:
    if not type(kind).__module__.startswith("typing") or type(kind).__module__ == "typing_extensions":
        return kind
    if kind not in _converted:
        hints = typing.get_type_hints(kind, include_extras=True)
        fields = {
            name: typing_extensions.Required[adapt_typed_dicts(hint)]
            if name in kind.__required_keys__
            else typing_extensions.NotRequired[adapt_typed_dicts(hint)]
            for name, hint in ((name, _without_requirement(hint)) for name, hint in hints.items())
        }
        make: Any = typing_extensions.TypedDict
        _converted[kind] = make(kind.__name__, fields)
        _converted[kind].__doc__ = kind.__doc__
    return _converted[kind]


def _without_requirement(hint: Any) -> Any:
    """Return a field's type without `Required` or `NotRequired`."""
    required = (
        typing.Required,
        typing.NotRequired,
        typing_extensions.Required,
        typing_extensions.NotRequired,
    )
    return get_args(hint)[0] if get_origin(hint) in required else hint
