"""Path parameters whose values may contain slashes, and the paths that values must not make.

An ASGI server decodes `%2F` before it chooses the operation, so that a slash in a value may lead to another
one, and so does a value that is a fixed part of another path. It must not know how a request is written.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from antiphon.errors import DefinitionError
from antiphon.openapi.options import Operation
from antiphon.printable import printable

__all__ = ["Segments", "variables_of"]

_VARIABLE = re.compile(r"\{([^{}]+)\}")
_EXTENSION = "x-multi-segment"
"""The extension by which GitHub's document marks such a parameter."""


def variables_of(path: str) -> list[str]:
    """Return the names of the variables in a path."""
    return _VARIABLE.findall(path)


class Segments:
    """Knows which parameters of a document take several segments of the path.

    The author names them, the document marks them, or the routes of a FastAPI app have the converter `path`.
    """

    def __init__(
        self, operations: Sequence[Operation] = (), names: Collection[str] | None = None, app: Any = None
    ) -> None:
        """Raise `DefinitionError` for a name that no path of the document has."""
        if isinstance(names, str) or not all(isinstance(name, str) for name in names or ()):
            raise DefinitionError(
                'multi_segment: pass the names of path parameters, such as multi_segment={"path"}.'
            )
        self._operations = operations
        self._names = frozenset(names or ())
        known = {name for each in operations for name in variables_of(each.path)} if self._names else set()
        for name in sorted(self._names - known):
            raise DefinitionError(
                f"multi_segment: no path of the document has a parameter {printable(name, 100)!r}."
            )
        self._of_app = frozenset(_in_app(app))

    def has(self, path: str, name: str, raw: Mapping[str, Any]) -> bool:
        """Return whether the values of a path parameter may contain slashes."""
        return name in self._names or raw.get(_EXTENSION) is True or (path, name) in self._of_app

    def other_paths(self, operation: Operation, *, takes_slashes: bool) -> tuple[re.Pattern[str], ...]:
        """Return patterns for the paths of other operations that values could make.

        Such a path has a fixed part where this operation has a variable: an API prefers it.
        """
        own = operation.path.split("/")
        found = dict.fromkeys(
            each.path
            for each in self._operations
            if each.method == operation.method and _could_become(own, each.path.split("/"), takes_slashes)
        )
        return tuple(map(_pattern, found))


def _could_become(own: list[str], other: list[str], takes_slashes: bool) -> bool:
    is_longer = len(other) > len(own)
    if len(other) < len(own) or (is_longer and not takes_slashes):
        return False
    is_special = is_longer
    for mine, theirs in zip(own, other, strict=False):
        if "{" in mine:
            if is_longer:  # this value may take all further parts
                return True
            is_special = is_special or "{" not in theirs
        elif mine != theirs and "{" not in theirs:
            return False
    return is_special


def _pattern(path: str) -> re.Pattern[str]:
    return re.compile("[^/]+".join(map(re.escape, _VARIABLE.sub("{}", path).split("{}"))))


def _in_app(app: Any) -> Iterable[tuple[str, str]]:
    """Yield the path and the name of each parameter of a FastAPI app whose converter takes a slash."""
    routes = getattr(app, "routes", ())
    # FastAPI keeps the routers that an app includes, and joins their paths for its document.
    join = getattr(sys.modules.get("fastapi.routing"), "iter_route_contexts", iter)
    for route in join(routes):
        for name, converter in (getattr(route, "param_convertors", None) or {}).items():
            if re.fullmatch(converter.regex, "a/b"):
                yield route.path_format, name
