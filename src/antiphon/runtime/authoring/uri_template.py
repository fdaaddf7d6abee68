"""URI templates: matches URIs and returns the values of the variables.

Supports the part of RFC 6570 that servers use: `{name}` matches up to a slash, `{+name}` and `{name*}` match
slashes too, and `{?a,b}` matches optional query parameters. If a URI can be divided in several ways, each
variable takes as much as it can, from left to right. Matching takes time in proportion to the length.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote

from antiphon.errors import DefinitionError

__all__ = ["MAX_URI_CHARACTERS", "PrefixTemplate", "UriTemplate"]

MAX_URI_CHARACTERS = 8192
"""The longest URI that a template matches."""

_EXPRESSION = re.compile(r"\{([+?]?)([^{}]*)\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\*?)\Z")
_STOP = re.compile(r"[/?#]")
"""The characters that a plain variable does not match."""
_STEPS = re.compile(r"[/\\]")
"""The characters that separate the parts of a path, on any system."""


class _Variable(NamedTuple):
    """A variable of the path of a template."""

    name: str
    takes_slashes: bool
    """Whether the value may have several parts, separated by slashes."""
    takes_parents: bool
    """Whether the value may have `..` as a part: the author checks the path."""


class UriTemplate:
    """A URI template with its variables."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.names: tuple[str, ...] = ()
        self.optional: frozenset[str] = frozenset()
        # The literals around the variables: one more than there are variables.
        self._literals = [""]
        self._variables: list[_Variable] = []
        position = 0
        for match in _EXPRESSION.finditer(text):
            self._literals[-1] += text[position : match.start()]
            self._add_expression(match[1], match[2])
            position = match.end()
        self._literals[-1] += text[position:]
        if "{" in re.sub(_EXPRESSION, "", text):
            raise DefinitionError(f"The URI template {text!r} has an unclosed brace: write {{name}}.")

    @staticmethod
    def is_template(text: str) -> bool:
        """Return whether a URI has variables."""
        return "{" in text

    def match(self, uri: str) -> dict[str, str] | None:
        """Return the values of the variables, or `None` if the URI does not match.

        A plain variable matches no encoded slash, no backslash and no `..`: with them, the value would leave
        its place in a path. `{name*}` and query parameters may have slashes, and `{+name}` may have `..` too.
        """
        if len(uri) > MAX_URI_CHARACTERS:
            return None
        path, _, query = uri.partition("?") if self.optional else (uri, "", "")
        values = self._divide(path)
        if values is None:
            return None
        found: dict[str, str] = {}
        for variable, raw in zip(self._variables, values, strict=True):
            value = unquote(raw)
            if not _is_allowed(value, variable):
                return None
            found[variable.name] = value
        for name, value in parse_qsl(query) if query else ():
            if name in self.optional:
                if not _is_allowed(value, _Variable(name, takes_slashes=True, takes_parents=False)):
                    return None
                found[name] = value
        return found

    def _add_expression(self, operator: str, body: str) -> None:
        if operator == "?":
            names = [self._name(name.strip())[0] for name in body.split(",")]
            self.optional |= frozenset(names)
            return
        name, star = self._name(body.strip())
        self._variables.append(_Variable(name, operator == "+" or star, operator == "+"))
        self._literals.append("")

    def _name(self, text: str) -> tuple[str, bool]:
        match = _NAME.match(text)
        name = text.removesuffix("*")
        if match is None or name in self.names:
            raise DefinitionError(
                f"The URI template {self.text!r} has an invalid or repeated variable {text!r}."
            )
        self.names = (*self.names, name)
        return name, bool(match[1])

    # Matching

    def _divide(self, path: str) -> list[str] | None:
        """Return the text of each variable, or `None` if the path does not match."""
        first, last = self._literals[0], self._literals[-1]
        if not self._variables:
            return [] if path == first else None
        if not path.startswith(first) or not path.endswith(last) or len(path) <= len(first) + len(last):
            return None
        stops = [found.start() for found in _STOP.finditer(path)] + [len(path)]
        # From right to left: where each variable may end, so that the rest of the template matches.
        all_ends = [[len(path) - len(last)]]
        for number in range(len(self._variables) - 1, 0, -1):
            places = _occurrences(self._literals[number], path, len(first) + 1)
            ends = list(
                _leading_to(
                    all_ends[-1], places, len(self._literals[number]), self._stops(number, stops, path)
                )
            )
            if not ends:
                return None
            all_ends.append(ends)
        # From left to right: each variable takes as much as it can.
        values, start = [], len(first)
        for number, ends in enumerate(reversed(all_ends)):
            bounds = self._stops(number, stops, path)
            furthest = bounds[bisect_right(bounds, start - 1)]
            index = bisect_right(ends, furthest) - 1
            if index < 0 or ends[index] <= start:
                return None
            values.append(path[start : ends[index]])
            start = ends[index] + len(self._literals[number + 1])
        return values

    def _stops(self, number: int, stops: Sequence[int], path: str) -> Sequence[int]:
        """Return the places, in order, at one of which a variable ends at the latest."""
        return (len(path),) if self._variables[number].takes_slashes else stops


class PrefixTemplate:
    """A URI template of another program with expressions that `UriTemplate` does not support.

    It matches every URI that begins like the template, and does not read the variables.
    """

    optional: frozenset[str] = frozenset()

    def __init__(self, text: str) -> None:
        self.text = text
        bodies = (match[2].lstrip("#./;&").split(",") for match in _EXPRESSION.finditer(text))
        self.names = tuple(dict.fromkeys(name.strip().rstrip("*") for body in bodies for name in body))
        self._prefix = text.partition("{")[0]

    def match(self, uri: str) -> dict[str, str] | None:
        """Return no variables, or `None` if the URI does not begin like the template."""
        return {} if uri.startswith(self._prefix) and len(uri) <= MAX_URI_CHARACTERS else None


def _occurrences(literal: str, path: str, start: int) -> Iterator[int]:
    """Yield where a literal occurs, from left to right."""
    if not literal:
        yield from range(start, len(path))
        return
    found = path.find(literal, start)
    while found >= 0:
        yield found
        found = path.find(literal, found + 1)


def _leading_to(
    ends: Sequence[int], places: Iterator[int], length: int, stops: Sequence[int]
) -> Iterator[int]:
    """Yield the places of a literal after which a variable can reach one of its ends.

    All are in order, so each is looked at once.
    """
    end = stop = 0
    for place in places:
        start = place + length
        while end < len(ends) and ends[end] <= start:
            end += 1
        if end == len(ends):
            return
        while stops[stop] < start:
            stop += 1
        if ends[end] <= stops[stop]:
            yield place


def _is_allowed(value: str, variable: _Variable) -> bool:
    if "\0" in value:
        return False
    if variable.takes_parents:
        return True
    parts = _STEPS.split(value)
    return ".." not in parts and (variable.takes_slashes or len(parts) == 1)
