"""URI templates."""

from __future__ import annotations

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
    ("u://{a}", "u://x%2Fy", {"a": "x/y"}),
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


@given(st.text(st.characters(blacklist_categories=["Cs"]), min_size=1))
def test_any_value_that_is_quoted_comes_back(value: str) -> None:
    assert UriTemplate("u://{a}/end").match(f"u://{quote(value, safe='')}/end") == {"a": value}


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
