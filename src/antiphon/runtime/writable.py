"""Makes data of authors and callers fit for JSON, for stores and for sealed states.

Owns the bounds: text is UTF-8, numbers are finite, and nothing is nested deeper than every process can read
back. It must not know results, journals or tasks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import pydantic

__all__ = [
    "MAX_NESTING",
    "finite",
    "is_nested_deeply",
    "is_writable",
    "without_non_finite",
    "writable",
    "writable_text",
]

MAX_NESTING = 200
"""How deeply stored data may be nested.

Python bounds the depth of its stack. Data that one process has just managed to write would be too deep for
another one, which reads it in a deeper stack.
"""
_LARGEST_EXACT = 2**53
"""Above this, numbers are converted to floating-point numbers."""
_MAX_LOSSY_LEVELS = 3
"""Down to which level single values are replaced, and not the mapping that contains them."""

_LEAVES = frozenset((str, int, float, bool, type(None)))
"""The types that contain nothing: most values are one of them."""

_MAPPINGS = (dict, Mapping)
"""The types of mappings. An exact `dict` is recognized without a look at the abstract class."""

_any: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(Any)
_encode = msgspec.json.Encoder().encode


def writable_text(text: Any) -> str:
    """Return a text without lone surrogates, which `os.listdir` returns for names that are not UTF-8."""
    return str(text).encode("utf-8", "replace").decode()


def is_writable(value: Any) -> bool:
    """Return whether a value can be written as JSON as it is."""
    try:
        _encode(value)
    except Exception:  # an author's type may raise anything
        return False
    return True


def writable(value: Any, levels: int = _MAX_LOSSY_LEVELS) -> Any:
    """Return a value in types that JSON has. The name of the type replaces a value that has no such form."""
    try:
        data = _any.dump_python(value, mode="json", by_alias=True, fallback=_name)
        _encode(data)
        return data
    except Exception:  # an author's type may raise anything
        if isinstance(value, str):
            return writable_text(value)
    if levels and isinstance(value, Mapping):
        return {_key(key): writable(item, levels - 1) for key, item in value.items()}
    return _name(value)


def finite(number: Any) -> float | None:
    """Return a number of any type, such as `Decimal`, as JSON can have it; `None` if that is not possible."""
    if isinstance(number, int) and abs(number) < _LARGEST_EXACT:
        return int(number)
    try:
        converted = float(number)
    except (OverflowError, TypeError, ValueError):
        return None
    return converted if math.isfinite(converted) else None


def without_non_finite(data: Any) -> Any:
    """Return data with `None` in place of NaN and infinity, as JSON has them; the same object without any."""
    if isinstance(data, float):
        return data if math.isfinite(data) else None
    if isinstance(data, dict):
        changed = {key: without_non_finite(value) for key, value in data.items()}
        return data if all(changed[key] is data[key] for key in data) else changed
    if isinstance(data, list | tuple):
        items = [without_non_finite(value) for value in data]
        return data if all(new is old for new, old in zip(items, data, strict=True)) else items
    return data


def is_nested_deeply(value: Any) -> bool:
    """Return whether data in types of JSON is nested deeper than `MAX_NESTING`; it must not be recursive."""
    level = [value]
    for _ in range(MAX_NESTING + 1):
        level = [item for value in level if type(value) not in _LEAVES for item in _items(value)]
        if not level:
            return False
    return True


def _items(value: Any) -> Iterable[Any]:
    if isinstance(value, _MAPPINGS):
        return value.values()
    return value if isinstance(value, list | tuple) else ()


def _name(value: Any) -> str:
    return f"<{type(value).__name__}>"


def _key(key: Any) -> str:
    try:
        return writable_text(key)
    except Exception:  # an author's type may raise anything
        return _name(key)
