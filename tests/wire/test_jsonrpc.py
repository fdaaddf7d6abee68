"""Envelopes: what is one message, what is not, and what is said about it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from antiphon.errors import InvalidParams, InvalidRequest, ParseError, RequestError
from antiphon.wire import jsonrpc

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.parametrize("id", [1, 0, -7, 2**63 - 1, -(2**63), "", "a", "☃"])
def test_a_request_keeps_its_id(id: Any) -> None:
    frame = jsonrpc.decode(json.dumps({"jsonrpc": "2.0", "id": id, "method": "m", "params": {"a": 1}}))
    assert (frame.request_id, frame.method, frame.params) == (id, "m", {"a": 1})


def test_a_request_without_an_id_is_a_notification() -> None:
    frame = jsonrpc.decode(b'{"jsonrpc":"2.0","method":"m"}')
    assert frame.request_id is None
    assert frame.id is UNSET
    assert frame.params is UNSET
    assert frame.meta == {}


def test_unknown_members_of_a_frame_are_ignored() -> None:
    assert jsonrpc.decode(b'{"jsonrpc":"2.0","method":"m","id":1,"more":[1]}').request_id == 1


@pytest.mark.parametrize("params", [{}, {"_meta": None}, {"_meta": 1}, {"_meta": "x"}, {"_meta": []}])
def test_a_meta_that_is_no_object_reads_as_empty(params: dict[str, Any]) -> None:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "m", "params": params})
    assert jsonrpc.decode(body).meta == {}


@pytest.mark.parametrize("member", ["result", "error"])
def test_responses_are_frames_too(member: str) -> None:
    frame = jsonrpc.decode(json.dumps({"jsonrpc": "2.0", "id": 1, member: {"a": 1}}))
    assert frame.method is UNSET
    assert getattr(frame, member) == {"a": 1}


def test_an_error_response_may_have_no_id() -> None:
    assert jsonrpc.decode(b'{"jsonrpc":"2.0","error":{"code":1,"message":""}}').request_id is None


NOT_JSON = [
    b"",
    b" ",
    b"{",
    b'{"jsonrpc":"2.0","method":"m","id":1',
    b'{"jsonrpc":"2.0","method":"m","id":1}}',
    b"{'jsonrpc':'2.0'}",
    b"\xff\xfe",
    b'{"jsonrpc":"2.0","method":"\xff","id":1}',
    b"nonsense",
    b'{"jsonrpc":"2.0","method":"m","id":NaN}',
    b'{"jsonrpc":"2.0","method":"\\ud800","id":1}',
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b'{"jsonrpc":"2.0","method":"m","id":1,"params":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001,
]


@pytest.mark.parametrize("body", NOT_JSON, ids=lambda body: repr(body[:40]))
def test_what_is_not_json_is_a_parse_error(body: bytes) -> None:
    with pytest.raises(ParseError) as caught:
        jsonrpc.decode(body)
    assert caught.value.code == -32700


MALFORMED: list[tuple[Any, type[RequestError], Any]] = [
    ([], InvalidRequest, None),
    ([{"jsonrpc": "2.0", "id": 1, "method": "m"}], InvalidRequest, None),
    (1, InvalidRequest, None),
    ("text", InvalidRequest, None),
    (None, InvalidRequest, None),
    (True, InvalidRequest, None),
    ({}, InvalidRequest, None),
    ({"id": 7}, InvalidRequest, 7),
    ({"jsonrpc": "1.0", "id": 7, "method": "m"}, InvalidRequest, 7),
    ({"jsonrpc": 2.0, "id": "x", "method": "m"}, InvalidRequest, "x"),
    ({"id": 7, "method": "m"}, InvalidRequest, 7),
    ({"jsonrpc": "2.0", "id": 7}, InvalidRequest, 7),
    ({"jsonrpc": "2.0", "id": 7, "result": 1, "error": {}}, InvalidRequest, 7),
    ({"jsonrpc": "2.0", "result": 1}, InvalidRequest, None),
    ({"jsonrpc": "2.0", "id": 7, "method": 3}, InvalidRequest, 7),
    ({"jsonrpc": "2.0", "id": 7, "method": None}, InvalidRequest, 7),
    ({"jsonrpc": "2.0", "id": 7, "method": ["m"]}, InvalidRequest, 7),
    ({"jsonrpc": "2.0", "id": None, "method": "m"}, InvalidRequest, None),
    ({"jsonrpc": "2.0", "id": 1.5, "method": "m"}, InvalidRequest, None),
    ({"jsonrpc": "2.0", "id": True, "method": "m"}, InvalidRequest, None),
    ({"jsonrpc": "2.0", "id": {}, "method": "m"}, InvalidRequest, None),
    ({"jsonrpc": "2.0", "id": [1], "method": "m"}, InvalidRequest, None),
    ({"jsonrpc": "2.0", "id": 2**63, "method": "m"}, InvalidRequest, None),
    ({"jsonrpc": "2.0", "id": -(2**63) - 1, "method": "m"}, InvalidRequest, None),
    ({"jsonrpc": "2.0", "id": 10**400, "method": "m"}, InvalidRequest, None),
    ({"jsonrpc": "2.0", "id": 7, "method": "m", "params": [1]}, InvalidParams, 7),
    ({"jsonrpc": "2.0", "id": 7, "method": "m", "params": "p"}, InvalidRequest, 7),
    ({"jsonrpc": "2.0", "id": 7, "method": "m", "params": 1}, InvalidRequest, 7),
    ({"jsonrpc": "2.0", "id": 7, "method": "m", "params": None}, InvalidRequest, 7),
]


@pytest.mark.parametrize(("value", "kind", "id"), MALFORMED, ids=lambda value: repr(value)[:60])
def test_json_that_is_no_message_is_refused_under_its_id(
    value: Any, kind: type[RequestError], id: Any
) -> None:
    with pytest.raises(RequestError) as caught:
        jsonrpc.decode(json.dumps(value))
    assert type(caught.value) is kind
    assert caught.value.request_id == id


@given(json_values)
def test_any_json_that_is_no_frame_is_a_request_error(value: Any) -> None:
    with pytest.raises(RequestError) as caught:
        jsonrpc.decode(json.dumps(value))
    assert caught.value.code in (-32600, -32602)


@given(st.binary(max_size=200))
def test_any_bytes_that_are_no_frame_are_a_request_error(body: bytes) -> None:
    with pytest.raises(RequestError):
        jsonrpc.decode(body)


@given(st.dictionaries(st.text(), json_values, max_size=4), st.integers(-(2**63), 2**63 - 1) | st.text())
def test_what_is_written_reads_back_the_same(params: dict[str, Any], id: Any) -> None:
    frame = jsonrpc.decode(jsonrpc.request(id, "m", params))
    assert (frame.request_id, frame.params) == (id, params)
    assert jsonrpc.decode(jsonrpc.response(id, params)).result == params
    assert jsonrpc.decode(jsonrpc.notification("m", params)).params == params
    failed = jsonrpc.decode(jsonrpc.failure(id, -1, "no", params))
    assert failed.error == ({"code": -1, "message": "no", "data": params})


def test_a_frame_is_one_line_whatever_is_in_it() -> None:
    assert b"\n" not in jsonrpc.response(1, {"text": "a\nb\r\nc\u2028d\x85"})


def test_integers_beyond_64_bits_are_written_as_they_are() -> None:
    assert json.loads(jsonrpc.response(1, {"n": 2**80}))["result"] == {"n": 2**80}


def test_an_error_without_a_known_id_has_none_rather_than_null() -> None:
    assert "id" not in json.loads(jsonrpc.failure(None, -32700, "no"))


def test_a_notification_without_params_has_none() -> None:
    assert json.loads(jsonrpc.notification("m")) == {"jsonrpc": "2.0", "method": "m"}
