"""Artifacts as files in a folder, which processes and machines may share.

Each principal has its own folder, named by a digest of the principal, so that no principal can reach the
files of another. An artifact is two files: its bytes, and its record. The record is written last, and an
artifact exists once its record does. This module knows no database.
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
from antiphon.store.artifacts.contract import (
    MANY,
    ArtifactPage,
    StoredArtifact,
    artifacts_to_evict,
    decode_cursor,
    in_chunks,
    newest_page,
)
from antiphon.store.private_files import make_private_folder, open_private_file, warn_if_public

__all__ = ["FileArtifacts"]

T = TypeVar("T")

_VALID_ID = re.compile(r"[A-Za-z0-9_-]{1,100}\Z")
_ABANDONED_AFTER_MILLISECONDS = 3600 * 1000
"""The age at which bytes without a record are deleted: no writer takes an hour, so their writer has died."""
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(ArtifactRecord).decode


class FileArtifacts:
    """An artifact store in a folder."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    async def open(self) -> None:
        """Create the folder if it does not exist."""
        await self._run("opened", lambda: make_private_folder(self._folder))
        warn_if_public(self._folder)

    async def close(self) -> None:
        """Do nothing: no file stays open."""

    async def put(
        self, record: ArtifactRecord, pieces: AsyncIterator[bytes], *, max_bytes: int
    ) -> ArtifactRecord:
        """Store an artifact."""
        data, size = self._path(record.principal, record.id, "data"), 0
        await self._run("written", lambda: make_private_folder(data.parent))
        try:
            file = await self._run("written", lambda: open_private_file(data))
            try:
                async for chunk in in_chunks(pieces, max_bytes):
                    await self._run("written", partial(file.write, chunk))
                    size += len(chunk)
                await self._run("written", file.flush)
                await self._run("written", partial(os.fsync, file.fileno()))
            finally:
                file.close()
            record = msgspec.structs.replace(record, size=size)
            await self._run("written", lambda: self._write_record(record))
        except BaseException:
            data.unlink(missing_ok=True)
            raise
        return record

    async def get(self, principal: str, id: str, *, now: int) -> ArtifactRecord | None:
        """Return an artifact's record."""
        if _VALID_ID.match(id) is None:
            return None
        record = await self._run("read", lambda: _read_record(self._path(principal, id, "json")))
        return record if record is not None and record.expires > now else None

    async def read(self, record: ArtifactRecord, offset: int, length: int) -> bytes:
        """Return a range of an artifact's bytes."""
        path = self._path(record.principal, record.id, "data")

        def read_range() -> bytes:
            try:
                with path.open("rb") as file:
                    file.seek(offset)
                    return file.read(max(length, 0))
            except FileNotFoundError:
                return b""

        return await self._run("read", read_range)

    async def list(self, principal: str, *, now: int, cursor: str | None, limit: int) -> ArtifactPage:
        """Return a page of a principal's artifacts, newest first."""
        position = decode_cursor(cursor)

        def read_page() -> ArtifactPage:
            records = self._records(self.principal_folder(principal).name)
            return newest_page(records, now=now, position=position, limit=limit)

        return await self._run("read", read_page)

    async def sweep(self, *, now: int, max_total_bytes: int, max_artifacts: int = MANY) -> None:
        """Delete expired artifacts, and evict others beyond the limits."""
        await self._run("written", lambda: self._sweep(now, max_total_bytes, max_artifacts))

    # These methods run in a thread.

    def _write_record(self, record: ArtifactRecord) -> None:
        path = self._path(record.principal, record.id, "json")
        draft = path.with_suffix(".draft")
        with open_private_file(draft) as file:
            file.write(_encode(record))
        draft.replace(path)

    def _sweep(self, now: int, max_total_bytes: int, max_artifacts: int) -> None:
        stored: list[StoredArtifact] = []
        for record in self._records():
            if record.expires <= now:
                self._delete(record.principal, record.id)
            else:
                stored.append(
                    StoredArtifact(record.principal, record.id, record.created, record.size, record.sharer)
                )
        for evicted in artifacts_to_evict(stored, max_total_bytes, max_artifacts):
            self._delete(evicted.principal, evicted.id)
        for path in self._folder.glob("*/*.data"):
            try:
                has_no_record = not path.with_suffix(".json").exists()
                if has_no_record and path.stat().st_mtime * 1000 < now - _ABANDONED_AFTER_MILLISECONDS:
                    path.unlink(missing_ok=True)
            except FileNotFoundError:
                continue

    def _records(self, folder: str = "*") -> Iterator[ArtifactRecord]:
        for path in self._folder.glob(f"{folder}/*.json"):
            record = _read_record(path)
            if record is not None:
                yield record

    def _delete(self, principal: str, id: str) -> None:
        for suffix in ("json", "data"):
            self._path(principal, id, suffix).unlink(missing_ok=True)

    def principal_folder(self, principal: str) -> Path:
        """Return the folder of a principal's artifacts."""
        return self._folder / hashlib.sha256(principal.encode()).hexdigest()[:32]

    def _path(self, principal: str, id: str, suffix: str) -> Path:
        return self.principal_folder(principal) / f"{id}.{suffix}"

    async def _run(self, doing: str, work: Callable[[], T]) -> T:
        try:
            return await asyncio.to_thread(work)
        except OSError as error:
            raise StoreUnavailable(
                f"The artifacts in {self._folder} cannot be {doing}: {error}. "
                "Check the permissions of the folder and the space on its disk."
            ) from error


def _read_record(path: Path) -> ArtifactRecord | None:
    try:
        return _decode(path.read_bytes())
    except (FileNotFoundError, msgspec.DecodeError):
        return None
