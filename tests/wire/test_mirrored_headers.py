"""Headers that mirror the body."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import DefinitionError, HeaderMismatch
from antiphon.wire.mirrored_headers import check, declared, decode_value, encode_value, mirror

any_text = st.text(st.characters(blacklist_categories=["Cs"]))


@given(any_text)
def test_any_text_survives_a_header(text: str) -> None:
    encoded = encode_value(text)
    assert encoded.isascii()
    assert encoded.isprintable()
    assert encoded == encoded.strip()
    assert decode_value(encoded) == text


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("us-west1", "us-west1"),
        ("us west 1", "us west 1"),
        ("", ""),
        (42, "42"),
        (-1, "-1"),
        (True, "true"),
        (False, "false"),
        ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
        (" padded ", "=?base64?IHBhZGRlZCA=?="),
        ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
        ("\tindented", "=?base64?CWluZGVudGVk?="),
        ("=?base64?x?=", "=?base64?PT9iYXNlNjQ/eD89?="),
    ],
)
def test_values_are_plain_where_that_is_safe(value: Any, expected: str) -> None:
    assert encode_value(value) == expected


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("  spaced \t", "spaced"),
        ("SGVsbG8=", "SGVsbG8="),
        ("=?base64?SGVsbG8=", "=?base64?SGVsbG8="),
        ("SGVsbG8=?=", "SGVsbG8=?="),
        ("=?base64?SGVsbG8=?=", "Hello"),
        ("=?base64??=", ""),
        ("a\tb", "a\tb"),
    ],
)
def test_values_are_read(raw: str, expected: str) -> None:
    assert decode_value(raw) == expected


@pytest.mark.parametrize(
    "raw",
    [
        "=?base64?SGVsbG8?=",
        "=?base64?SGVs!!!bG8=?=",
        "=?base64?/w==?=",
        "é",
        "a\x01b",
        "a\nb",
        "=?base64?=?=",
    ],
)
def test_values_that_no_client_may_send_are_refused(raw: str) -> None:
    with pytest.raises(HeaderMismatch):
        decode_value(raw)


def schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


REGION = {"type": "string", "x-mcp-header": "Region"}


def test_annotations_are_found_at_any_depth_of_properties() -> None:
    nested = schema(region=REGION, where=schema(zone={"type": "integer", "x-mcp-header": "Zone"}))
    assert declared(nested) == {"mcp-param-region": ("region",), "mcp-param-zone": ("where", "zone")}


def test_a_schema_without_annotations_has_none() -> None:
    assert declared(schema(a={"type": "string"})) == {}


def test_a_property_that_is_called_like_a_keyword_is_a_property() -> None:
    assert declared(schema(properties=REGION)) == {"mcp-param-region": ("properties",)}


def test_examples_and_defaults_are_data_and_not_schema() -> None:
    assert declared(schema(a={"type": "object", "default": {"x-mcp-header": 1}, "examples": [REGION]})) == {}


@pytest.mark.parametrize(
    "bad",
    [
        schema(a={"type": "string", "x-mcp-header": ""}),
        schema(a={"type": "string", "x-mcp-header": None}),
        schema(a={"type": "string", "x-mcp-header": 1}),
        schema(a={"type": "string", "x-mcp-header": "My Field"}),
        schema(a={"type": "string", "x-mcp-header": "My:Field"}),
        schema(a={"type": "string", "x-mcp-header": "Région"}),
        schema(a={"type": "string", "x-mcp-header": "Region\n"}),
        schema(a={"type": "object", "x-mcp-header": "A"}),
        schema(a={"type": "array", "x-mcp-header": "A"}),
        schema(a={"type": "number", "x-mcp-header": "A"}),
        schema(a={"type": "null", "x-mcp-header": "A"}),
        schema(a={"type": ["string", "null"], "x-mcp-header": "A"}),
        schema(a={"x-mcp-header": "A"}),
        schema(a={"type": "string", "x-mcp-header": "A"}, b={"type": "string", "x-mcp-header": "a"}),
        {"anyOf": [schema(a=REGION)]},
        {"$defs": {"X": schema(a=REGION)}},
        schema(a={"type": "array", "items": REGION}),
        {"type": "object", "x-mcp-header": "A"},
        {"type": "object", "if": schema(a=REGION)},
        {"type": "object", "additionalProperties": REGION},
    ],
    ids=repr,
)
def test_annotations_that_the_specification_forbids_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError):
        declared(bad)


MIRRORED = {"mcp-param-region": ("region",), "mcp-param-zone": ("where", "zone")}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, {}),
        ({"region": None}, {}),
        ({"region": "a"}, {"mcp-param-region": "a"}),
        ({"region": ""}, {"mcp-param-region": ""}),
        ({"region": "é"}, {"mcp-param-region": "=?base64?w6k=?="}),
        ({"where": {"zone": 3}}, {"mcp-param-zone": "3"}),
        ({"where": 3}, {}),
        ({"region": True}, {"mcp-param-region": "true"}),
    ],
)
def test_arguments_are_mirrored_and_the_mirror_agrees(
    arguments: dict[str, Any], expected: dict[str, str]
) -> None:
    headers = mirror(MIRRORED, arguments)
    assert headers == expected
    check(MIRRORED, arguments, {name.encode(): value.encode() for name, value in headers.items()})


@pytest.mark.parametrize(
    ("arguments", "header"),
    [
        ({"region": "a"}, None),
        ({"region": "a"}, b"b"),
        ({"region": "a"}, b"A"),
        ({"region": True}, b"True"),
        ({"region": 1}, b"one"),
        ({"region": 1}, b"2"),
        ({"region": 1000}, b"1_000"),
        ({"region": 1}, b"+1"),
        ({"region": 2**53 - 1}, b"9007199254740991.3"),
        ({"region": 2**60}, b"1152921504606846976"),
        ({"region": "a"}, b"=?base64?%?="),
    ],
)
def test_headers_that_disagree_are_refused(arguments: dict[str, Any], header: bytes | None) -> None:
    with pytest.raises(HeaderMismatch):
        check(MIRRORED, arguments, {} if header is None else {b"mcp-param-region": header})


@pytest.mark.parametrize("header", [b"42", b"42.0", b" 42 "])
def test_integers_are_compared_as_numbers(header: bytes) -> None:
    check(MIRRORED, {"region": 42}, {b"mcp-param-region": header})
