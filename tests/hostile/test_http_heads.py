"""Heads that are too large, too many or too slow, and more connections than a server may have."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from antiphon import HttpRequest, Limits, Server
from antiphon.transport.server.http.connections import Connections, raise_descriptor_limit, stranger_at
from antiphon.transport.server.http.serve import HttpConfig
from tests.hostile.raw import MARKER, PING, post, send_raw
from tests.support import http
from tests.support.polling import until
from tests.support.serving import WAYS, Address, running

KIB = 1024
SERVED = [200, 404]


def server(**limits: Any) -> Server:
    return Server("tests", limits=Limits(**limits))


def connections(address: Address) -> Connections:
    config = address.runner.config
    assert isinstance(config, HttpConfig)
    return config.connections


def sized(size: int) -> bytes:
    """Return a request whose head has this size."""
    bare = post(PING, "X-A: ")
    return post(PING, "X-A: " + "a" * (size - len(bare) + len(PING)))


# The size


@pytest.mark.parametrize("way", WAYS)
async def test_a_head_over_64_kib_is_refused(way: str) -> None:
    async with WAYS[way](server()) as address:
        answers = await send_raw(address.port, sized(70 * KIB), MARKER)
        assert answers.statuses[0] == 431
        assert b"at most 65536 bytes" in answers.raw
        assert (await send_raw(address.port, sized(60 * KIB), MARKER)).statuses == SERVED


async def test_the_bound_of_a_head_is_exact() -> None:
    async with running(server(max_head_bytes=1000)) as address:
        assert (await send_raw(address.port, sized(1000), MARKER)).statuses == SERVED
        assert (await send_raw(address.port, sized(1001), MARKER)).statuses == [431]
        async with http.connect(address.port) as connection:
            for request, status in [(sized(1000), 200), (post(), 200), (sized(1001), 431)]:
                await connection.write(request)
                assert (await connection.receive()).status == status
        # A head behind another request is bounded less exactly: its start may come with the end of the other.
        assert (await send_raw(address.port, post() + sized(2500), MARKER)).statuses in ([431], [200, 431])
        large = post(b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"%s"}}' % (b"x" * 100_000))
        assert (await send_raw(address.port, large, MARKER)).statuses == SERVED
        assert (await send_raw(address.port, large, large, sized(1000), MARKER)).statuses == [
            200,
            200,
            *SERVED,
        ]


@pytest.mark.parametrize("start", [b"GET /", b"GET / HTTP/1.1\r\nX-A: ", b"GET / HTTP/1.1\r\nX"])
async def test_a_head_without_an_end_is_refused_before_it_is_kept(start: bytes) -> None:
    async with running(server()) as address:
        answers = await send_raw(address.port, start, *([b"a" * 64 * KIB] * 1000))
        assert answers.statuses == [431]


async def test_headers_without_an_end_are_refused_before_they_are_kept() -> None:
    async with running(server()) as address:
        answers = await send_raw(address.port, b"GET / HTTP/1.1\r\n", *([b"a:\r\n" * 10_000] * 100))
        assert answers.statuses == [431]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("path", ["/mcp", "/healthz"])
async def test_too_many_headers_are_refused(way: str, path: str) -> None:
    async with WAYS[way](server(max_headers=20), probes=True) as address:
        many = {f"x-{number}": "1" for number in range(20)}
        response = await http.request(address.port, "GET", many, path=path)
        assert (response.status, b"at most 20 headers" in response.body) == (431, True)
        few = dict(list(many.items())[:15])
        assert (await http.request(address.port, "GET", few, path=path)).status in (200, 405)


# The time


async def test_a_head_has_a_deadline_from_the_connection_on() -> None:
    async with running(server(head_timeout=0.2)) as address:
        assert (await send_raw(address.port)).statuses == []
        assert (await send_raw(address.port, b"POST /m")).statuses == [408]
        assert (await send_raw(address.port, post()[:60])).statuses == [408]
        assert (await send_raw(address.port, post(), MARKER)).statuses == SERVED
        await until(lambda: not len(connections(address)))


async def test_a_head_that_comes_byte_by_byte_has_the_same_deadline() -> None:
    async with running(server(head_timeout=0.5)) as address, http.connect(address.port) as connection:
        answer = asyncio.create_task(connection.receive_head())
        await connection.write(b"GET /mcp HTTP/1.1\r\n")
        async with asyncio.timeout(20):
            while not answer.done():
                await connection.write(b"X: a\r\n")
                await asyncio.sleep(0.05)
        assert (await answer).status == 408


@pytest.mark.parametrize("data", [b"P", b"\r\n", post()[:60]], ids=["a byte", "a blank line", "a part"])
async def test_the_next_head_on_a_connection_has_a_deadline_too(data: bytes) -> None:
    async with running(server(head_timeout=0.3)) as address, http.connect(address.port) as connection:
        await connection.write(post())
        assert (await connection.receive()).status == 200
        await connection.write(data)
        async with asyncio.timeout(20):
            rest = await connection.reader.read()
        assert rest.startswith(b"" if data == b"\r\n" else b"HTTP/1.1 408 ")


async def test_a_head_behind_a_running_request_does_not_end_it() -> None:
    limited = server(head_timeout=0.1)
    release = asyncio.Event()

    @limited.route("/wait")
    async def wait(request: HttpRequest) -> str:
        await release.wait()
        return "done"

    async with running(limited) as address, http.connect(address.port) as connection:
        await connection.write(b"GET /wait HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nGET /wai")
        await asyncio.sleep(0.5)
        release.set()
        assert (await connection.receive()).body == b"done"
        assert (await connection.receive()).status == 408


async def test_a_connection_that_is_idle_between_requests_is_kept() -> None:
    async with running(server(head_timeout=0.1)) as address, http.connect(address.port) as connection:
        for _ in range(3):
            await connection.write(post())
            assert (await connection.receive()).status == 200
            await asyncio.sleep(0.3)


async def test_the_time_in_which_the_server_stands_still_does_not_count() -> None:
    async with running(server(head_timeout=0.2)) as address:
        for sent in (b"", post()[:60]):
            async with http.connect(address.port) as connection:
                await connection.write(sent)
                await until(lambda: len(connections(address)) == 1)
                time.sleep(0.5)  # noqa: ASYNC251 - the event loop, in which the server runs, stands still
                await asyncio.sleep(0)  # a turn of the loop in which the rest has not arrived yet
                await asyncio.sleep(0)
                await connection.write(post()[len(sent) :])
                assert (await connection.receive()).status == 200
            await until(lambda: not len(connections(address)))


async def test_a_body_that_was_refused_has_a_deadline() -> None:
    limits = server(head_timeout=0.3, max_body_bytes=100)
    async with running(limits) as address, http.connect(address.port) as connection:
        await connection.write(post(b"x" * 50, length=10**12))
        assert (await connection.receive()).status == 413
        async with asyncio.timeout(20):
            with pytest.raises(ConnectionError):
                await _write_for_ever(connection)


async def _write_for_ever(connection: http.Connection) -> None:
    while True:
        await connection.write(b"x" * 1000)
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("share", [1.0, 0.5])
async def test_slow_heads_do_not_lock_others_out(share: float) -> None:
    """Heads that never end are closed, however many there are."""
    count = 300
    limited = server(head_timeout=0.5, max_connections=int(count / share))
    async with running(limited) as address, AsyncExitStack() as stack:
        slow = [await stack.enter_async_context(http.connect(address.port)) for _ in range(count)]
        for connection in slow:
            connection.writer.write(b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nX-")
        if share < 1:
            assert (await send_raw(address.port, post(), MARKER)).statuses == SERVED
        await until(lambda: not len(connections(address)))
        assert (await send_raw(address.port, post(), MARKER)).statuses == SERVED


# The number of connections


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.WARNING, logger="antiphon")
    return caplog


@pytest.mark.parametrize("limit", ["max_connections", "max_connections_per_address"])
async def test_connections_over_the_limit_are_refused_and_logged_once(
    limit: str, log: pytest.LogCaptureFixture
) -> None:
    async with running(server(**{limit: 3})) as address, AsyncExitStack() as stack:
        held = [await stack.enter_async_context(http.connect(address.port)) for _ in range(3)]
        await until(lambda: len(connections(address)) == 3)
        for _ in range(20):
            answers = await send_raw(address.port)
            assert answers.statuses == [503]
            assert b"retry-after: 1\r\n" in answers.raw
        await held[0].write(post())
        assert (await held[0].receive()).status == 200
        await held[0].close()
        await until(lambda: len(connections(address)) == 2)
        assert (await send_raw(address.port, post(), MARKER)).statuses == SERVED
    lines = [record.getMessage() for record in log.records]
    assert len(lines) == 1
    assert f"Limits.{limit}" in lines[0]


async def test_idle_connections_make_room_for_new_ones(log: pytest.LogCaptureFixture) -> None:
    async with running(server(max_connections=5)) as address, AsyncExitStack() as stack:
        held = [await stack.enter_async_context(http.connect(address.port)) for _ in range(5)]
        for connection in held[:3]:
            await connection.write(post())
            assert (await connection.receive()).status == 200
        for closed in range(3):  # the one that has been idle longest is closed first
            new = await stack.enter_async_context(http.connect(address.port))
            await new.write(post()[:50])
            async with asyncio.timeout(20):
                assert await held[closed].reader.read() == b""
            connections(address)._has_searched = False  # as after the next sweep
        assert (await send_raw(address.port)).statuses == [503]
        for connection in held[3:]:
            await connection.write(post())
            assert (await connection.receive()).status == 200
    assert len(log.records) == 1


async def test_a_flood_of_invalid_requests_is_logged_once(log: pytest.LogCaptureFixture) -> None:
    async with running(server()) as address:
        for _ in range(20):
            assert (await send_raw(address.port, b"\0\0\0\0")).statuses == [400]
    assert [record.getMessage() for record in log.records] == [
        "Refused an HTTP request with 400. This is not valid HTTP."
    ]


class Fake:
    """A connection that does nothing."""

    unread_bytes = 0
    unread_since = 0.0
    idle_until = None
    transport: Any = None

    def expire(self) -> None:
        """Never called."""


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("10.0.0.1", "10.0.0.2", False),
        ("10.0.0.1", "::ffff:10.0.0.1", True),
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("fe80::1%eth0", "fe80::2%eth0", True),
        ("unknown", "::strange::", False),
    ],
)
async def test_connections_are_counted_by_address(one: str, other: str, same: bool) -> None:
    counted = Connections(Limits(max_connections_per_address=1))
    first, second = Fake(), Fake()
    assert counted.admit(first, (one, 1)) is None
    assert (counted.admit(second, (other, 1)) is not None) == same
    assert (stranger_at((one, 1)).share == stranger_at((other, 1)).share) == same
    counted.leave(first)
    counted.leave(second)
    assert counted.admit(second, (other, 1)) is None
    assert counted.admit(Fake(), None) is None


@pytest.mark.parametrize(("descriptors", "admitted"), [(None, 10), (1000, 10), (12, 9), (2, 2), (1, 1)])
async def test_connections_leave_descriptors_to_others(
    descriptors: int | None, admitted: int, log: pytest.LogCaptureFixture
) -> None:
    counted = Connections(Limits(max_connections=10, max_connections_per_address=10), descriptors)
    assert [counted.admit(Fake(), None) for _ in range(10)].count(None) == admitted
    assert ("the process may have only" in log.text) == (admitted < 10)


async def test_exhausted_descriptors_are_logged_once(
    monkeypatch: pytest.MonkeyPatch, log: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> int:
        raise OSError(24, "Too many open files")

    async with running(server(head_timeout=0.1)) as address:
        assert (await send_raw(address.port, post(), MARKER)).statuses == SERVED
        monkeypatch.setattr("antiphon.transport.server.http.connections.os.open", fail)
        await until(lambda: "no file descriptor left" in log.text)
        await asyncio.sleep(0.2)
        monkeypatch.undo()
    assert log.text.count("no file descriptor left") == 1


def test_the_limit_of_descriptors_is_raised_to_the_hard_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource")
    given: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "setrlimit", lambda kind, pair: given.append(pair))
    for soft, hard, raised in [
        (1024, 4096, 4096),
        (4096, 4096, 4096),
        (1024, resource.RLIM_INFINITY, 1024 * 1024),
        (1024, 2**30, 1024 * 1024),
    ]:
        monkeypatch.setattr(resource, "getrlimit", lambda kind, pair=(soft, hard): pair)
        assert raise_descriptor_limit() == raised
    assert given == [(4096, 4096), (1024 * 1024, resource.RLIM_INFINITY), (1024 * 1024, 2**30)]


@pytest.fixture(autouse=True)
async def no_warnings_left() -> AsyncIterator[None]:
    """Let aborted connections end before the event loop is closed."""
    yield
    await asyncio.sleep(0)
