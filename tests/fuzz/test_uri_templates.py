"""URI templates, against a search through every way in which a short URI can be divided."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from urllib.parse import quote, unquote

from hypothesis import assume, given
from hypothesis import strategies as st

from antiphon.runtime.authoring.uri_template import UriTemplate
from tests.fuzz.strategies import near, target

NAMES = ("a", "b", "c")
SEPARATORS = near("/", "-", ".", "x", "//", "u://", "")
PIECES = near("a", "x", "-", ".", "..", "/", "%2f", "%2F", "%41", "%", "?", "#", "é")
URIS = st.lists(PIECES, max_size=7).map("".join)

Part = str | tuple[str, bool]
"""A literal, or a variable's name and whether it matches slashes."""


@st.composite
def templates(draw: Callable[[Any], Any]) -> Sequence[Part]:
    """The parts of a template with up to three variables."""
    parts: list[Part] = [draw(SEPARATORS)]
    for name in NAMES[: draw(st.integers(0, 3))]:
        parts += [(name, draw(st.booleans())), draw(SEPARATORS)]
    return parts


def written(parts: Sequence[Part]) -> str:
    """Return the text of a template."""
    return "".join(part if isinstance(part, str) else f"{{{'+' * part[1]}{part[0]}}}" for part in parts)


@target
@given(templates(), URIS)
def test_a_match_is_a_way_to_divide_the_uri_and_is_found_if_there_is_one(
    parts: Sequence[Part], uri: str
) -> None:
    found = UriTemplate(written(parts)).match(uri)
    possible = [dict(way) for way in divisions(parts, uri)]
    if found is not None:
        assert found in possible, (written(parts), uri, possible)
    else:
        assert not [way for way in possible if not escapes(parts, way)], (written(parts), uri, possible)


def divisions(parts: Sequence[Part], uri: str) -> Iterator[tuple[tuple[str, str], ...]]:
    """Yield the values of the variables, for every way in which a URI fits a template."""
    if not parts:
        if not uri:
            yield ()
        return
    first, rest = parts[0], parts[1:]
    if isinstance(first, str):
        if uri.startswith(first):
            yield from divisions(rest, uri[len(first) :])
        return
    name, slashes = first
    for end in range(1, len(uri) + 1):
        value = uri[:end]
        if not slashes and value[-1] in "/?#":
            return
        for others in divisions(rest, uri[end:]):
            yield ((name, unquote(value)), *others)


def escapes(parts: Sequence[Part], values: dict[str, str]) -> bool:
    """Return whether a variable that stands for one segment has a value that leaves its segment."""
    segments = [part[0] for part in parts if not isinstance(part, str) and not part[1]]
    return any("/" in values[name] or values[name] in (".", "..") for name in segments)


VALUES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/.?#"), min_size=1, max_size=8)


@target
@given(st.lists(VALUES, min_size=1, max_size=3))
def test_values_that_a_client_encodes_come_back(values: list[str]) -> None:
    template = UriTemplate("u://" + "/".join(f"{{{name}}}" for name in NAMES[: len(values)]))
    uri = "u://" + "/".join(quote(value, safe="") for value in values)
    assert template.match(uri) == dict(zip(NAMES, values, strict=False))


@target
@given(st.permutations(["first", "last", "other"]), VALUES, VALUES)
def test_query_parameters_are_taken_by_name(order: list[str], first: str, last: str) -> None:
    given_ = {"first": first, "last": last, "other": "ignored"}
    uri = "u://x?" + "&".join(f"{name}={quote(given_[name], safe='')}" for name in order)
    assume(first.strip() and last.strip())
    assert UriTemplate("u://{a}{?first,last}").match(uri) == {"a": "x", "first": first, "last": last}


def test_the_search_itself_finds_every_division() -> None:
    ways = list(divisions(["", ("a", False), "-", ("b", False), ""], "x-y-z"))
    assert ways == [(("a", "x"), ("b", "y-z")), (("a", "x-y"), ("b", "z"))]
    assert list(itertools.chain(divisions([("a", False)], "x/y"), divisions([("a", True)], "x/y"))) == [
        (("a", "x/y"),)
    ]
