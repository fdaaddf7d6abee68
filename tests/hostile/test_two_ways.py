"""The short way of plain requests and the way through ASGI answer alike, whatever is sent.

The same odd requests go to two servers of the same code: `antiphon run` as it is, and one on which every
request goes through ASGI. Statuses, headers and bodies are compared, but for ids that are random, and for the
order of headers.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio

from antiphon import Context, Failure, Limits, Principal, Result, Server
from antiphon.transport.server.http import serve
from tests.hostile.raw import MARKER, post, read_raw
from tests.support.loop_time import LoopTime
from tests.support.polling import turns
from tests.support.serving import Address, running
from tests.support.speakers import KEY, LEGACY, MODERN

pytestmark = pytest.mark.asyncio(loop_scope="module")

REQUESTS = 1500
"""How many connections each server gets, most with several requests."""
AT_ONCE = 8
LONG = 5.0
"""How long a server waits for the rest of a request. The test moves this time, by a tenth at once."""
WITHIN = 600.0
"""How much of the moved time an answer may take."""
META = {KEY + "protocolVersion": MODERN, KEY + "clientInfo": {"name": "a", "version": "1"}}
CAPABILITIES = KEY + "clientCapabilities"
SESSION = "SESSION"
"""Stands for the session id, which each server makes itself."""
_HEAD = re.compile(rb"HTTP/1\.1 \d{3} .*?(?=\r\n\r\n)", re.DOTALL)
_RANDOM = (
    (re.compile(rb"\r\ndate: [^\r]*"), b"\r\ndate: D"),
    (re.compile(rb"\r\nmcp-session-id: [^\r]*"), b"\r\nmcp-session-id: S"),
    (re.compile(rb'"requestState":"[^"]*"'), b'"requestState":"T"'),
    (re.compile(rb"\r\nid: [^\r\n]*|\nid: [^\n]*"), b"\nid: I"),
)


def build(*, authenticates: bool) -> Server:
    """Return a server with tools that end in every way."""

    def identify(headers: Any) -> Principal | None:
        return Principal("ada") if headers.get("authorization") == "Bearer a" else None

    limits = Limits(body_timeout=LONG, head_timeout=LONG, max_body_bytes=20_000, max_headers=20)
    server = Server("both", limits=limits, authenticate=identify if authenticates else None)

    @server.tool
    async def add(a: int, b: int) -> str:
        return str(a + b)

    @server.tool
    async def later() -> Result:
        await turns()
        return Result("later", data={"a": 1})

    @server.tool
    async def fails() -> str:
        raise Failure("no")

    @server.tool
    async def large(size: int = 50_000) -> str:
        return "x" * min(size, 200_000)

    @server.tool
    async def talks(ctx: Context) -> str:
        await ctx.info("hello")
        return "done"

    @server.tool
    async def asks(ctx: Context) -> str:
        return f"{await ctx.elicit('Which?', str)}"

    @server.tool
    def threaded(text: str) -> str:
        return text

    return server


@pytest_asyncio.fixture(loop_scope="module", scope="module", params=[False, True], ids=["open", "tokens"])
async def both(request: pytest.FixtureRequest) -> AsyncIterator[tuple[Address, Address]]:
    """A server with the short way, and one without."""
    async with running(build(authenticates=request.param)) as short:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(serve, "App", type("NoApp", (), {}))  # an app that is not ours has no short way
            long = running(build(authenticates=request.param))
            address = await long.__aenter__()
        assert short.runner.config.plain_endpoint is not None  # type: ignore[attr-defined]
        assert address.runner.config.plain_endpoint is None  # type: ignore[attr-defined]
        address.app.skip_head_checks()
        try:
            yield short, address
        finally:
            await long.__aexit__(None, None, None)


class Odd:
    """Draws requests, most of them almost plain."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.pick = self.random.choice

    def is_odd(self, share: float = 0.1) -> bool:
        return self.random.random() < share

    def connection(self) -> list[bytes]:
        """Return what is sent on one connection, in parts."""
        # Behind a request that is no valid HTTP nothing is read. Whether the request before it is answered
        # depends on how quick the server was, so such a request comes alone, and in one part.
        count = self.pick((1, 1, 2, 3))
        is_valid = count > 1 or self.is_odd(0.5)
        sent = b"".join(self.request(is_valid=is_valid) for _ in range(count)) + MARKER
        cuts = sorted(self.random.sample(range(1, len(sent)), self.pick((0, 1, 2)) if is_valid else 0))
        return [sent[start:end] for start, end in zip([0, *cuts], [*cuts, len(sent)], strict=True)]

    def request(self, *, is_valid: bool) -> bytes:
        body, lines = self.message()
        method, path, version = "POST", "/mcp", "HTTP/1.1"
        if self.is_odd():
            method = self.pick(("GET", "PUT", "HEAD", "OPTIONS", "PUT" if is_valid else "post"))
            # Neither a stream that does not end, nor an end of the session that the others use.
            lines = [line for line in lines if SESSION not in line]
        if self.is_odd():
            path = self.pick(
                ("/", "/mcp/", "/mcp?a=b", "/other", "/%6dcp", "http://127.0.0.1/mcp", "/mcp#x", "*")
            )
        if self.is_odd(0.05) and not is_valid:
            version = self.pick(("HTTP/1.0", "HTTP/1.2", "HTTP/2.0", "HTTP/0.9"))
        if self.is_odd():
            lines.append(
                self.pick(
                    (
                        "Connection: close",
                        "Connection: keep-alive",
                        "Expect: 100-continue",
                        "Expect: other",
                        "Origin: https://evil.example",
                        "Origin: http://127.0.0.1:1",
                        "Upgrade: h2c",
                        "Connection: close" if is_valid else "Connection: upgrade\r\nUpgrade: h2c",
                        "Accept: text/event-stream",
                        "Trailer: x",
                        "X-A: \x80",
                        "X-A:",
                        "Authorization: Bearer b",
                        "Host: evil.example",
                        "Content-Encoding: gzip",
                        *(["\r\n".join(f"X-{i}: a" for i in range(30))]),
                    )
                )
            )
        length = f"Content-Length: {len(body)}"
        if self.is_odd():
            if self.is_odd(0.5):
                chunked = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if body else b"0\r\n\r\n"
                body, length = chunked, "Transfer-Encoding: chunked"
            elif not is_valid:
                size = len(body)
                length = self.pick(
                    (
                        f"content-length:  {size} ",
                        f"Content-Length: 000{size}",
                        f"Content-Length: {max(0, size - 1)}",
                        f"Content-Length: {size + 1}",
                        "Content-Length: 30000\r\nConnection: close",
                        "Content-Length: x",
                        "X-None: 1",
                        f"{length}\r\n{length}",
                    )
                )
        lines.append(length)
        if self.is_odd(0.3):
            self.random.shuffle(lines)
        if self.is_odd(0.2):
            lines = [line.lower() if self.is_odd(0.5) else line for line in lines]
        return "\r\n".join([f"{method} {path} {version}", *lines, "", ""]).encode("latin-1") + body

    def message(self) -> tuple[bytes, list[str]]:
        """Return a body, and the headers that go with it."""
        lines = ["Host: 127.0.0.1", "Content-Type: application/json"]
        lines.append("Accept: application/json, text/event-stream")
        if not self.is_odd():
            lines.append("Authorization: Bearer a")
        if self.is_odd():
            lines[self.pick((0, 1, 2))] = self.pick(("Content-Type: text/plain", "Accept: */*", "X-B: 1"))
        tool, arguments = self.pick(
            (
                ("add", {"a": 1, "b": 2}),
                ("add", {"a": 1, "b": 2}),
                ("add", {"a": "x"}),
                ("later", {}),
                ("fails", {}),
                ("large", {}),
                ("large", {"size": 40_000}),
                ("talks", {}),
                ("asks", {}),
                ("threaded", {"text": "é"}),
                ("threaded", {"text": "x" * 9_000}),
                ("none", {}),
            )
        )
        call: dict[str, Any] = {"name": tool, "arguments": arguments}
        kind = self.random.random()
        if kind < 0.45:
            call["_meta"] = {**META, CAPABILITIES: self.pick(({}, {"elicitation": {}}))}
            lines += [f"MCP-Protocol-Version: {MODERN}", "Mcp-Method: tools/call", f"Mcp-Name: {tool}"]
            if self.is_odd():
                call["_meta"][KEY + "logLevel"] = "info"
        elif kind < 0.8:
            lines += [f"MCP-Protocol-Version: {LEGACY}", f"Mcp-Session-Id: {SESSION}"]
        method = "tools/call"
        frame: dict[str, Any] = {"jsonrpc": "2.0", "id": self.pick((1, 1, "a", 2**70)), "method": method}
        frame["params"] = call
        if self.is_odd():
            frame = self.pick(
                (
                    {"jsonrpc": "2.0", "id": 1, "method": "ping"},
                    {"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
                    {"jsonrpc": "2.0", "method": "notifications/initialized"},
                    {"jsonrpc": "2.0", "id": 1, "result": {}},
                    {"jsonrpc": "2.0", "id": 1, "method": "no/such"},
                    initialize(),
                    {**frame, "more": 1},
                    {**frame, "params": {**call, "task": {}}},
                    {**frame, "params": {**call, "stream": {}}},
                    [frame],
                    "frame",
                )
            )
        body = json.dumps(frame).encode()
        if self.is_odd(0.05):
            body = self.pick((b"", b"{", body[:-1], body + b" ", b"\xff", b" " * 9_000 + body))
        return body, lines


def initialize() -> dict[str, Any]:
    params = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}}
    return {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}


async def open_session(address: Address) -> bytes:
    """Return the id of a new session."""
    request = post(json.dumps(initialize()).encode(), "Authorization: Bearer a")
    raw = await read_raw(address.port, request + MARKER)
    found = re.search(rb"mcp-session-id: ([^\r]*)", raw)
    assert found is not None, raw
    return found[1]


def normal(raw: bytes) -> bytes:
    """Return responses without what is random in them."""
    for pattern, replacement in _RANDOM:
        raw = pattern.sub(replacement, raw)
    return _HEAD.sub(lambda head: b"\r\n".join(sorted(head[0].split(b"\r\n"))), raw)


def batches(count: int, size: int) -> Iterator[range]:
    for start in range(0, count, size):
        yield range(start, min(start + size, count))


async def test_both_ways_answer_alike(both: tuple[Address, Address]) -> None:
    sessions = [await open_session(address) for address in both]

    async def answers(number: int) -> None:
        parts = Odd(number).connection()
        raws = []
        for address, session in zip(both, sessions, strict=True):
            # The ids have the same length on both, so that the parts have too.
            own = [part.replace(SESSION.encode(), session) for part in parts]
            try:
                raws.append(normal(await read_raw(address.port, *own, within=WITHIN)))
            except TimeoutError:
                pytest.fail(f"request {number} got no answer: {own!r}")
        assert raws[0] == raws[1], f"request {number}: {parts!r}"
        statuses.update(int(status) for status in re.findall(rb"HTTP/1.1 (\d{3}) ", raws[0]))

    statuses: set[int] = set()
    for batch in batches(REQUESTS, AT_ONCE):
        answering = asyncio.gather(*map(answers, batch))
        await LoopTime.here().advance_until(answering.done, LONG / 10)
        await answering
    assert {200, 202, 400, 403, 404, 405, 413, 415} <= statuses  # the requests were odd enough
