"""Heads that are too large, too many or too slow, and more connections than a server may have."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from antiphon import HttpRequest, Limits, Server
from antiphon.transport.server.http import serve
from antiphon.transport.server.http.connections import (
    SWEEP_SECONDS,
    Connections,
    raise_descriptor_limit,
    stranger_at,
)
from antiphon.transport.server.http.serve import HttpConfig
from tests.hostile.raw import MARKER, PING, post, send_raw
from tests.support import http
from tests.support.loop_time import LoopTime
from tests.support.polling import turns, until
from tests.support.serving import WAYS, Address, running

KIB = 1024
SERVED = [200, 404]
LONG = 600.0
"""A deadline that passes only if a test moves the time."""


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


async def _read_after_deadlines(connection: http.Connection) -> bytes:
    """Move the time until the server has closed a connection, and return what came before."""
    rest = asyncio.create_task(connection.reader.read())
    await LoopTime.here().advance_until(rest.done, 2 * LONG)
    return await rest


async def _pass_deadlines(address: Address) -> None:
    """Move the time until the server has ended a head that is late, and so all that were late before."""
    async with http.connect(address.port) as late:
        await late.write(b"GET /")
        assert (await _read_after_deadlines(late)).startswith(b"HTTP/1.1 408 ")


async def test_a_head_has_a_deadline_from_the_connection_on() -> None:
    async with running(server(head_timeout=LONG)) as address:
        for sent, answer in ((b"", b""), (b"POST /m", b"HTTP/1.1 408 "), (post()[:60], b"HTTP/1.1 408 ")):
            async with http.connect(address.port) as connection:
                await connection.write(sent)
                assert (await _read_after_deadlines(connection))[:13] == answer
        assert (await send_raw(address.port, post(), MARKER)).statuses == SERVED
        await until(lambda: not len(connections(address)))


async def test_a_head_that_comes_byte_by_byte_has_the_same_deadline() -> None:
    async with running(server(head_timeout=LONG)) as address, http.connect(address.port) as connection:
        time, answer = LoopTime.here(), asyncio.create_task(connection.reader.read())
        await connection.write(b"GET /mcp HTTP/1.1\r\n")

        def send_line() -> bool:
            connection.writer.write(b"X: a\r\n")
            return answer.done()

        await time.advance_until(send_line, LONG / 10)
        assert (await answer).startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize("data", [b"P", b"\r\n", post()[:60]], ids=["a byte", "a blank line", "a part"])
async def test_the_next_head_on_a_connection_has_a_deadline_too(data: bytes) -> None:
    async with running(server(head_timeout=LONG)) as address, http.connect(address.port) as connection:
        await connection.write(post())
        assert (await connection.receive()).status == 200
        await connection.write(data)
        rest = await _read_after_deadlines(connection)
        assert rest.startswith(b"" if data == b"\r\n" else b"HTTP/1.1 408 ")


@pytest.mark.parametrize(
    ("rest", "status"),
    [(b"", b"408"), (b"t HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n", b"200")],
)
async def test_a_head_behind_a_running_request_has_its_deadline_after_it(rest: bytes, status: bytes) -> None:
    limited = server(head_timeout=LONG, call_timeout=10**9)
    entered, release = asyncio.Event(), asyncio.Event()

    @limited.route("/wait")
    async def wait(request: HttpRequest) -> str:
        entered.set()
        await release.wait()
        return "done"

    async with running(limited) as address, http.connect(address.port) as connection:
        await connection.write(b"GET /wait HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nGET /wai")
        await entered.wait()
        await _pass_deadlines(address)
        release.set()
        assert (await connection.receive()).body == b"done"
        await connection.write(rest)
        assert (await _read_after_deadlines(connection)).startswith(b"HTTP/1.1 " + status)


async def test_a_connection_that_is_idle_between_requests_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "KEEP_ALIVE_SECONDS", 10**9)
    async with running(server(head_timeout=LONG)) as address, http.connect(address.port) as connection:
        for _ in range(3):
            await connection.write(post())
            assert (await connection.receive()).status == 200
            await _pass_deadlines(address)


CHUNKED = post(b"%x\r\n%s\r\n0\r\n\r\n" % (len(PING), PING), "Transfer-Encoding: chunked")


@pytest.mark.parametrize(
    ("request_bytes", "before"),
    [(post(), 0), (post(), 60), (post(), len(post()) - 10), (CHUNKED, len(CHUNKED) - 20)],
    ids=["all", "its head", "its body", "its body, by ASGI"],
)
async def test_the_time_in_which_the_server_stands_still_does_not_count(
    request_bytes: bytes, before: int
) -> None:
    limited = server(head_timeout=LONG, body_timeout=LONG)
    async with running(limited) as address, http.connect(address.port) as connection:
        await until(lambda: len(connections(address)) == 1)
        time = LoopTime.here()
        with time.stopped():
            await connection.write(request_bytes[:before])
            await turns(50)  # the server reads it
            time.advance(2 * LONG)
            await turns(2)  # turns of the loop in which the rest has not arrived yet
            await connection.write(request_bytes[before:])
            assert (await connection.receive()).status == 200


async def test_a_body_that_was_refused_has_a_deadline() -> None:
    limits = server(head_timeout=LONG, max_body_bytes=100)
    async with running(limits) as address, http.connect(address.port) as connection:
        await connection.write(post(b"x" * 50, length=10**12))
        assert (await connection.receive()).status == 413

        def send_more() -> bool:
            connection.writer.write(b"x" * 1000)
            return connection.writer.is_closing()

        await LoopTime.here().advance_until(send_more, LONG / 10)


@pytest.mark.parametrize("share", [1.0, 0.5])
async def test_slow_heads_do_not_lock_others_out(share: float) -> None:
    """Heads that never end are closed, however many there are."""
    count = 300
    limited = server(head_timeout=LONG, max_connections=int(count / share))
    async with running(limited) as address, AsyncExitStack() as stack:
        slow = [await stack.enter_async_context(http.connect(address.port)) for _ in range(count)]
        for connection in slow:
            connection.writer.write(b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nX-")
        if share < 1:
            assert (await send_raw(address.port, post(), MARKER)).statuses == SERVED
        await LoopTime.here().advance_until(lambda: not len(connections(address)), 2 * LONG)
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
    async with running(server(head_timeout=LONG, **{limit: 3})) as address, AsyncExitStack() as stack:
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


async def test_readiness_is_not_load_and_a_probe_on_a_new_connection_is_refused_like_any_other() -> None:
    async with (
        running(server(max_connections=2, head_timeout=LONG), probes=True) as address,
        http.connect(address.port) as probe,
        http.connect(address.port) as held,
    ):
        await held.write(post()[:50])
        await until(lambda: len(connections(address)) == 2)
        for _ in range(2):
            await probe.send("GET", "/readyz", {})
            assert (await probe.receive()).frame == {"ready": True}
            await probe.write(post()[:50])  # not idle: it keeps its place
            refused = await send_raw(address.port, b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert refused.statuses == [503]
            await probe.write(post()[50:])
            assert (await probe.receive()).status == 200


async def test_idle_connections_make_room_for_new_ones(log: pytest.LogCaptureFixture) -> None:
    time = LoopTime.here()
    async with running(server(max_connections=5, head_timeout=LONG)) as address, AsyncExitStack() as stack:
        held = [await stack.enter_async_context(http.connect(address.port)) for _ in range(5)]
        for connection in held[:3]:
            await connection.write(post())
            assert (await connection.receive()).status == 200
        for closed in range(3):  # the one that has been idle longest is closed first
            new = await stack.enter_async_context(http.connect(address.port))
            await new.write(post()[:50])
            assert await held[closed].reader.read() == b""
            time.advance(2 * SWEEP_SECONDS)  # idle connections are searched once between two sweeps
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
    failed = 0

    def fail(*_: Any) -> int:
        nonlocal failed
        failed += 1
        raise OSError(24, "Too many open files")

    async with running(server(head_timeout=LONG, body_timeout=0.1)) as address:
        assert (await send_raw(address.port, post(), MARKER)).statuses == SERVED
        monkeypatch.setattr("antiphon.transport.server.http.connections.os.open", fail)
        await until(lambda: failed >= 5)
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
    await turns()
