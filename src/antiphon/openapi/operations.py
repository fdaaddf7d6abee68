"""Finds the operations of a document, and chooses among them by the filters of the author.

It must not know schemas or HTTP clients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from antiphon.errors import DefinitionError
from antiphon.openapi.document import Document
from antiphon.openapi.options import ChooseOperations, Operation, OperationFilter
from antiphon.printable import printable

__all__ = ["MAX_OPERATIONS", "FoundOperation", "chosen", "find_operations", "label_of"]

MAX_OPERATIONS = 5000
"""How many operations of a document one server offers."""
_METHODS = ("get", "put", "post", "delete", "patch", "query")
"""The methods of operations. HEAD, OPTIONS and TRACE answer nothing that a model can use."""
_MAX_NAMED = 20


@dataclass(frozen=True, slots=True)
class FoundOperation:
    """An operation, and where the document has it."""

    operation: Operation
    raw: Mapping[str, Any]
    item: Mapping[str, Any]
    """The path item, whose parameters and servers hold for all operations of the path."""


def label_of(operation: Operation) -> str:
    """Return the method and the path of an operation, for messages."""
    return f"{operation.method} {printable(operation.path, 200)}"


def find_operations(document: Document) -> list[FoundOperation]:
    """Return all operations of a document, in its order; raises `DefinitionError`."""
    paths = document.root.get("paths")
    if not isinstance(paths, Mapping):
        raise DefinitionError("The document has no paths, so that it describes no operation.")
    found = []
    for path, value in paths.items():
        if not isinstance(path, str) or not path.startswith("/"):
            continue  # an extension such as x-…
        try:
            item = document.resolve(value)
        except DefinitionError as error:
            raise DefinitionError(f"The path {printable(path, 200)!r}: {error}.") from None
        for method, raw in item.items():
            if method in _METHODS and isinstance(raw, Mapping):
                found.append(FoundOperation(_operation(method, path, raw), raw, item))
    return found


def _operation(method: str, path: str, raw: Mapping[str, Any]) -> Operation:
    operation_id, tags = raw.get("operationId"), raw.get("tags")
    return Operation(
        method=method.upper(),
        path=path,
        operation_id=operation_id if isinstance(operation_id, str) and operation_id else None,
        tags=tuple(tag for tag in tags if isinstance(tag, str)) if isinstance(tags, list) else (),
        deprecated=raw.get("deprecated") is True,
    )


def chosen(
    option: str, choice: ChooseOperations | None, operations: Sequence[Operation], *, otherwise: bool
) -> set[Operation]:
    """Return the operations that a filter chooses; all or none without a filter.

    Raises `DefinitionError` for a filter that is invalid or chooses nothing, which is a mistake.
    """
    if choice is None:
        return set(operations) if otherwise else set()
    if callable(choice):
        return {each for each in operations if choice(each)}
    filters = [choice] if isinstance(choice, Mapping) else choice
    if isinstance(filters, str) or not isinstance(filters, Sequence):
        raise DefinitionError(
            f'{option}={choice!r} is not a filter. Write {option}={{"tags": ["…"]}}, with the keys '
            f"{', '.join(OperationFilter.__annotations__)}; or pass a function."
        )
    found: set[Operation] = set()
    for each in filters:
        fits = _matcher(option, each)
        matched = {operation for operation in operations if fits(operation)}
        if not matched:
            raise DefinitionError(
                f"{option}={each!r} fits no operation of the document.{_hint(each, operations)}"
            )
        found |= matched
    return found


def _matcher(option: str, filter: OperationFilter) -> Callable[[Operation], bool]:
    """Return a function that tells whether an operation fits a filter; raises `DefinitionError`."""
    values: dict[str, list[str]] = {}
    for key, given in filter.items() if isinstance(filter, Mapping) else ((None, filter),):
        if key not in OperationFilter.__annotations__:
            raise DefinitionError(
                f"{option}: a filter has no key {key!r}. The keys are "
                f"{', '.join(OperationFilter.__annotations__)}."
            )
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise DefinitionError(f'{option}: the value of {key!r} is a list: write {{{key!r}: ["…"]}}.')
        values[str(key)] = [str(value) for value in given]
    tags, paths, ids = values.get("tags"), values.get("paths"), values.get("operation_ids")
    methods = None if "methods" not in values else {method.upper() for method in values["methods"]}

    def fits(operation: Operation) -> bool:
        return (
            (tags is None or any(tag in tags for tag in operation.tags))
            and (methods is None or operation.method in methods)
            and (paths is None or any(fnmatchcase(operation.path, pattern) for pattern in paths))
            and (ids is None or any(fnmatchcase(operation.operation_id or "", pattern) for pattern in ids))
        )

    return fits


def _hint(filter: OperationFilter, operations: Iterable[Operation]) -> str:
    """Return the tags of a document for a filter that names others, as a sentence."""
    tags = list(dict.fromkeys(tag for each in operations for tag in each.tags))
    if "tags" not in filter or not tags:
        return ""
    more = ", …" if len(tags) > _MAX_NAMED else ""
    return f" Its tags are: {', '.join(printable(tag, 60) for tag in tags[:_MAX_NAMED])}{more}."
