"""A whole server over HTTP: any method, headers and body get one answer, and no error of the server."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from antiphon.wire.mirrored_headers import encode_value
from tests.fuzz.asgi import Answer, Served, build_server
from tests.fuzz.plain_calls import HEADERS
from tests.fuzz.strategies import damaged, frames, header_bytes, near, target
from tests.support.speakers import DRAFT, LEGACY, MODERN

served = Served(build_server())
_INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "f", "version": "1"}},
}
SESSION = served.send("POST", list(HEADERS.items())[:3], json.dumps(_INITIALIZE).encode()).headers[
    b"mcp-session-id"
]
USUAL = {
    b"host": (b"127.0.0.1", b"localhost:8000", b"evil.example"),
    b"origin": (b"http://127.0.0.1", b"http://evil.example", b"null"),
    b"accept": (b"application/json, text/event-stream", b"*/*", b"text/event-stream", b"application/json"),
    b"content-type": (b"application/json", b"application/json; charset=utf-8", b"text/plain"),
    b"content-length": (b"0", b"10", b"99999999999999999999999", b"-1"),
    b"mcp-protocol-version": (MODERN.encode(), LEGACY.encode(), DRAFT.encode(), b"1999-01-01"),
    b"mcp-method": (b"tools/call", b"tools/list", b"resources/read", b"ping", b"server/discover"),
    b"mcp-name": (b"add", b"u://x", b"prompt", b"=?base64?YWRk?="),
    b"mcp-session-id": (SESSION,),
    b"last-event-id": (b"a.1", b"a.0", b"."),
    b"authorization": (b"Bearer x", b"Basic"),
}
CODES = {-32700, -32600, -32601, -32602, -32002, -32003, -32020, -32021, -32022}
BODIES = frames().map(lambda frame: json.dumps(frame).encode()) | damaged(
    frames().map(lambda frame: json.dumps(frame).encode())
)


@st.composite
def headers(draw: Callable[[Any], Any]) -> list[tuple[bytes, bytes]]:
    """The headers of a request: the usual ones, odd values, and the same name twice."""
    names = draw(st.lists(st.sampled_from(sorted(USUAL)), max_size=6))
    odd = draw(st.integers(0, len(names)))
    return [
        (name, draw(header_bytes(*USUAL[name]) if place == odd else near(USUAL[name][0], *USUAL[name])))
        for place, name in enumerate(names)
    ]


@target
@given(near(*["POST"] * 12, "GET", "DELETE", "PUT"), headers(), BODIES)
def test_any_request_gets_one_answer_and_no_error_of_the_server(
    method: str, sent: list[tuple[bytes, bytes]], body: bytes
) -> None:
    if method == "DELETE":  # the session is for the other examples
        sent = [(name, value) for name, value in sent if name != b"mcp-session-id"]
    check(served.send(method, sent, body))


@target
@given(near(None, MODERN, LEGACY, DRAFT), st.booleans(), frames())
def test_any_message_gets_one_answer_and_no_error_of_the_server(
    version: str | None, in_session: bool, frame: dict[str, Any]
) -> None:
    sent = list(HEADERS.items())[:3]
    if version is not None:
        sent.append((b"mcp-protocol-version", version.encode()))
    if in_session:
        sent.append((b"mcp-session-id", SESSION))
    method, params = frame.get("method"), frame.get("params")
    name = params.get("name", params.get("uri")) if isinstance(params, dict) else None
    for header, value in ((b"mcp-method", method), (b"mcp-name", name)):
        if isinstance(value, str):
            sent.append((header, encode_value(value).encode()))
    check(served.send("POST", sent, json.dumps(frame).encode()))


def check(answer: Answer) -> None:
    """Fail if an answer is not one whole answer, or is an error of the server."""
    assert answer.starts == 1
    assert 200 <= answer.status < 500, answer
    assert answer.logged == []
    if answer.status >= 400:
        assert answer.complete
        assert answer.frame["error"]["code"] in CODES | {-32000, -32001}, answer
    elif answer.headers.get(b"content-type") == b"application/json":
        assert answer.frame["jsonrpc"] == "2.0"
        assert ("result" in answer.frame) != ("error" in answer.frame)
