"""URI templates, against a search through every way in which a short URI can be divided."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal
from urllib.parse import quote, unquote

from hypothesis import assume, given
from hypothesis import strategies as st

from antiphon.runtime.authoring.uri_template import UriTemplate
from tests.fuzz.strategies import near, target

NAMES = ("a", "b", "c")
SEPARATORS = near("/", "-", ".", "x", "//", "u://", "")
PIECES = near("a", "x", "-", ".", "..", "/", "%2f", "%2F", "%5c", "%2e", "%41", "%", "?", "#", "é")
URIS = st.lists(PIECES, max_size=7).map("".join)

Kind = Literal["plain", "exploded", "reserved"]
Part = str | tuple[str, Kind]
"""A literal, or a variable: `{name}` takes one segment, `{name*}` several, and `{+name}` anything."""
WRITTEN = {"plain": "{%s}", "exploded": "{%s*}", "reserved": "{+%s}"}


@st.composite
def templates(draw: Callable[[Any], Any]) -> Sequence[Part]:
    """The parts of a template with up to three variables."""
    parts: list[Part] = [draw(SEPARATORS)]
    for name in NAMES[: draw(st.integers(0, 3))]:
        parts += [(name, draw(near("plain", "plain", "exploded", "reserved"))), draw(SEPARATORS)]
    return parts


def written(parts: Sequence[Part]) -> str:
    """Return the text of a template."""
    return "".join(part if isinstance(part, str) else WRITTEN[part[1]] % part[0] for part in parts)


@target
@given(templates(), URIS)
def test_each_variable_takes_as_much_as_it_can_and_none_leaves_its_place(
    parts: Sequence[Part], uri: str
) -> None:
    ways = list(divisions(parts, uri))
    longest = max(ways, key=lambda way: [len(value) for value in way], default=None)
    expected = None
    if longest is not None:
        variables = [part for part in parts if not isinstance(part, str)]
        values = [unquote(value) for value in longest]
        if all(is_allowed(value, kind) for value, (_, kind) in zip(values, variables, strict=True)):
            expected = dict(zip((name for name, _ in variables), values, strict=True))
    assert UriTemplate(written(parts)).match(uri) == expected, (written(parts), uri, ways)


def divisions(parts: Sequence[Part], uri: str) -> Iterator[tuple[str, ...]]:
    """Yield what the variables stand for, in every way in which a URI fits a template."""
    if not parts:
        if not uri:
            yield ()
        return
    first, rest = parts[0], parts[1:]
    if isinstance(first, str):
        if uri.startswith(first):
            yield from divisions(rest, uri[len(first) :])
        return
    for end in range(1, len(uri) + 1):
        if first[1] == "plain" and uri[end - 1] in "/?#":
            return
        yield from ((uri[:end], *others) for others in divisions(rest, uri[end:]))


def is_allowed(value: str, kind: Kind) -> bool:
    """Return whether a value stays in its place, if an author puts it into the path of a file."""
    segments = value.replace("\\", "/").split("/")
    return kind == "reserved" or (".." not in segments and (kind == "exploded" or len(segments) == 1))


VALUES = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="/.?#\\\0"), min_size=1, max_size=8
)


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
    template: Sequence[Part] = ["", ("a", "plain"), "-", ("b", "plain"), ""]
    assert list(divisions(template, "x-y-z")) == [("x", "y-z"), ("x-y", "z")]
    assert list(divisions([("a", "plain")], "x/y")) == []
    assert list(divisions([("a", "exploded")], "x/y")) == [("x/y",)]
