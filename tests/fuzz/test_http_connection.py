"""The client's HTTP connection: what a server sends is read the same in any pieces, and nothing is raised."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from antiphon.transport.client.http_connection import Connection, Response
from tests.fuzz.strategies import chunked, near, target

PIECES = near(
    b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 103 Early Hints\r\n", b"HTTP/1.0 404 No\r\n", b"HTTP/1.1 204 No\r\n",
    b"HTTP/1.1 104 Odd\r\n", b"content-length: 2\r\n", b"content-length: 0\r\n", b"connection: close\r\n",
    b"transfer-encoding: chunked\r\n", b"set-cookie: a=b\r\n", b"x: y\r\n", b"upgrade: x\r\n",
    b" folded\r\n", b"\r\n", b"\n", b"ab", b"2\r\nab\r\n", b"1;a=b\r\nc\r\n", b"0\r\n\r\n",
    b"0\r\nx: y\r\n\r\n",
)  # fmt: skip
RESPONSES = st.lists(PIECES | st.binary(max_size=4), max_size=14).map(b"".join)


class Wire(asyncio.Transport):
    """A transport that only knows whether it was closed."""

    is_aborted = False

    def abort(self) -> None:
        self.is_aborted = True

    def is_closing(self) -> bool:
        return self.is_aborted

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: Any) -> None: ...

    def pause_reading(self) -> None: ...


def read(chunks: Sequence[bytes]) -> tuple[Any, ...]:
    """Return what a connection makes of bytes that come in pieces, before the server closes."""
    wire, free = Wire(), list[Connection]()
    connection = Connection(free.append, lambda lost: None)
    connection.connection_made(wire)
    response = connection.response = Response(connection)
    for chunk in chunks:
        if not wire.is_aborted:
            connection.data_received(chunk)
    is_whole, headers = response.is_complete, dict(response.headers)
    connection.eof_received()
    connection.connection_lost(None)
    assert response.is_complete or response.failure is not None  # nobody waits for ever
    body = b"".join(response.pieces)
    assert not (is_whole and wire.is_aborted and response.failure is None and free)
    if response.failure is not None and not response.is_complete:
        return ("failed",)
    return response.status, headers, body


@target
@given(chunked(RESPONSES))
@example([b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nabHTTP/1.1 200 OK\r\n\r\n"])
def test_a_response_is_the_same_in_any_pieces(chunks: Sequence[bytes]) -> None:
    whole = read([b"".join(chunks)])
    assert read(chunks) == whole
    assert read([bytes([byte]) for chunk in chunks for byte in chunk]) == whole
