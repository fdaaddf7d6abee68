"""Parsing `key=value` words into the arguments of a tool."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from antiphon.cli.call.arguments import allowed_types, parse_arguments
from antiphon.cli.exit_codes import CommandError

SCHEMA: dict[str, Any] = {
    "type": "object",
    "$defs": {
        "Point": {"type": "object"},
        "Unit": {"enum": ["m", "ft"]},
        "Loop": {"$ref": "#/$defs/Loop"},
        "a/b": {"type": "integer"},
    },
    "properties": {
        "text": {"type": "string"},
        "whole": {"type": "integer"},
        "number": {"type": "number"},
        "flag": {"type": "boolean"},
        "point": {"$ref": "#/$defs/Point"},
        "tags": {"anyOf": [{"type": "array"}, {"type": "null"}]},
        "maybe": {"type": ["string", "null"]},
        "unit": {"$ref": "#/$defs/Unit"},
        "fixed": {"const": 3},
        "both": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
        "anything": {},
        "loop": {"$ref": "#/$defs/Loop"},
        "escaped": {"$ref": "#/$defs/a~1b"},
        "lost": {"$ref": "#/$defs/Nobody"},
        "always": True,
    },
}


@pytest.mark.parametrize(
    ("pair", "value"),
    [
        ("text=42", "42"),
        ("text=true", "true"),
        ("text=a=b", "a=b"),
        ("text=", ""),
        ("whole=-7", -7),
        ("whole=7.0", 7.0),
        ("number=2.5", 2.5),
        ("number=2", 2),
        ("flag=true", True),
        ("flag=False", False),
        ('point={"x": 3}', {"x": 3}),
        ('tags=["a", "b"]', ["a", "b"]),
        ("tags=null", None),
        ("maybe=null", "null"),
        ("maybe:=null", None),
        ('text:="5"', "5"),
        ("unit=ft", "ft"),
        ("fixed=3", 3),
        ("both=3", "3"),
        ("both:=3", 3),
        ("anything=5", 5),
        ("anything=five", "five"),
        ("loop=1", 1),
        ("escaped=1", 1),
        ("lost=x", "x"),
        ("always=x", "x"),
        ("unheard_of=1", 1),
        ("unheard_of=one", "one"),
    ],
)
def test_parses_a_value_by_the_schema(pair: str, value: object) -> None:
    key = pair.partition("=")[0].rstrip(":")
    read = parse_arguments([pair], None, SCHEMA)
    assert read == {key: value}
    assert type(read[key]) is type(value)


@pytest.mark.parametrize(
    ("pairs", "whole", "message"),
    [
        (["whole=x"], None, "Invalid value for whole: 'x' is not of type integer."),
        (["whole=1.5"], None, "Invalid value for whole: '1.5' is not of type integer."),
        (["whole=true"], None, "Invalid value for whole: 'true' is not of type integer."),
        (["flag=1"], None, "Invalid value for flag: '1' is not of type boolean."),
        (["tags=a"], None, "Invalid value for tags: 'a' is not of type array or null."),
        (["text"], None, "'text' is not an argument. Write key=value."),
        (["=x"], None, "'=x' is not an argument. Write key=value."),
        (["text=a", "text=b"], None, "The argument text is given twice."),
        (["text:=a"], None, "text is not valid JSON"),
        (["text=@nothing.txt"], None, "text: cannot read nothing.txt: No such file or directory."),
        ([], "[1]", "--args must be a JSON object"),
        ([], "{", "--args is not valid JSON"),
    ],
)
def test_refuses_invalid_arguments(pairs: list[str], whole: str | None, message: str) -> None:
    with pytest.raises(CommandError) as refused:
        parse_arguments(pairs, whole, SCHEMA)
    assert refused.value.message.startswith(message)
    assert refused.value.code == 2


def test_reads_values_from_files(tmp_path: Path) -> None:
    text, point, raw = tmp_path / "note.txt", tmp_path / "point.json", tmp_path / "raw.bin"
    text.write_text("a\nb", encoding="utf-8")
    point.write_text('{"x": 1}', encoding="utf-8")
    raw.write_bytes(b"\xff\xfe")
    read = parse_arguments([f"text=@{text}", f"point=@{point}", f"anything:=@{point}"], None, SCHEMA)
    assert read == {"text": "a\nb", "point": {"x": 1}, "anything": {"x": 1}}
    with pytest.raises(CommandError, match="it is not UTF-8 text"):
        parse_arguments([f"text=@{raw}"], None, SCHEMA)


def test_a_pair_overrides_the_json_object() -> None:
    read = parse_arguments(["whole=2"], '{"whole": 1, "text": "x"}', SCHEMA)
    assert read == {"whole": 2, "text": "x"}


def test_a_schema_without_types_has_no_allowed_types() -> None:
    assert allowed_types({}, {}) == allowed_types(True, {}) == allowed_types(None, {}) == frozenset()
