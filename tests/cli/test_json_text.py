"""A server is added to the text of a JSON file, and everything else in it stays as it was."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.cli.hosts.json_text import put_server, read_object

ENTRY: dict[str, Any] = {"command": "python", "args": ["é"]}
INDENTED = """{
    "theme": "dark",
    "mcpServers": {
        "other": {"command": "x"}
    },
    "last": [1, 2]
}
"""


def test_a_new_entry_follows_the_others_in_the_layout_of_the_file() -> None:
    assert put_server(INDENTED, "mcpServers", "shop", ENTRY) == INDENTED.replace(
        '"other": {"command": "x"}\n',
        '"other": {"command": "x"},\n'
        '        "shop": {\n'
        '            "command": "python",\n'
        '            "args": [\n'
        '                "é"\n'
        "            ]\n"
        "        }\n",
    )


def test_an_entry_is_replaced_where_it_is() -> None:
    expected = INDENTED.replace('{"command": "x"}', '{\n            "command": "y"\n        }')
    assert put_server(INDENTED, "mcpServers", "other", {"command": "y"}) == expected


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", '{\n  "s": {\n    "n": {}\n  }\n}\n'),
        (" {} ", '{\n  "s": {\n    "n": {}\n  }\n}\n'),
        ('{"a": 1}', '{"a": 1, "s": {"n": {}}}'),
        ('{"s":{}}', '{"s":{"n": {}}}'),
        ('{"s":{"m":0}, "b":2}', '{"s":{"m":0, "n": {}}, "b":2}'),
        ('{\n\t"a": 1\n}\n', '{\n\t"a": 1,\n\t"s": {\n\t\t"n": {}\n\t}\n}\n'),
        ('{\r\n  "s": {}\r\n}', '{\r\n  "s": {\r\n    "n": {}\r\n  }\r\n}'),
        ('{\n  "s": {"n": 1},\n  "s": {\n  }\n}', '{\n  "s": {"n": 1},\n  "s": {\n    "n": {}\n  }\n}'),
    ],
)
def test_every_layout_is_kept(before: str, after: str) -> None:
    assert put_server(before, "s", "n", {}) == after


KEYS = st.text(max_size=4) | st.sampled_from(["s", "n", '"', "\\", "}"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=40)
@given(
    st.dictionaries(KEYS, VALUES, max_size=4),
    st.none() | st.dictionaries(KEYS, VALUES, max_size=3),
    st.sampled_from([None, 1, "\t"]),
    KEYS,
)
def test_any_file_reads_as_before_with_the_entry_added(
    others: dict[str, Any], servers: dict[str, Any] | None, indent: Any, name: str
) -> None:
    whole = {**others, "s": servers} if servers is not None else {k: v for k, v in others.items() if k != "s"}
    text = json.dumps(whole, indent=indent)
    written = read_object(put_server(text, "s", name, ENTRY))
    assert written == {**whole, "s": {**(servers or {}), name: ENTRY}}
    assert list(written) == list(dict.fromkeys([*whole, "s"]))


@pytest.mark.parametrize("text", ["[]", "1", "{", '{"a": NaN}', '{"a": 1,}', "// no\n{}"])
def test_what_is_not_a_json_object_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        read_object(text)
