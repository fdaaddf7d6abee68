"""Artifacts as files in a folder, which processes and machines may share.

Each principal has a folder of its own, named by a digest, so that nobody finds what is another's. An
artifact is two files: its bytes, and what is known of it, which is written last and makes it exist.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from antiphon.errors import StoreUnavailable
from antiphon.model.artifact import ArtifactRecord
from antiphon.store.artifacts.contract import ArtifactPage, Held, before, cursor_of, evicted, in_chunks

__all__ = ["FileArtifacts"]

T = TypeVar("T")

_ID = re.compile(r"[A-Za-z0-9_-]{1,100}\Z")
_ABANDONED = 3600 * 1000
"""Milliseconds after which bytes without a record are those of a writer that was lost."""
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(ArtifactRecord).decode


class FileArtifacts:
    """A store of artifacts in a folder."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    async def open(self) -> None:
        """Make the folder, if it is not there."""
        await self._run("opened", lambda: self._folder.mkdir(parents=True, exist_ok=True, mode=0o700))

    async def close(self) -> None:
        """There is nothing to close."""

    async def put(self, record: ArtifactRecord, pieces: AsyncIterator[bytes], *, most: int) -> ArtifactRecord:
        """Keep an artifact."""
        data, size = self._path(record.principal, record.id, "data"), 0
        await self._run("written", lambda: data.parent.mkdir(exist_ok=True, mode=0o700))
        try:
            file = await self._run("written", lambda: data.open("wb"))
            try:
                async for chunk in in_chunks(pieces, most):
                    await self._run("written", partial(file.write, chunk))
                    size += len(chunk)
                await self._run("written", file.flush)
                await self._run("written", partial(os.fsync, file.fileno()))
            finally:
                file.close()
            record = msgspec.structs.replace(record, size=size)
            await self._run("written", lambda: self._publish(record))
        except BaseException:
            data.unlink(missing_ok=True)
            raise
        return record

    async def get(self, principal: str, id: str, *, now: int) -> ArtifactRecord | None:
        """What is known of an artifact."""
        if _ID.match(id) is None:
            return None
        record = await self._run("read", lambda: _read(self._path(principal, id, "json")))
        return record if record is not None and record.expires > now else None

    async def read(self, record: ArtifactRecord, offset: int, length: int) -> bytes:
        """Some of its bytes."""
        path = self._path(record.principal, record.id, "data")

        def look() -> bytes:
            try:
                with path.open("rb") as file:
                    file.seek(offset)
                    return file.read(max(length, 0))
            except FileNotFoundError:
                return b""

        return await self._run("read", look)

    async def list(self, principal: str, *, now: int, cursor: str | None, limit: int) -> ArtifactPage:
        """A principal's artifacts, newest first."""
        place = before(cursor)

        def look() -> list[ArtifactRecord]:
            records = (_read(path) for path in self._home(principal).glob("*.json"))
            found = [record for record in records if record is not None and record.expires > now]
            return [record for record in found if (record.created, record.id) < place]

        mine = await self._run("read", look)
        mine.sort(key=lambda record: (record.created, record.id), reverse=True)
        page = tuple(mine[:limit])
        return ArtifactPage(page, cursor_of(page[-1]) if len(mine) > limit else None)

    async def sweep(self, *, now: int, most: int) -> None:
        """Forget what has expired, and what is too much."""
        await self._run("written", lambda: self._sweep(now, most))

    # In a thread

    def _publish(self, record: ArtifactRecord) -> None:
        path = self._path(record.principal, record.id, "json")
        draft = path.with_suffix(".draft")
        draft.write_bytes(_encode(record))
        draft.replace(path)

    def _sweep(self, now: int, most: int) -> None:
        kept: list[Held] = []
        for record in self._records():
            if record.expires <= now:
                self._forget(record.principal, record.id)
            else:
                kept.append(Held(record.principal, record.id, record.created, record.size))
        for gone in evicted(kept, most):
            self._forget(gone.principal, gone.id)
        for path in self._folder.glob("*/*.data"):
            try:
                left = not path.with_suffix(".json").exists()
                if left and path.stat().st_mtime * 1000 < now - _ABANDONED:
                    path.unlink(missing_ok=True)
            except FileNotFoundError:
                continue

    def _records(self) -> Iterator[ArtifactRecord]:
        for path in self._folder.glob("*/*.json"):
            record = _read(path)
            if record is not None:
                yield record

    def _forget(self, principal: str, id: str) -> None:
        for suffix in ("json", "data"):
            self._path(principal, id, suffix).unlink(missing_ok=True)

    def _home(self, principal: str) -> Path:
        return self._folder / hashlib.sha256(principal.encode()).hexdigest()[:32]

    def _path(self, principal: str, id: str, suffix: str) -> Path:
        return self._home(principal) / f"{id}.{suffix}"

    async def _run(self, doing: str, work: Callable[[], T]) -> T:
        try:
            return await asyncio.to_thread(work)
        except OSError as error:
            raise StoreUnavailable(f"The artifacts in {self._folder} cannot be {doing}: {error}.") from error


def _read(path: Path) -> ArtifactRecord | None:
    try:
        return _decode(path.read_bytes())
    except (FileNotFoundError, msgspec.DecodeError):
        return None
