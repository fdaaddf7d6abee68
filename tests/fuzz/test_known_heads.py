"""A head that was parsed before is read as the parser reads it: what connections know changes nothing."""

from __future__ import annotations

from collections.abc import Sequence

import httptools
from hypothesis import example, given
from hypothesis import strategies as st

from antiphon.transport.server.http.known_heads import ConnectionHeads, KnownHeads, PlainRequest
from tests.fuzz.strategies import target

NAMES = st.sampled_from(
    [b"Mcp-Name", b"mcp-name", b"MCP-NAME", b"X-Name", b"User-Agent", b"X-Mcp-Name", b"Name", b"X-Length"]
)
VALUES = st.sampled_from(
    [b"", b"a", b"b", b"name: a", b"name: b", b"ame: ", b"a b", b"length: 2", b"length: 3", b"a.b", b"\xff"]
)
COLONS = st.sampled_from([b": "] * 8 + [b":", b":  ", b" : ", b":\t"])
ENDS = st.sampled_from([b"\r\n"] * 20 + [b"\n", b"\r", b"\r\n ", b"\r\n\t", b" \r\n"])
METHODS = st.sampled_from([b"Mcp-Method: tasks/get"] * 4 + [b"Mcp-Method: tools/call"])
BODIES = st.sampled_from(
    [
        b"{}", b"{} ", b"ame: a\r", b"ame: b\r\n", b"", b"Mcp-Name: a\r\n\r\n", b"\r\nmcp-name: a\r",
        b"x" * 12, b"\r\n", b"\r\n\r\n",
    ]
)  # fmt: skip


class Parsed:
    """What the parser finds in data; `request` is `None` unless they are one plain request, and no more."""

    def __init__(self, data: bytes) -> None:
        self.url, self.body, self.messages, self.ends = b"", b"", 0, 0
        self.lines: list[tuple[bytes, bytes]] = []
        self.is_post = False
        self._parser = httptools.HttpRequestParser(self)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self.ends = 0

    def on_message_begin(self) -> None:
        self.messages += 1

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.lines.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self.is_post = self._parser.get_method() == b"POST" and self._parser.should_keep_alive()

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.ends += 1

    @property
    def request(self) -> PlainRequest | None:
        headers = dict(self.lines)
        is_plain = self.messages == self.ends == 1 and self.is_post and len(headers) == len(self.lines)
        is_plain = is_plain and b"content-length" in headers and b"transfer-encoding" not in headers
        return PlainRequest(self.url, headers, self.body) if is_plain else None


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    body = draw(BODIES)
    length = draw(st.sampled_from([b"%d" % len(body)] * 8 + [b"0%d" % len(body), b"+2", b" 2", b"3", b"1"]))
    lines = [draw(NAMES) + draw(COLONS) + draw(VALUES) for _ in range(draw(st.integers(1, 3)))]
    lines += [draw(METHODS), draw(st.sampled_from([b"Content-Length: ", b"content-length: "])) + length]
    head = b"".join(line + draw(ENDS) for line in draw(st.permutations(lines)))
    behind = draw(st.sampled_from([b""] * 8 + [b"\r\n", b"\r\n\r\n"]))
    return b"POST /mcp HTTP/1.1\r\n" + head + b"\r\n" + body + behind


CHANGES: Sequence[tuple[bytes, bytes]] = (
    (b"a\r\n", b"b\r\n"), (b": \r", b": zz\r"), (b"\r\nMcp", b"\r\nmcp"), (b": a", b": "), (b"{}", b"{}x")
)  # fmt: skip


def without_length(found: PlainRequest) -> PlainRequest:
    headers = {name: value for name, value in found.headers.items() if name != b"content-length"}
    return found._replace(headers=headers)


@target
@given(st.lists(requests(), min_size=1, max_size=4), st.lists(st.sampled_from(CHANGES), max_size=2))
@example(
    [b"POST /mcp HTTP/1.1\r\nMcp-Method: tasks/get\r\nMcp-Name:\r\nContent-Length: 2\r\n\r\n{}"],
    [(b"Length: 2", b"Length: 8"), (b"{}", b"{}ame: GETX\r")],
)
@example(
    [b"POST /mcp HTTP/1.1\r\nContent-Length: 4\r\n\r\n" + b"\r\n" * 4],
    [(b"\r\n" * 6, b"\r\n" * 4 + b"{}{}")],
)
def test_known_heads_are_read_as_the_parser_reads_them(
    sent: list[bytes], changes: list[tuple[bytes, bytes]]
) -> None:
    shared = KnownHeads()
    kept_open = ConnectionHeads(shared)
    changed = sent[-1]
    for before, after in changes:
        changed = changed.replace(before, after, 1)
    for data in (*sent, *sent, changed):
        parsed = Parsed(data).request
        for connection in (ConnectionHeads(shared), kept_open):
            found = connection.find(data)
            if found is not None:
                assert parsed is not None
                assert without_length(found) == without_length(parsed)
            elif parsed is not None:
                connection.keep(data, *parsed, share=True)
                again = connection.find(data)
                assert again is None or without_length(again) == without_length(parsed)
