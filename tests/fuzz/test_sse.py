"""Server-sent events: the client's decoder against the standard, and the server's events and buffers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from antiphon import Limits
from antiphon.errors import BadAnswer
from antiphon.runtime.budget import Account, MemoryBudget, Usages
from antiphon.transport.server.http.event_buffer import EventBuffer
from antiphon.wire import jsonrpc, sse
from antiphon.wire.sse import Decoder, Event
from tests.fuzz.strategies import ANY_TEXT, JSON_VALUES, chunked, near, target

PIECES = near(
    b"data", b"data:", b"data: ", b"id: 7", b"id", b"retry: 20", b"retry: x", b"event: other", b":", b" ",
    b"\n", b"\n", b"\r", b"\r\n", b"\n\n", b"\0", b"\xef\xbb\xbf", b"\xc3", b"\xff", b"{}",
)  # fmt: skip
STREAMS = st.lists(PIECES | st.binary(max_size=4), max_size=25).map(b"".join)


@target
@given(chunked(STREAMS))
def test_the_decoder_reads_any_bytes_as_the_standard_says(chunks: Sequence[bytes]) -> None:
    decoder = Decoder()
    read = [event for chunk in chunks for event in decoder.feed(chunk)]
    assert read == by_the_standard(b"".join(chunks))


def by_the_standard(stream: bytes) -> list[Event]:
    """Return the events of a whole stream, read line by line.

    Two differences are deliberate: an event that has only an id or a delay is reported, and an id counts for
    its own event alone.
    """
    text = stream.removeprefix(b"\xef\xbb\xbf")
    lines = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")[:-1]
    events: list[Event] = []
    fields: dict[str, Any] = {}
    for line in lines:
        if line:
            _read_field(line, fields)
            continue
        if fields.keys() & {"data", "id", "retry"}:
            name = fields.get("event") or "message"
            data = "\n".join(fields.get("data", []))
            events.append(Event(data, name, fields.get("id"), fields.get("retry")))
        fields = {}
    return events


def _read_field(line: bytes, fields: dict[str, Any]) -> None:
    name, _, raw = line.partition(b":")
    value = (raw[1:] if raw[:1] == b" " else raw).decode(errors="replace")
    if name == b"data":
        fields.setdefault("data", []).append(value)
    elif name == b"event":
        fields["event"] = value
    elif name == b"id" and "\0" not in value:
        fields["id"] = value
    elif name == b"retry" and value and set(value) <= set("0123456789"):
        fields["retry"] = int(value[:12])


LONG_EVENTS = st.lists(near(b"data: xxxxxx\n", b"data\n", b"id: 1\n", b"x") | PIECES, max_size=25).map(
    b"".join
)


@target
@given(chunked(LONG_EVENTS), st.integers(0, 60))
@example([b"\xef", b"\xbb", b"\xbf"], 0)
def test_the_decoder_keeps_no_more_than_its_limit(chunks: Sequence[bytes], limit: int) -> None:
    decoder = Decoder(limit)
    for chunk in chunks:
        try:
            decoder.feed(chunk)
        except BadAnswer:
            return
        assert decoder.unfinished <= limit


@target
@given(JSON_VALUES, st.none() | ANY_TEXT.filter(lambda text: not set(text) & set("\r\n\0")))
def test_what_the_server_writes_is_one_event_for_every_client(value: Any, id: str | None) -> None:
    frame = jsonrpc.response(1, value)
    assert by_the_standard(sse.event(frame, id=id)) == [Event(frame.decode(), id=id)]


@target
@given(
    st.lists(st.binary(min_size=1, max_size=40).map(lambda data: data.hex().encode()), max_size=12),
    st.integers(1, 6),
    st.integers(1, 300),
    near(0, 200, 500, 100_000),
    st.integers(-2, 15),
)
def test_a_resumed_stream_has_every_event_after_the_last_one_or_is_refused(
    sent: list[bytes], events: int, size: int, memory: int, after: int
) -> None:
    limits = Limits(max_replay_events=events, max_replay_bytes=size, max_memory_bytes=memory)
    budget = MemoryBudget(limits, Usages())
    account = Account(budget, "")
    buffer = EventBuffer(limits, account)
    written = [buffer.add(data) for data in sent]
    buffer.end()
    kept = [event for _, event in buffer.events]
    assert len(kept) <= events
    assert len(kept) <= 1 or sum(map(len, kept)) <= size
    assert sum(map(len, kept)) <= budget.reserved <= memory
    if buffer.can_resume(after):
        assert asyncio.run(_follow(buffer, after)) == written[after:]
    else:
        assert not 0 <= after <= len(sent) or after < len(sent) - len(kept)
    buffer.evict()
    assert budget.reserved == 0


async def _follow(buffer: EventBuffer, after: int) -> list[bytes]:
    return [event async for event in buffer.follow(after)]
