"""A head that was parsed before is not parsed again, and nothing passes that the parser would refuse."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
import pytest_asyncio

from antiphon import Limits, Principal, Server
from antiphon.transport.server.http import known_heads
from antiphon.transport.server.http.known_heads import ConnectionHeads, Head, KnownHeads, read_head
from antiphon.transport.server.http.protocol import HttpProtocol
from tests.hostile.raw import MARKER, PING, post, read_statuses
from tests.support.http import TIMEOUT_SECONDS
from tests.support.loop_time import LoopTime
from tests.support.polling import turns, until
from tests.support.serving import Address, running

LONG = 600.0
"""A deadline that passes only if a test moves the time."""
USUAL = "Accept: application/json, text/event-stream"
LONGER = PING.replace(b"1,", b"123456,")


def build(**options: Any) -> Server:
    server = Server("heads", limits=Limits(body_timeout=LONG, head_timeout=LONG), **options)

    @server.tool
    async def add(a: int, b: int) -> str:
        return str(a + b)

    return server


@pytest_asyncio.fixture
async def where() -> AsyncIterator[Address]:
    async with running(build()) as address:
        yield address


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The targets of the requests whose heads were parsed."""
    targets: list[bytes] = []
    complete = HttpProtocol.on_headers_complete

    def note(self: HttpProtocol) -> None:
        targets.append(self.url)
        complete(self)

    monkeypatch.setattr(HttpProtocol, "on_headers_complete", note)
    return targets


def shared(where: Address) -> KnownHeads:
    """Return the heads that the connections of a server share."""
    heads: KnownHeads = where.runner.config.known_heads  # type: ignore[attr-defined]
    return heads


async def exchange(port: int, *parts: bytes) -> list[bytes]:
    """Send parts on one connection, each after the answer to the one before; return the answers.

    Behind the last part the marker is sent, mostly in data of its own, and its answer is all that comes until
    the server closes the connection.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answers = []
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            for part in parts[:-1]:
                writer.write(part)
                head = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"content-length: (\d+)", head)
                assert length is not None
                answers.append(head + await reader.readexactly(int(length[1])))
        writer.write(parts[-1])
        await turns(20)
        writer.write(MARKER)
        rest = asyncio.create_task(reader.read(-1))
        await turns(50)  # what needs no time has been answered
        await LoopTime.here().advance_until(rest.done, 2 * LONG)
        answers.append(await rest)
    finally:
        writer.transport.abort()
    return answers


async def both_ways(where: Address, monkeypatch: pytest.MonkeyPatch, *parts: bytes) -> list[list[bytes]]:
    """Return the answers of a server that knows heads, and of the same server that parses every head."""
    found = [await exchange(where.port, *parts)]
    with monkeypatch.context() as patch:
        patch.setattr(ConnectionHeads, "find", lambda self, data: None)
        found.append(await exchange(where.port, *parts))
    return [[re.sub(rb"\r\ndate: [^\r]*", b"", answer) for answer in answers] for answers in found]


async def test_a_head_is_parsed_once_whatever_the_length_of_the_body(
    where: Address, parsed: list[bytes]
) -> None:
    answers = await exchange(where.port, post(PING, USUAL), post(LONGER, USUAL), post(PING, USUAL))
    assert [read_statuses(answer) for answer in answers] == [[200], [200], [200, 404]]
    assert b'"id":123456' in answers[1]
    assert parsed == [b"/mcp", b"/marker"]


async def test_connections_share_heads(where: Address, parsed: list[bytes]) -> None:
    for _ in range(3):
        await exchange(where.port, post(PING, USUAL), post(LONGER, USUAL))
    assert parsed.count(b"/mcp") == 1
    assert len(shared(where)) == 1


async def test_a_client_that_changes_between_heads_is_parsed_once_for_each(
    where: Address, parsed: list[bytes]
) -> None:
    requests = [post(PING, USUAL, f"User-Agent: {number % 3}") for number in range(9)]
    await exchange(where.port, *requests)
    assert parsed.count(b"/mcp") == 3


async def test_a_connection_whose_heads_all_differ_gives_up(where: Address, parsed: list[bytes]) -> None:
    requests = [post(PING, USUAL, f"X-Trace: {number}") for number in range(known_heads.MAX_MISSES)]
    again = [post(PING, USUAL), post(LONGER, USUAL)]
    await exchange(where.port, *requests[2:], *again)
    assert parsed.count(b"/mcp") == len(requests[2:]) + 1
    parsed.clear()
    await exchange(where.port, *requests, *again)
    assert parsed.count(b"/mcp") == len(requests) + len(again)


async def test_a_head_that_differs_in_one_byte_is_parsed(
    where: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = post(PING, USUAL)
    size = usual.index(PING)
    for place in range(size):
        changed = bytearray(usual)
        changed[place] ^= 1
        known, other = await both_ways(where, monkeypatch, usual, bytes(changed))
        assert known == other, bytes(changed)
        changed[place] ^= 0x21  # letters change their case, and digits become others
        known, other = await both_ways(where, monkeypatch, usual, bytes(changed))
        assert known == other, bytes(changed)


@pytest.mark.parametrize(
    "length",
    ["+{}", "-{}", " {}", "{} ", "\t{}", "0{}", "000{}", "{}.0", "{},{}", "0x{}", "{}_", "", "99999", "1e1"],
)
async def test_a_length_that_is_spelled_otherwise_is_for_the_parser(
    where: Address, monkeypatch: pytest.MonkeyPatch, length: str
) -> None:
    usual = post(PING, USUAL)
    before = b"Content-Length: %d" % len(PING)
    assert before in usual
    spelled = f"Content-Length: {length.replace('{}', str(len(PING)))}".encode()
    known, other = await both_ways(where, monkeypatch, usual, usual.replace(before, spelled))
    assert known == other


@pytest.mark.parametrize("first", [len(PING), len(PING) - 1, 0])
async def test_a_head_with_two_lengths_is_refused(
    where: Address, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    usual = post(PING, USUAL)
    twice = post(PING, USUAL, f"Content-Length: {first}", f"content-length: {len(PING)}")
    known, other = await both_ways(where, monkeypatch, usual, twice)
    assert known == other
    assert read_statuses(known[-1]) == [400]


@pytest.mark.parametrize("length", [0, 1, len(PING) - 1, len(PING) + 1, 9999])
async def test_a_body_is_as_long_as_announced(
    where: Address, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    usual = post(PING, USUAL)
    wrong = post(PING, USUAL, length=length)
    known, other = await both_ways(where, monkeypatch, usual, wrong)
    assert known == other


async def test_a_body_that_looks_like_a_known_request_is_a_body(where: Address) -> None:
    usual = post(PING, USUAL)
    outer = post(usual, USUAL)
    start = outer.index(usual)
    reader, writer = await asyncio.open_connection("127.0.0.1", where.port)
    writer.write(usual)
    assert b"200 OK" in await reader.readuntil(b"}}")
    deadlines = where.runner.config.connections.deadlines  # type: ignore[attr-defined]
    assert not deadlines
    writer.write(outer[:start])
    await until(lambda: deadlines)  # the head has arrived, the body has not
    async with asyncio.timeout(TIMEOUT_SECONDS):
        writer.write(outer[start:])
        answers = await reader.readuntil(b"}}")
        writer.write(MARKER)
        answers += await reader.read(-1)
    writer.close()
    assert read_statuses(answers) == [400, 404]  # what is sent as a body is not JSON


async def test_a_request_with_a_known_head_waits_for_the_one_before(
    where: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = post(PING, USUAL)
    for last in (usual + usual, usual + usual[:40], usual[:40], b"\r\n" + usual, usual + b"\r\n"):
        known, other = await both_ways(where, monkeypatch, usual, last)
        assert known == other
    known, other = await both_ways(where, monkeypatch, usual + b"\r\n", usual + b"\r", usual)
    assert known == other


async def test_a_head_with_a_secret_is_forgotten_with_its_connection(
    where: Address, parsed: list[bytes]
) -> None:
    for line in (
        "Authorization: Bearer a",
        "cookie: a=b",
        "Mcp-Session-Id: a",
        "X-Api-Key: a",
        "Mcp-Method: tasks/update\r\nMcp-Name: a",
        "Mcp-Method: tasks/get\r\nMcp-Name: a\r\nX-Api-Key: a",
        "Mcp-Name: a",
    ):
        parsed.clear()
        for _ in range(2):
            await exchange(where.port, post(PING, USUAL, line), post(LONGER, USUAL, line))
        assert parsed.count(b"/mcp") == 2
    assert len(shared(where)) == 0


def get_task(id: str, *lines: str) -> bytes:
    return post(PING, USUAL, "Mcp-Method: tasks/get", f"Mcp-Name: {id}", *lines)


async def test_connections_share_the_head_of_requests_about_tasks_without_the_id(
    where: Address, parsed: list[bytes]
) -> None:
    for first, second in (("add_1", "add_2.x-Y"), ("add_3", "add_3")):
        await exchange(where.port, get_task(first), post(PING, USUAL), get_task(second), get_task(first))
    assert parsed.count(b"/mcp") == 2  # with a task, and without one
    assert not any(b"add_" in kept for kept in shared(where).kept)


async def test_the_id_of_a_task_is_the_one_of_its_request() -> None:
    seen: list[tuple[str, str]] = []

    def authenticate(headers: Mapping[str, str]) -> Principal:
        seen.append((headers["mcp-method"], headers["mcp-name"]))
        return Principal("a")

    ids = ["add_1", "add_22", "add_1", "a"]
    async with running(build(authenticate=authenticate)) as where:
        await exchange(where.port, *map(get_task, ids))
        assert len(shared(where)) == 0
    assert seen == [("tasks/get", id) for id in ids]


@pytest.mark.parametrize(
    "id",
    ["", " a", "a ", "a\t", "a b", "a\n", "a\nX: b", "é", "=?base64?YQ==?=", "a" * 257, "a\0", "a:", "a: b"],
)
async def test_an_unusual_id_is_for_the_parser(
    where: Address, monkeypatch: pytest.MonkeyPatch, id: str
) -> None:
    known, other = await both_ways(where, monkeypatch, get_task("a"), get_task(id))
    assert known == other


async def test_an_id_is_only_taken_from_the_header_that_names_the_task(
    where: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = get_task("a", "X-Frame: b")
    moved = post(PING, USUAL, "X-Frame: b", "Mcp-Method: tasks/get", "Mcp-Name: a")
    empty = post(PING, USUAL, "Mcp-Method: tasks/get", "Mcp-Name: ", "X-Frame: b")
    for last in (moved, empty, get_task("", "X-Frame: c"), get_task("a", "X-Frame: "), post(PING, USUAL)):
        known, other = await both_ways(where, monkeypatch, usual, usual, moved, last)
        assert known == other


@pytest.mark.parametrize("line", ["Mcp-Name:", "MCP-NAME: ", "Mcp-Name: ", "mcp-name:\t"])
@pytest.mark.parametrize("method", ["tools/call", "tasks/get"])
async def test_an_empty_name_does_not_let_a_body_grow_beyond_its_length(
    where: Address, monkeypatch: pytest.MonkeyPatch, method: str, line: str
) -> None:
    for more in (b"  ame: GETX\r", b"\r\nmcp-name: GETX\r"):
        body = PING + more
        short = post(body, USUAL, f"Mcp-Method: {method}", line).replace(
            b"Content-Length: %d" % len(body), b"Content-Length: %d" % (len(body) - 4)
        )
        empty = post(PING, USUAL, f"Mcp-Method: {method}", line)
        known, other = await both_ways(where, monkeypatch, empty, empty, short)
        assert known == other


@pytest.mark.parametrize("header", ["User-Agent: name", "X-Name", "Name", "X-Mcp-Name"])
async def test_the_id_is_not_taken_from_a_header_before_it(header: str) -> None:
    seen: list[tuple[str, str]] = []
    name = header.partition(":")[0].lower()

    def authenticate(headers: Mapping[str, str]) -> Principal:
        seen.append((headers[name].strip(), headers["mcp-name"]))
        return Principal("a")

    pairs = [("mine", "mine"), ("mine", "mine"), ("victim", "mine"), ("mine", "victim"), ("", "")]
    async with running(build(authenticate=authenticate)) as where:
        requests = [
            post(PING, USUAL, f"{header}: {other}", "Mcp-Method: tasks/get", f"Mcp-Name: {id}")
            for other, id in pairs
        ]
        await exchange(where.port, *requests)
    prefix = header.partition(": ")[2]
    values = [f"{prefix}: {other}".strip() if prefix else other for other, _ in pairs]
    assert seen == [(value, id) for value, (_, id) in zip(values, pairs, strict=True)]


async def test_an_authenticator_sees_the_headers_of_each_request(parsed: list[bytes]) -> None:
    seen: list[str] = []

    def authenticate(headers: Mapping[str, str]) -> Principal:
        seen.append(headers["content-length"])
        return Principal(headers["x-key"])

    async with running(build(authenticate=authenticate)) as where:
        requests = [post(body, USUAL, "X-Key: a") for body in (PING, LONGER)]
        answers = await exchange(where.port, *requests)
        assert len(shared(where)) == 0
    assert [read_statuses(answer) for answer in answers] == [[200], [200, 404]]
    assert seen == [str(len(PING)), str(len(LONGER))]
    assert parsed.count(b"/mcp") == 1


def head(number: int) -> Head:
    data = post(PING, f"X-Number: {number}")
    found = read_head(data, b"/mcp", {b"content-length": b"%d" % len(PING)}, PING)
    assert found is not None
    return found


def test_so_many_heads_are_kept_and_the_oldest_is_evicted() -> None:
    heads = KnownHeads()
    for number in range(known_heads.MAX_HEADS + 1):
        heads.add(head(number))
    assert len(heads) == known_heads.MAX_HEADS
    assert heads.find(post(PING, "X-Number: 0")) is None
    assert heads.find(post(LONGER, "X-Number: 1")) == head(1)
    assert heads.find(post(LONGER, f"X-Number: {known_heads.MAX_HEADS}")) is not None


def test_a_long_head_is_not_kept() -> None:
    data = post(PING, "X-Long: " + "a" * known_heads.MAX_HEAD_BYTES)
    assert read_head(data, b"/mcp", {b"content-length": b"%d" % len(PING)}, PING) is None


def test_a_head_is_kept_only_as_the_parser_has_read_it() -> None:
    data = post(PING, "X-Strength: 40")  # this is not the length of the body
    assert read_head(data, b"/mcp", {b"content-length": b"40"}, PING) is None
    for headers, body in (({b"content-length": b"1"}, PING), ({b"content-length": b"40"}, PING[1:])):
        assert read_head(post(PING), b"/mcp", headers, body) is None


@pytest.mark.parametrize("blank", [b"\r\n" * 2, b"\r\n" * 4])
async def test_blank_lines_behind_a_body_do_not_become_part_of_its_head(
    where: Address, monkeypatch: pytest.MonkeyPatch, blank: bytes
) -> None:
    """A body of blank lines looks the same wherever it begins. The parser skips those behind it."""
    first = post(blank, USUAL) + blank
    known, parsed_each = await both_ways(
        where, monkeypatch, first, post(blank + PING, USUAL, length=len(PING))
    )
    assert known == parsed_each
    assert len(shared(where)) == 0
