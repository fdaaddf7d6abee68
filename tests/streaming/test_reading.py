"""Finding a segment in a log with a binary search, for every division into entries."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.runtime.tasks.segment_reader import SegmentReader
from antiphon.store import open_store
from tests.streaming.planting import planted


class _Counting:
    """A store that counts reads."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.reads = 0

    async def read(self, *args: Any, **kwargs: Any) -> Any:
        self.reads += 1
        return await self._store.read(*args, **kwargs)


async def read(batches: list[int], after: int, versions: list[int]) -> tuple[list[tuple[int, str]], int]:
    """Read the segments after a number up to each version; return them and the number of reads."""
    store = open_store("memory:")
    await store.open()
    try:
        counting = _Counting(store)
        place = SegmentReader(counting, await planted(store, batches), after)  # type: ignore[arg-type]
        found: list[tuple[int, str]] = []
        for version in versions:
            async for first, blocks in place.up_to(version):
                found += [(number, block["text"]) for number, block in enumerate(blocks, first)]
        return found, counting.reads
    finally:
        await store.close()


sizes = st.lists(st.integers(min_value=0, max_value=5), min_size=1, max_size=300)


@given(sizes=sizes, repeat=st.integers(min_value=1, max_value=6), data=st.data())
@settings(max_examples=100)
def test_reading_from_any_number_gives_exactly_the_rest(
    sizes: list[int], repeat: int, data: st.DataObject
) -> None:
    batches = sizes * repeat
    whole = len(batches) + 2
    after = data.draw(st.integers(min_value=0, max_value=sum(batches) + 3))
    stops = data.draw(st.lists(st.integers(min_value=1, max_value=whole), max_size=3))
    found, _ = asyncio.run(read(batches, after, [*sorted(stops), whole]))
    assert found == [(number, str(number)) for number in range(after + 1, sum(batches) + 1)]


async def test_a_place_is_searched_for_and_not_walked_to() -> None:
    found, reads = await read([1] * 20_000, 19_990, [20_002])
    assert [number for number, _ in found] == list(range(19_991, 20_001))
    assert reads < 20


async def test_a_place_is_found_among_entries_that_hold_no_segments() -> None:
    found, reads = await read([*([1] * 300), *([0] * 5000), *([1] * 300)], 310, [5602])
    assert [number for number, _ in found] == list(range(311, 601))
    assert reads < 400


async def test_one_who_has_everything_reads_only_what_is_new() -> None:
    found, reads = await read([1] * 5000, 5000, [5002])
    assert found == []
    assert reads < 20


async def test_a_place_is_found_before_many_entries_that_hold_no_segments() -> None:
    found, reads = await read([*([1] * 10), *([0] * 1000)], 5, [1012])
    assert [number for number, _ in found] == list(range(6, 11))
    assert reads < 200


async def test_a_log_that_is_gone_has_no_segments() -> None:
    store = open_store("memory:")
    await store.open()
    place = SegmentReader(store, "gone", 5)
    assert [some async for some in place.up_to(1000)] == []
    assert place.last == 5
    await store.close()
