"""URI templates."""

from __future__ import annotations

import re
import sys
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import DefinitionError
from antiphon.runtime.authoring.uri_template import UriTemplate

MATCHES: list[tuple[str, str, dict[str, str] | None]] = [
    ("u://{a}", "u://x", {"a": "x"}),
    ("u://{a}", "u://x/y", None),
    ("u://{a}", "u://", None),
    ("u://{a}", "v://x", None),
    ("u://{a}", "u://x%20y", {"a": "x y"}),
    ("u://{a}", "u://x%2Fy", None),
    ("u://{a}", "u://x%2fy", None),
    ("u://{a}", "u://x%5Cy", None),
    ("u://{a}", "u://x\\y", None),
    ("u://{a}", "u://..", None),
    ("u://{a}", "u://%2e%2E", None),
    ("u://{a}", "u://x%00", None),
    ("u://{a}", "u://..x", {"a": "..x"}),
    ("u://{a}", "u://%252e%252e", {"a": "%2e%2e"}),
    ("u://{a}/{b}", "u://../x", None),
    ("u://{path*}", "u://a%2Fb", {"path": "a/b"}),
    ("u://{path*}", "u://a/../b", None),
    ("u://{path*}", "u://a%2f%2e%2e", None),
    ("u://{path*}", "u://a\\..\\b", None),
    ("u://{+path}", "u://a%2F../b", {"path": "a/../b"}),
    ("u://{+path}", "u://..%5Cb", {"path": "..\\b"}),
    ("u://{+path}", "u://a%00", None),
    ("u://{+path}", "u://", None),
    ("u://x{?b}", "u://x?b=a/b", {"b": "a/b"}),
    ("u://x{?b}", "u://x?b=a/../b", None),
    ("u://x{?b}", "u://x?b=%00", None),
    ("u://x{?b}", "u://x?c=..", {}),
    ("u://x{?b}", "u://y", None),
    ("u://{+a}-{b}-{+c}", "u://x-y-p/q-r", {"a": "x", "b": "y", "c": "p/q-r"}),
    ("d://{y}-{m}-{d}", "d://1-2-3-4", {"y": "1-2", "m": "3", "d": "4"}),
    ("u://{a}{b}", "u://xyz", {"a": "xy", "b": "z"}),
    ("u://{a}{b}", "u://x", None),
    ("u://{a}", "u://" + "x" * 8188, {"a": "x" * 8188}),
    ("u://{a}", "u://" + "x" * 8189, None),
    ("u://{a}", "u://x?b=1", None),
    ("u://{a}", "u://x\n", {"a": "x\n"}),
    ("u://{a}/data", "u://1/data", {"a": "1"}),
    ("u://{a}/data", "u://1/datas", None),
    ("u://{a}/{b}", "u://1/2", {"a": "1", "b": "2"}),
    ("u://{a}-{b}.txt", "u://1-2.txt", {"a": "1", "b": "2"}),
    ("u://{+path}", "u://a/b/c", {"path": "a/b/c"}),
    ("u://{path*}", "u://a/b/c", {"path": "a/b/c"}),
    ("u://{a}{?b,c}", "u://x", {"a": "x"}),
    ("u://{a}{?b,c}", "u://x?b=1", {"a": "x", "b": "1"}),
    ("u://{a}{?b,c}", "u://x?c=2&b=1&d=3", {"a": "x", "b": "1", "c": "2"}),
    ("u://{a}{?b,c}", "u://x?b=%26", {"a": "x", "b": "&"}),
    ("u://x.y/{a}", "u://xzy/1", None),
    ("u://(x)+/{a}", "u://(x)+/1", {"a": "1"}),
]


@pytest.mark.parametrize(("template", "uri", "expected"), MATCHES)
def test_matching(template: str, uri: str, expected: dict[str, str] | None) -> None:
    assert UriTemplate(template).match(uri) == expected


@given(st.text(st.characters(blacklist_categories=["Cs"]), min_size=1, max_size=500))
def test_any_value_that_is_quoted_comes_back(value: str) -> None:
    uri = f"u://{quote(value, safe='')}/end"
    leaves = value == ".." or bool(set(value) & {"/", "\\"})
    assert UriTemplate("u://{a}/end").match(uri) == (None if leaves or "\0" in value else {"a": value})
    assert UriTemplate("u://{+a}/end").match(uri) == (None if "\0" in value else {"a": value})


LITERALS = st.text(st.sampled_from("ab-/?#"), max_size=2)
VARIABLES = st.sampled_from(["{%s}", "{+%s}", "{%s*}"])


@given(LITERALS, st.lists(st.tuples(VARIABLES, LITERALS), min_size=1, max_size=4), st.data())
def test_a_uri_is_divided_as_a_greedy_pattern_divides_it(
    first: str, rest: list[tuple[str, str]], data: st.DataObject
) -> None:
    text, pattern = first, re.escape(first)
    for number, (variable, literal) in enumerate(rest):
        name = f"v{number}"
        text += variable % name + literal
        pattern += f"(?P<{name}>{'[^/?#]+' if variable == '{%s}' else '.+'})" + re.escape(literal)
    template = UriTemplate(text)
    any_uri = st.text(st.sampled_from("ab-/?#"), max_size=12)
    values = st.lists(st.text(st.sampled_from("ab-/"), min_size=1, max_size=4), min_size=4, max_size=4)
    filled = values.map(
        lambda given: (
            first + "".join(value + literal for value, (_, literal) in zip(given, rest, strict=False))
        )
    )
    uri = data.draw(any_uri | filled)
    expected = re.fullmatch(pattern, uri, re.DOTALL)
    assert template.match(uri) == (None if expected is None else expected.groupdict())


def lines_run(template: UriTemplate, uri: str) -> int:
    """Return how many lines Python runs to match a URI."""
    count = 0

    def trace(frame: Any, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        template.match(uri)
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize(
    ("text", "prefix", "repeated", "end"),
    [
        ("date://{y}-{m}-{d}", "date://", "-", "/"),
        ("date://{y}-{m}-{d}", "date://", "-", ""),
        ("u://{a}{b}{c}{d}", "u://", "x", "/"),
        ("u://{+a}-{b}-{+c}-{d}!", "u://", "-/", "?"),
        ("u://{+a}/{+b}/{+c}/end", "u://", "/", "x"),
        ("u://{a*}aa{b*}aa{c}aa", "u://", "a", "/"),
    ],
)
def test_matching_takes_time_in_proportion_to_the_length(
    text: str, prefix: str, repeated: str, end: str
) -> None:
    template = UriTemplate(text)
    small, large = (lines_run(template, prefix + repeated * size + end) for size in (300, 1200))
    assert large <= 4 * small + 50


@pytest.mark.parametrize(
    "text", ["u://{a", "u://{}", "u://{a b}", "u://{1}", "u://{a}/{a}", "u://{a{b}}", "u://{a-b}"]
)
def test_templates_that_are_none(text: str) -> None:
    with pytest.raises(DefinitionError):
        UriTemplate(text)


def test_which_addresses_are_templates() -> None:
    assert UriTemplate.is_template("u://{a}")
    assert not UriTemplate.is_template("u://a")


def test_names_and_which_may_be_missing() -> None:
    template = UriTemplate("u://{a}{?b,c}")
    assert template.names == ("a", "b", "c")
    assert template.optional == {"b", "c"}
