"""The fast path of a plain call reads what the full path reads, and nothing that the full path refuses."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from antiphon import Server
from antiphon.errors import RequestError
from antiphon.model.identity import Implementation
from antiphon.wire import jsonrpc
from antiphon.wire.server.dialect import Negotiated, PlainCall
from antiphon.wire.versions import Dialects
from tests.support import http
from tests.support.serving import serving
from tests.support.sizes import size
from tests.support.speakers import CLIENT, JSON, KEY, LEGACY, MODERN

pytestmark = pytest.mark.long

META = {KEY + "protocolVersion": MODERN, KEY + "clientInfo": CLIENT, KEY + "clientCapabilities": {}}
TASK_META = {**META, KEY + "clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}}
HEADERS: Mapping[bytes, bytes] = {
    b"mcp-protocol-version": MODERN.encode(),
    b"mcp-method": b"tools/call",
    b"mcp-name": b"echo",
}
FIELDS = ("jsonrpc", "id", "method", "params", "result", "error", "_meta", "stream", "task", "other")
PARAMS = ("name", "arguments", "inputResponses", "requestState", "task", "stream", "_meta", "cursor", "other")


def plain_call() -> dict[str, Any]:
    """Return the usual call of a tool."""
    params = {"name": "echo", "arguments": {"text": "a"}, "_meta": dict(META)}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


ODD = st.sampled_from(
    [
        None,
        True,
        False,
        0,
        -1,
        1.0,
        1.5,
        1e308,
        2**53,
        2**63 - 1,
        2**63,
        2**64,
        -(2**63),
        -(2**63) - 1,
        10**40,
        "",
        "2.0",
        "1.0",
        "echo",
        "écho",
        "=?base64?ZWNobw==?=",
        "tools/call",
        "tools/list",
        "\0",
        "\u2028",
        [],
        [1],
        [[]],
        {},
        {"a": 1},
        {"q": {"action": "accept"}},
        {"q": 1},
        {"ttl": 1},
        {"ttl": "x"},
        META,
    ]
)
VALUES = ODD | st.recursive(
    ODD,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


def plain_task_request() -> dict[str, Any]:
    """Return the usual request for the status of a task."""
    params = {"taskId": "echo", "_meta": dict(TASK_META)}
    return {"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": params}


def session_call() -> dict[str, Any]:
    """Return the usual call of a tool in a session."""
    params = {"name": "echo", "arguments": {"text": "a"}}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


@st.composite
def bodies(draw: st.DrawFn, plain: Callable[[], dict[str, Any]] = plain_call) -> bytes:
    """Return the body of a request with a few mistakes: in its fields, its keys or its bytes."""
    frame = plain()
    for _ in range(draw(st.integers(0, 3))):
        inside = draw(st.booleans()) and isinstance(frame.get("params"), dict)
        target, names = (frame["params"], PARAMS) if inside else (frame, FIELDS)
        name = draw(st.sampled_from(names))
        if draw(st.integers(0, 3)):
            target[name] = deepcopy(draw(VALUES))
        else:
            target.pop(name, None)
    text = json.dumps(frame, ensure_ascii=draw(st.booleans()))
    if not draw(st.integers(0, 3)):  # a key that occurs twice
        name, value = draw(st.sampled_from((*FIELDS, *PARAMS))), json.dumps(draw(VALUES))
        place = draw(st.sampled_from([found for found in range(len(text)) if text[found] == "{"]))
        text = f'{text[: place + 1]}"{name}":{value},{text[place + 1 :]}'
    body = text.encode()
    if not draw(st.integers(0, 5)):
        place = draw(st.integers(0, len(body)))
        body = body[:place] + draw(st.binary(max_size=3)) + body[place + draw(st.integers(0, 2)) :]
    return body


@st.composite
def header_sets(draw: st.DrawFn) -> dict[bytes, bytes]:
    """Return the headers of a call, mostly right."""
    headers = dict(HEADERS)
    if not draw(st.integers(0, 3)):
        name = draw(st.sampled_from((*HEADERS, b"mcp-session-id")))
        value = draw(st.sampled_from([b"", b"echo", b" echo", "écho".encode(), b"=?base64?ZWNobw==?=", b"x"]))
        headers[name] = value
    return headers


def read_in_full(
    dialects: Dialects, body: bytes, headers: Mapping[bytes, bytes], negotiated: Negotiated | None = None
) -> PlainCall:
    """Read a request as the endpoint does without the fast path; raises `RequestError`."""
    frame = jsonrpc.decode(body)
    raw = headers.get(b"mcp-protocol-version")
    dialect = dialects.choose(frame, None if raw is None else raw.decode("latin-1").strip(), negotiated)
    request_id = frame.request_id
    assert request_id is not None
    request, meta = dialect.understand(frame, negotiated, headers)
    return dialect, request_id, request, meta


@settings(max_examples=size(200, long=600))
@given(bodies(), header_sets())
@example(
    json.dumps({**plain_call(), "params": {**plain_call()["params"], "stream": 1}}).encode(), dict(HEADERS)
)
@example(
    json.dumps({**plain_call(), "params": {**plain_call()["params"], "stream": {}}}).encode(), dict(HEADERS)
)
def test_both_paths_read_the_same(body: bytes, headers: dict[bytes, bytes]) -> None:
    dialects = Dialects(Implementation("tests", "1"))
    read_in_full(dialects, json.dumps(plain_call()).encode(), HEADERS)  # the metadata is known from now on
    fast = dialects.glance(body, headers)
    if fast is None:
        return
    full = read_in_full(dialects, body, headers)
    assert fast[0] is full[0]
    assert (fast[1], type(fast[1])) == (full[1], type(full[1]))
    assert fast[2] == full[2]
    assert fast[3] == full[3]


@settings(max_examples=size(100, long=300))
@given(bodies(plain_task_request), header_sets())
def test_both_paths_read_the_same_request_for_a_task(body: bytes, headers: dict[bytes, bytes]) -> None:
    headers[b"mcp-method"] = b"tasks/get"
    dialects = Dialects(Implementation("tests", "1"))
    known = {**HEADERS, b"mcp-method": b"tasks/get"}
    usual = json.dumps(plain_task_request()).encode()
    read_in_full(dialects, usual, known)
    assert dialects.glance(usual, known) is not None
    fast = dialects.glance(body, headers)
    if fast is not None:
        assert fast == read_in_full(dialects, body, headers)


@pytest.mark.parametrize("version", [LEGACY, "2025-06-18", "2025-03-26"])
@settings(max_examples=size(100, long=300))
@given(body=bodies(session_call))
def test_both_paths_read_the_same_call_in_a_session(version: str, body: bytes) -> None:
    dialects = Dialects(Implementation("tests", "1"))
    negotiated = Negotiated(version, {"elicitation": {}}, Implementation("client", "1"))
    headers = {b"mcp-protocol-version": version.encode()}
    usual = json.dumps(session_call()).encode()
    assert dialects.glance_in_session(usual, headers, negotiated) is not None
    assert dialects.glance_in_session(usual, {b"mcp-protocol-version": b"x"}, negotiated) is None
    fast = dialects.glance_in_session(body, headers, negotiated)
    if fast is not None:
        dialect, request_id, request = fast
        full = read_in_full(dialects, body, headers, negotiated)
        assert (dialect, request_id, request, dialect.session_meta(negotiated)) == full


def test_the_usual_call_takes_the_fast_path() -> None:
    dialects, body = Dialects(Implementation("tests", "1")), json.dumps(plain_call()).encode()
    assert dialects.glance(body, HEADERS) is None
    read_in_full(dialects, body, HEADERS)
    assert dialects.glance(body, HEADERS) is not None


@pytest.mark.parametrize("stream", [1, "x", [], True])
def test_a_stream_of_a_wrong_type_is_refused_on_the_full_path(stream: Any) -> None:
    frame = plain_call()
    frame["params"]["stream"] = stream
    with pytest.raises(RequestError, match="stream"):
        read_in_full(Dialects(Implementation("tests", "1")), json.dumps(frame).encode(), HEADERS)


@pytest.mark.parametrize("stream", [1, "x", [], True, {}, None])
async def test_over_http_the_second_call_gets_the_answer_of_the_first(stream: Any) -> None:
    server = Server("tests")

    @server.tool
    async def echo(text: str) -> str:
        return text

    frame = plain_call()
    frame["params"]["stream"] = stream
    headers = {**JSON, **{name.decode(): value.decode() for name, value in HEADERS.items()}}
    async with serving(server) as where:
        bodies = [json.dumps(each).encode() for each in (frame, plain_call(), plain_call(), frame)]
        answers = [await http.request(where.port, "POST", headers, body) for body in bodies]
    assert answers[1].text == answers[2].text == "a"
    assert (answers[0].status, answers[0].body) == (answers[3].status, answers[3].body)
    assert ("error" in answers[3].frame) is not (stream is None or stream == {})
