"""The names of tools and of their arguments, made from those of an OpenAPI document.

Models and hosts take letters, digits, hyphens and underscores. The names of tools depend on the whole
document and not on the filters, so that a filter does not change them.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from antiphon.errors import DefinitionError
from antiphon.gateway.names import MAX_NAME_CHARACTERS, shortened
from antiphon.openapi.options import Operation
from antiphon.printable import printable

__all__ = ["argument_name", "numbered", "slug", "tool_names"]

_MAX_ARGUMENT_CHARACTERS = 64
_UNFIT = re.compile(r"[^A-Za-z0-9_-]+")
_NOT_A_WORD = re.compile(r"\W")
_NAME = re.compile(rf"[A-Za-z0-9_-]{{1,{MAX_NAME_CHARACTERS}}}")


def tool_names(operations: Sequence[Operation], chosen: Mapping[str, str]) -> dict[Operation, str]:
    """Return the names of the tools of all operations of a document.

    `chosen` has the names that the author wants, by `operationId`. Operations whose names would be the same
    get a digest of the method and the path. Raises `DefinitionError`.
    """
    ids = {each.operation_id for each in operations}
    for operation_id, name in chosen.items():
        if operation_id not in ids:
            raise DefinitionError(
                f"names: the document has no operationId {printable(str(operation_id), 100)!r}."
            )
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise DefinitionError(
                f"names: {printable(str(name), 100)!r} is not a name for a tool. "
                f"Use 1 to {MAX_NAME_CHARACTERS} letters, digits, hyphens and underscores."
            )
    functions = [_function_of(each) for each in operations]
    times = Counter(functions)
    named: dict[Operation, str] = {}
    for each, function in zip(operations, functions, strict=True):
        own = function if function is not None and times[function] == 1 else each.operation_id
        name = slug(own or f"{each.method.lower()} {each.path}") or f"operation_{_digest(each)}"
        named[each] = chosen.get(each.operation_id or "") or shortened(name, own or name)
    taken = Counter(named.values())
    return {
        each: name
        if taken[name] == 1 or each.operation_id in chosen
        else f"{name[: MAX_NAME_CHARACTERS - 9]}_{_digest(each)}"
        for each, name in named.items()
    }


def argument_name(name: str, place: str, taken: Collection[str], numbers: dict[str, int]) -> str:
    """Return the name of an argument, different from the names that are taken.

    An input whose name is taken gets its place as a suffix, such as `id_body`. `numbers` has the last number
    of each such name.
    """
    base = _UNFIT.sub("_", name)[:_MAX_ARGUMENT_CHARACTERS] or "value"
    if base not in taken:
        return base
    base = f"{base[: _MAX_ARGUMENT_CHARACTERS - 12]}_{place}"
    return numbered(base, taken, numbers)


def numbered(base: str, taken: Collection[str], numbers: dict[str, int]) -> str:
    """Return a name that is not taken: with the next number, if the name itself is taken."""
    found, number = base, numbers.get(base, 1)
    while found in taken:
        number += 1
        found = f"{base}_{number}"
    numbers[base] = number
    return found


def slug(text: str) -> str:
    """Return a text in the characters that names have; empty if it has none of them."""
    return _UNFIT.sub("_", text).strip("_")


def _function_of(operation: Operation) -> str | None:
    """Return the name of the function in an `operationId` that FastAPI made, or `None`.

    FastAPI appends the path and the method: `read_item_items__item_id__get`.
    """
    if operation.operation_id is None:
        return None
    suffix = f"{_NOT_A_WORD.sub('_', operation.path)}_{operation.method.lower()}"
    name = operation.operation_id.removesuffix(suffix)
    return name if name and name != operation.operation_id else None


def _digest(operation: Operation) -> str:
    return hashlib.sha256(f"{operation.method} {operation.path}".encode(errors="replace")).hexdigest()[:8]
