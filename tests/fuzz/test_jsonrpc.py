"""The JSON-RPC decoder, against Python's own JSON and the rules of the specification."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import UNSET

from antiphon.errors import InvalidParams, InvalidRequest, ParseError, RequestError
from antiphon.wire import jsonrpc
from tests.fuzz.strategies import JSON_VALUES, damaged, frames, near, target

BODIES = (
    frames().map(lambda frame: json.dumps(frame).encode())
    | JSON_VALUES.map(lambda value: json.dumps(value).encode())
    | damaged(frames().map(lambda frame: json.dumps(frame, ensure_ascii=False).encode()))
    | st.binary(max_size=100)
)
LARGEST_ID = 2**63


@target
@given(BODIES)
@example(b'{"jsonrpc":"2.0","":"\x80"}')
def test_the_decoder_reads_a_message_or_says_which_rule_is_broken(body: bytes) -> None:
    try:
        frame = jsonrpc.decode(body)
    except (ParseError, InvalidRequest, InvalidParams) as error:
        check_refusal(error, body)
        return
    try:
        params = frame.params
    except ParseError:
        assert not is_strict_json(body), body
        return
    if not is_strict_json(body):
        return  # members that nobody reads are skipped, and not checked
    value = json.loads(body)
    assert is_message(value), body
    for name, found in (("method", frame.method), ("id", frame.id), ("params", params)):
        assert found == value.get(name, UNSET)
        assert type(found) is type(value.get(name, UNSET))


def check_refusal(error: RequestError, body: bytes) -> None:
    """Fail if a body is refused that is a message, or under another id than its own."""
    if isinstance(error, ParseError):
        assert error.request_id is None
        assert not is_strict_json(body), body
        return
    value = json.loads(body)
    assert not is_message(value), body
    if error.request_id is not None:
        assert error.request_id == value["id"]
        assert type(error.request_id) is type(value["id"])


def is_strict_json(body: bytes) -> bool:
    """Return whether every reader of JSON agrees that this is JSON, and what it says."""
    try:
        text = body.decode()
        json.loads(text, parse_constant=_refuse, parse_float=_finite, object_pairs_hook=_distinct)
    except (ValueError, RecursionError):
        return False
    return "\\ud" not in text.lower() and not text.startswith("\ufeff")


def _refuse(constant: str) -> Any:
    raise ValueError(constant)


def _finite(number: str) -> float:
    value = float(number)
    if value in (float("inf"), float("-inf")):
        raise ValueError(number)
    return value


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a name stands twice")
    return value


def is_message(value: Any) -> bool:
    """Return whether a JSON value is one JSON-RPC message as MCP allows it."""
    if not isinstance(value, dict) or value.get("jsonrpc") != "2.0":
        return False
    id = value.get("id", UNSET)
    if id is not UNSET and id is not None and type(id) not in (str, int):
        return False
    if type(id) is int and not -LARGEST_ID <= id < LARGEST_ID:
        return False
    if not isinstance(value.get("params", {}), dict):
        return False
    if "method" in value:
        return isinstance(value["method"], str) and id is not None
    if ("result" in value) == ("error" in value):
        return False
    return id is not UNSET or "error" in value


@target
@given(JSON_VALUES | st.lists(near(2**64, -(2**70), 0), max_size=3))
def test_what_the_encoder_writes_is_one_line_that_every_reader_reads_back(value: Any) -> None:
    written = jsonrpc.encode(value)
    assert not set(written) & set(b"\r\n")
    assert json.loads(written) == value
