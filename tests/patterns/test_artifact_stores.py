"""The contract of artifact stores."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import msgspec
import pytest

from antiphon.errors import StoreUnavailable, TooLarge
from antiphon.model.artifact import ArtifactRecord
from antiphon.store.artifacts import ArtifactStore, open_artifacts
from antiphon.store.artifacts.contract import CHUNK_BYTES, StoredArtifact, artifacts_to_evict
from tests.patterns.test_artifacts import STORES, place

MAX_BYTES = 10 * CHUNK_BYTES


@pytest.fixture(params=[*STORES, "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ArtifactStore]:
    """A store of each kind."""
    if request.param == "postgres":
        url = request.getfixturevalue("database").url()
    else:
        url = place(request.param, tmp_path)
    found = open_artifacts(url)
    await found.open()
    yield found
    await found.close()


def record(id: str, principal: str = "me", *, created: int = 1, expires: int = 1000) -> ArtifactRecord:
    return ArtifactRecord(
        id=id,
        principal=principal,
        type="note",
        encoding="text",
        mime_type="text/plain",
        created=created,
        expires=expires,
        title="A note",
    )


async def pieces(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def put(store: ArtifactStore, *ids: str, data: bytes = b"x", principal: str = "me") -> None:
    for number, id in enumerate(ids, 1):
        await store.put(record(id, principal, created=number), pieces(data), max_bytes=MAX_BYTES)


async def ids(store: ArtifactStore, principal: str = "me", now: int = 0) -> list[str]:
    page = await store.list(principal, now=now, cursor=None, limit=100)
    return [each.id for each in page.records]


async def test_what_is_kept_is_found(store: ArtifactStore) -> None:
    kept = await store.put(record("a"), pieces(b"ab", b"", b"c"), max_bytes=MAX_BYTES)
    assert kept.size == 3
    assert await store.get("me", "a", now=0) == kept
    assert await store.read(kept, 0, 100) == b"abc"
    assert await store.read(kept, 1, 1) == b"b"
    assert await store.read(kept, 3, 5) == b""
    assert await store.read(kept, 0, 0) == b""


async def test_ranges_over_the_edges_of_pieces(store: ArtifactStore) -> None:
    data = os.urandom(3 * CHUNK_BYTES + 17)
    parts: Iterable[bytes] = (data[at : at + 100_001] for at in range(0, len(data), 100_001))
    kept = await store.put(record("a"), pieces(*parts), max_bytes=MAX_BYTES)
    assert kept.size == len(data)
    for offset, length in (
        (0, len(data)),
        (CHUNK_BYTES - 3, 6),
        (CHUNK_BYTES, CHUNK_BYTES),
        (2 * CHUNK_BYTES - 1, CHUNK_BYTES + 9),
    ):
        assert await store.read(kept, offset, length) == data[offset : offset + length]


async def test_nobody_finds_what_is_another_s(store: ArtifactStore) -> None:
    await put(store, "a", principal="them")
    for id in ("a", "b", "../../a", "", "a/../a"):
        assert await store.get("me", id, now=0) is None
    assert await ids(store) == []
    assert await ids(store, "them") == ["a"]


async def test_one_that_is_kept_again_takes_the_place_of_the_first(store: ArtifactStore) -> None:
    await put(store, "a", data=b"x" * (CHUNK_BYTES + 5))
    await put(store, "a", data=b"theirs", principal="them")
    kept = await store.put(record("a", created=7), pieces(b"again"), max_bytes=MAX_BYTES)
    assert await store.read(kept, 0, 2 * CHUNK_BYTES) == b"again"
    theirs = await store.get("them", "a", now=0)
    assert theirs is not None
    assert await store.read(theirs, 0, 100) == b"theirs"


async def test_what_has_expired_is_gone(store: ArtifactStore) -> None:
    await put(store, "a")
    assert await store.get("me", "a", now=999) is not None
    assert await store.get("me", "a", now=1000) is None
    assert await ids(store, now=1000) == []
    found = await store.get("me", "a", now=0)
    assert found is not None
    await store.sweep(now=1000, max_total_bytes=MAX_BYTES)
    assert await store.get("me", "a", now=0) is None
    assert await store.read(found, 0, 1) == b""


async def test_lists_are_in_pages_newest_first(store: ArtifactStore) -> None:
    await put(store, "a", "b", "c", "d", "e")
    first = await store.list("me", now=0, cursor=None, limit=2)
    assert [each.id for each in first.records] == ["e", "d"]
    second = await store.list("me", now=0, cursor=first.cursor, limit=2)
    third = await store.list("me", now=0, cursor=second.cursor, limit=2)
    assert [each.id for each in (*second.records, *third.records)] == ["c", "b", "a"]
    assert third.cursor is None
    with pytest.raises(ValueError):
        await store.list("me", now=0, cursor="nonsense", limit=2)


async def test_nothing_is_kept_of_what_is_too_large(store: ArtifactStore) -> None:
    with pytest.raises(TooLarge):
        await store.put(
            record("a"), pieces(b"x" * CHUNK_BYTES, b"x" * CHUNK_BYTES), max_bytes=CHUNK_BYTES + 1
        )
    assert await store.get("me", "a", now=0) is None
    assert await store.read(record("a"), 0, 10) == b""
    await put(store, "a")


async def test_whoever_has_most_loses_its_oldest(store: ArtifactStore) -> None:
    await put(store, "a", "b", "c", data=b"x" * 100)
    await put(store, "theirs", data=b"x" * 50, principal="them")
    await store.sweep(now=0, max_total_bytes=260)
    assert await ids(store) == ["c", "b"]
    assert await ids(store, "them") == ["theirs"]


async def test_whoever_has_most_artifacts_loses_its_oldest_if_there_are_too_many(
    store: ArtifactStore,
) -> None:
    await put(store, "theirs", data=b"x" * 1000, principal="them")
    await put(store, *(f"n{number}" for number in range(9)), data=b"")
    await store.sweep(now=0, max_total_bytes=MAX_BYTES, max_artifacts=4)
    assert await ids(store) == ["n8", "n7", "n6"]
    assert await ids(store, "them") == ["theirs"]


async def test_artifacts_without_a_principal_share_by_their_sharer(store: ArtifactStore) -> None:
    for number in range(4):
        near = msgspec.structs.replace(record(f"near{number}", principal=""), sharer="near", created=number)
        await store.put(near, pieces(b"x" * 100), max_bytes=MAX_BYTES)
    far = msgspec.structs.replace(record("far", principal=""), sharer="far", created=0)
    await store.put(far, pieces(b"x" * 90), max_bytes=MAX_BYTES)
    await store.sweep(now=0, max_total_bytes=290)
    assert await ids(store, "") == ["near3", "near2", "far"]


async def test_a_writer_that_breaks_off_leaves_nothing(store: ArtifactStore) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"x" * CHUNK_BYTES
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError):
        await store.put(record("a"), broken(), max_bytes=MAX_BYTES)
    assert await ids(store) == []
    assert await store.read(record("a"), 0, 1) == b""


@pytest.mark.parametrize("url", ["", "memory:x", "sqlite:x.db", "file://x", "redis:///x", "file:///"])
def test_a_url_that_names_no_store_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="memory:"):
        open_artifacts(url)


async def test_a_store_that_cannot_be_opened_says_why(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreUnavailable):
        await open_artifacts(f"file:///{tmp_path}/file/folder").open()
    with pytest.raises(StoreUnavailable):
        await open_artifacts(f"sqlite:///{tmp_path}/none/x.db").open()


def test_the_many_artifacts_of_one_evict_none_of_another_that_has_less() -> None:
    """Also if ten thousand others have a little each: then the work is not theirs times what is evicted."""
    flood = [StoredArtifact("", f"f{number}", number, 50, "flood") for number in range(20_000)]
    others = [StoredArtifact(f"p{number}", "x", 0, 100) for number in range(10_000)]
    gone = artifacts_to_evict([*others, *flood], 1_500_000, 19_000)
    assert {artifact.sharer for artifact in gone} == {"flood"}
    assert gone[0].id == "f0"
    assert len(gone) == 11_000


def test_eviction_is_fair() -> None:
    held = [StoredArtifact("a", str(number), number, 10) for number in range(5)] + [
        StoredArtifact("b", "x", 0, 10)
    ]
    assert [(gone.principal, gone.id) for gone in artifacts_to_evict(held, 30)] == [
        ("a", "0"),
        ("a", "1"),
        ("a", "2"),
    ]
    assert len(artifacts_to_evict(held, 0)) == 6
    assert artifacts_to_evict(held, 60) == []
