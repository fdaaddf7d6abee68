"""Tool calls of 2026-07-28 that are almost plain: the server may read each on its fast path, or in full.

`plain_calls` draws the headers and the body of a request. `Both` sends a request to two servers: one as
it is, and one that reads every request in full.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from hypothesis import strategies as st

from antiphon import Server
from tests.fuzz.asgi import Answer, Served
from tests.fuzz.strategies import ANY_TEXT, JSON_VALUES, header_bytes, near
from tests.robustness.mutation import META
from tests.support.speakers import KEY, MODERN

__all__ = ["ELICITING", "HEADERS", "Both", "bare", "plain_calls"]

ELICITING = {**META, KEY + "clientCapabilities": {"elicitation": {}}}
STREAMING = {
    **META,
    KEY + "clientCapabilities": {
        "extensions": {KEY + "tasks": {}, KEY + "streaming": {}, "io.modelcontextprotocol/tasks": {}}
    },
}
HEADERS: Mapping[bytes, bytes] = {
    b"host": b"127.0.0.1",
    b"content-type": b"application/json",
    b"accept": b"application/json, text/event-stream",
    b"mcp-protocol-version": MODERN.encode(),
    b"mcp-method": b"tools/call",
    b"mcp-name": b"add",
}
_PARAMS: Mapping[str, st.SearchStrategy[Any]] = {
    "arguments": near({}, {"a": 1, "b": 2}, {"a": "1", "b": 2}, {"a": 1}, None),
    "inputResponses": near({}, {"x": {"action": "accept", "content": {}}}, {"x": {}}, {"x": 1}, [], None),
    "requestState": near("", "x", None, 1) | ANY_TEXT,
    "task": near({}, {"ttl": 5}, None, 1, "x", []),
    "stream": near(True, False, None, 1, "x", {}, {"after": 1}, {"after": -1}, []),
    "progressToken": near(1, "x"),
}
_ENVELOPE: Mapping[str, st.SearchStrategy[Any]] = {
    "stream": near(True, 1, "x", {}, [], None),
    "_meta": near({}, META, 1, None),
    "result": near({}, None),
    "error": near({}, None),
    "params": near(None, [], {}),
    "jsonrpc": near("2.0", "1.0", None, 2),
}


@st.composite
def plain_calls(
    draw: Callable[[Any], Any], tools: tuple[str, ...] = ("add",)
) -> tuple[dict[bytes, bytes], bytes]:
    """The headers and the body of a tool call, with up to three members that a plain call does not have."""
    tool = draw(near(*tools, *tools, *tools, "none", "", "=?base64?YWRk?=", "é"))
    params: dict[str, Any] = {"name": tool, "arguments": {"a": 1, "b": 2}}
    params["_meta"] = draw(near(META, META, META, ELICITING, STREAMING, {}, None, 1, {**META, "x": 1}))
    frame: dict[str, Any] = {"jsonrpc": "2.0", "method": "tools/call", "params": params}
    frame["id"] = draw(near(1, "a") | near(0, 2**63, -(2**63) - 1, 2**64, 1.5, None, True, [], ""))
    for _ in range(draw(st.integers(0, 3))):
        place, members = draw(near((params, _PARAMS), (params, _PARAMS), (frame, _ENVELOPE)))
        name = draw(st.sampled_from(sorted(members)))
        place[name] = draw(members[name] | members[name] | JSON_VALUES)
    body = json.dumps(frame).encode()
    if draw(st.integers(0, 9)) == 0:  # a member that stands twice
        name = draw(near("id", "method", "params", "jsonrpc"))
        body = body[:-1] + b', "%s": ' % name.encode() + json.dumps(draw(JSON_VALUES)).encode() + b"}"
    headers = dict(HEADERS)
    if isinstance(tool, str):
        headers[b"mcp-name"] = tool.encode("utf-8").decode("latin-1").encode("latin-1")
    if draw(st.integers(0, 4)) == 0:
        changed = draw(st.sampled_from(sorted(set(HEADERS) - {b"host"})))
        headers[changed] = draw(header_bytes(HEADERS[changed], MODERN.encode(), b"add"))
    return headers, body


class Both:
    """Two servers of the same code: one as it is, and one without its fast path."""

    def __init__(self, build: Callable[[], Server]) -> None:
        self.fast, self.full = Served(build()), Served(build())
        self.full.app.endpoint.dialects.fast_paths.clear()
        for meta in (META, ELICITING, STREAMING):  # the fast path takes a `_meta` that it has seen before
            self.send(HEADERS, bare(meta))

    def send(self, headers: Mapping[bytes, bytes], body: bytes) -> tuple[Answer, Answer]:
        """Send a request to both."""
        sent = list(headers.items())
        return self.fast.send("POST", sent, body), self.full.send("POST", sent, body)


def bare(meta: Mapping[str, Any]) -> bytes:
    """Return the body of the plainest call."""
    params = {"name": "add", "arguments": {"a": 1, "b": 2}, "_meta": meta}
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
