"""Events: the same ones come out, however the bytes were cut up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import BadAnswer
from antiphon.wire import sse
from antiphon.wire.sse import Decoder, Event

no_breaks = st.text(st.characters(blacklist_characters="\r\n\0", blacklist_categories=["Cs"]), max_size=20)
events = st.builds(
    Event,
    data=st.lists(no_breaks, min_size=1, max_size=3).map("\n".join),
    name=st.sampled_from(["message", "other"]),
    id=st.none() | no_breaks,
    retry=st.none() | st.integers(0, 10**9),
)
endings = st.sampled_from(["\n", "\r", "\r\n"])


def written(event: Event, ending: str) -> str:
    """An event, as any server may write it."""
    lines = [":a comment"]
    if event.name != "message":
        lines.append(f"event: {event.name}")
    if event.id is not None:
        lines.append(f"id: {event.id}")
    if event.retry is not None:
        lines.append(f"retry: {event.retry}")
    lines += [f"data: {line}" for line in event.data.split("\n")]
    return ending.join([*lines, "", ""])


@given(st.lists(events, max_size=5), endings, st.booleans(), st.data())
def test_any_chunking_gives_the_same_events(
    listed: list[Event], ending: str, bom: bool, data: st.DataObject
) -> None:
    stream = (("\ufeff" if bom else "") + "".join(written(event, ending) for event in listed)).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    decoder = Decoder()
    read = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        read += decoder.feed(stream[start:end])
    assert read == listed


@given(st.lists(events, max_size=3), endings)
def test_byte_by_byte_is_a_chunking_too(listed: list[Event], ending: str) -> None:
    stream = "".join(written(event, ending) for event in listed).encode()
    decoder = Decoder()
    assert [event for byte in stream for event in decoder.feed(bytes([byte]))] == listed


@given(no_breaks, st.none() | no_breaks, st.none() | st.integers(0, 10**9))
def test_what_the_encoder_writes_the_decoder_reads(data: str, id: str | None, retry: int | None) -> None:
    assert Decoder().feed(sse.event(data.encode(), id=id, retry=retry)) == [Event(data, id=id, retry=retry)]


def test_line_ends_may_differ_within_one_stream() -> None:
    assert Decoder().feed(b"data: a\r\ndata: b\rdata: c\n\r\ndata: d\n\n") == [Event("a\nb\nc"), Event("d")]


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (b"data\n\n", [Event("")]),
        (b"data:\n\n", [Event("")]),
        (b"data:a\n\n", [Event("a")]),
        (b"data:  a\n\n", [Event(" a")]),
        (b"data: a\n", []),
        (b": a comment\n\n", []),
        (sse.COMMENT, []),
        (b"event: x\n\n", []),
        (b"event: x\n\ndata: a\n\n", [Event("a")]),
        (b"id: 1\n\n", [Event("", id="1")]),
        (b"id\ndata: a\n\n", [Event("a", id="")]),
        (b"id: a\0b\ndata: a\n\n", [Event("a")]),
        (b"retry: 5\n\n", [Event("", retry=5)]),
        (b"retry: 5x\ndata: a\n\n", [Event("a")]),
        (b"retry: -5\ndata: a\n\n", [Event("a")]),
        ("retry: ٣\ndata: a\n\n".encode(), [Event("a")]),
        (b"unknown: 5\ndata: a\n\n", [Event("a")]),
        (b"data: a\xffb\n\n", [Event("a\ufffdb")]),
        (b"id: 1\ndata: a\n\ndata: b\n\n", [Event("a", id="1"), Event("b")]),
        (b"\n\n\n\ndata: a\n\n", [Event("a")]),
    ],
    ids=repr,
)
def test_fields_are_read_as_the_standard_says(stream: bytes, expected: list[Event]) -> None:
    assert Decoder().feed(stream) == expected


def test_a_byte_order_mark_is_skipped_at_the_beginning_alone() -> None:
    stream = b"\xef\xbb\xbfdata: a\n\n\xef\xbb\xbfdata: b\n\ndata: c\n\n"
    assert Decoder().feed(stream) == [Event("a"), Event("c")]


@pytest.mark.parametrize("line", [b"data: ", b"x", b":"])
def test_a_line_without_end_is_given_up_at_the_bound(line: bytes) -> None:
    decoder = Decoder(limit=1000)
    with pytest.raises(BadAnswer):
        _fed(decoder, [line + b"x" * 200] * 10)


def test_many_lines_of_one_event_are_given_up_at_the_bound() -> None:
    decoder = Decoder(limit=1000)
    with pytest.raises(BadAnswer):
        _fed(decoder, [b"data: " + b"x" * 100 + b"\n"] * 100)


def test_empty_data_lines_of_one_event_are_bounded_too() -> None:
    decoder = Decoder(limit=1000)
    with pytest.raises(BadAnswer):
        _fed(decoder, [b"data:\n" * 1000] * 100)


def test_many_small_events_are_within_the_bound() -> None:
    assert len(_fed(Decoder(limit=1000), [b"data: 0123456789\n\n"] * 1000)) == 1000


def _fed(decoder: Decoder, chunks: list[bytes]) -> list[Event]:
    return [event for chunk in chunks for event in decoder.feed(chunk)]
