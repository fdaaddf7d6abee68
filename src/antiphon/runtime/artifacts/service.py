"""The artifacts of a server: kept for whoever called, found again by id, listed and read as resources.

Owns the store, its bounds, and the words that go out with an artifact. Whose an artifact is, is said to
the store with every question, so that an id of somebody else's is an id of nothing.
"""

from __future__ import annotations

import asyncio
import base64
import codecs
import functools
import logging
import os
import re
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, get_args, get_origin

import msgspec
import pydantic

from antiphon.errors import Failure, InvalidParams, ResourceNotFound, TooLarge, UnknownArtifact
from antiphon.model.artifact import ArtifactRecord
from antiphon.model.catalog import Definition, ResourceDefinition
from antiphon.model.content import BlobContents, Contents, ResourceLink, Text, TextContents
from antiphon.model.outcome import Page, Result
from antiphon.runtime.artifacts.artifact import Artifact, Piece, encode
from antiphon.runtime.authoring.resource import Resource
from antiphon.runtime.authoring.results import custom_text
from antiphon.runtime.authoring.signature import explain
from antiphon.runtime.execution.call import Call
from antiphon.runtime.execution.context import Context
from antiphon.runtime.execution.executor import ThreadExecutor
from antiphon.runtime.limits import Limits
from antiphon.store import is_database_url
from antiphon.store.artifacts import ArtifactStore, open_artifacts

__all__ = ["ArtifactService"]

logger = logging.getLogger("antiphon")

_MAX_INLINE_BYTES = 16 * 1024
"""How many bytes the value of an artifact may have, to be in the structured content as well."""
_PREVIEW_CHARACTERS = 1000
"""How many characters of a long result are in the content."""
_SWEEP_INTERVAL_SECONDS = 5.0
"""Seconds between two looks for what has expired or is too much."""
_CURSOR_PREFIX = "artifacts:"
_dumps = msgspec.json.Encoder().encode
_loads = msgspec.json.Decoder().decode


class ArtifactService:
    """What one server keeps for its callers."""

    def __init__(
        self,
        name: str,
        setting: str | ArtifactStore | None,
        default: Callable[[], Any],
        limits: Limits,
        threads: ThreadExecutor,
    ) -> None:
        self.setting = setting if setting is not None else os.environ.get("ANTIPHON_ARTIFACTS") or None
        """Where artifacts are to be kept; in the file of the tasks, or in memory, if nothing is said."""
        self._default = default
        self._threads = threads
        self._limits = limits
        self._store: ArtifactStore | None = None
        self._opening = asyncio.Lock()
        self._swept_at = float("-inf")
        self._bytes_since_sweep = 0
        self._last_created = 0
        self.enabled = setting is not None
        """Whether callers are told that there are artifacts."""
        self.on_enabled: Callable[[], None] = lambda: None
        """Called when there is one, and there were to be none."""
        host = re.sub(r"[^A-Za-z0-9._-]+", "-", name) or "server"
        self._base = f"artifact://{host}/"
        self._ui_base = f"ui://{host}/"

    @functools.cached_property
    def resources(self) -> tuple[Resource, ...]:
        """The addresses at which artifacts are read: their own, and the one for user interfaces."""
        return tuple(
            Resource(
                self.read,
                self._threads,
                f"{base}{{artifact_id}}{{?offset,length}}",
                name="artifact",
                title="Artifacts of your calls",
            )
            for base in (self._base, self._ui_base)
        )

    def resources_for(self, uri: str) -> tuple[Resource, ...]:
        """Where to look for an address, whether there are artifacts or not: another process may have them."""
        return self.resources if uri.startswith((self._base, self._ui_base)) else ()

    async def close(self) -> None:
        """Let the store go."""
        store, self._store = self._store, None
        if store is not None:
            await store.close()

    # Going out

    async def store_result(self, result: Result, call: Call[Any], tool: str, over: int | None) -> Result:
        """Keep what a result brings to be kept, or what is too much of it, and say where it is."""
        artifact, whole = result.artifact, None
        if artifact is None:
            if over is None or result.is_error or (size := _size(result)) <= over:
                return result
            whole = result.data if result.structured else _text(result)
            artifact = Artifact(
                whole, type=f"{tool}_result", mime_type=None if result.structured else "text/markdown"
            )
            preview = _text(result) if len(_text(result)) <= over else _preview(_text(result), size)
        assert isinstance(artifact, Artifact)
        record, start = await self._store_artifact(artifact, call.principal.id)
        reference: dict[str, Any] = {
            "x-artifact-type": record.type,
            "artifact_id": record.id,
            "size": record.size,
        }
        if result.next_steps:
            reference["next_steps"] = list(result.next_steps)
        if whole is not None:
            pictures = tuple(block for block in result.content if not isinstance(block, Text))
            result.content = (Text(f"{preview}\n\n{_id_line(record)}"), *pictures)
            result.data, result.structured, result.boxed = reference, True, result.boxed and result.structured
        elif not result.structured:
            if record.encoding == "json" and record.size <= _MAX_INLINE_BYTES:
                reference["artifact"] = _loads(await self._bytes(record))
            result.data, result.structured, result.boxed = reference, True, False
        if not any(isinstance(block, Text) for block in result.content):
            start = custom_text(artifact.value) or start
            result.content = (Text(f"{_preview(start, record.size)}\n\n{_id_line(record)}"), *result.content)
        result.content = (*result.content, self._link(record))
        result.meta = {"artifact_id": record.id, "ui_uri": self._ui_base + record.id, **(result.meta or {})}
        result.artifact = None
        return result

    async def _store_artifact(self, artifact: Artifact[Any], principal: str) -> tuple[ArtifactRecord, str]:
        """Keep an artifact; gives how it begins, too."""
        store = await self._open_store()
        self._last_created = now = max(
            _now(), self._last_created + 1
        )  # so that those made together have an order
        encoding, mime, pieces = encode(artifact)
        source = _Source(pieces)
        first = await source.first()
        if encoding is None:
            is_text = isinstance(first, str) or (mime or "").startswith("text/") or mime == "application/json"
            encoding = "text" if is_text else "blob"
            mime = mime or ("text/plain" if is_text else "application/octet-stream")
        lifetime = self._limits.artifact_lifetime if artifact.ttl is None else artifact.ttl
        record = ArtifactRecord(
            id=artifact.id,
            principal=principal,
            type=artifact.type,
            encoding=encoding,
            mime_type=mime or "application/octet-stream",
            created=now,
            expires=now + int(lifetime * 1000),
            title=artifact.title,
            description=artifact.description,
        )
        most = self._limits.max_artifact_bytes
        try:
            record = await store.put(record, source.bytes(), max_bytes=most)
        except TooLarge:
            raise Failure(
                f"The result has more than {most} bytes, which is more than is kept: ask for less."
            ) from None
        await self._sweep(store, record.size)
        if not self.enabled:
            self.enabled = True
            self.on_enabled()
        return record, _readable(
            first
        ) if encoding != "blob" else f"{record.size} bytes of {record.mime_type}."

    async def _sweep(self, store: ArtifactStore, size: int) -> None:
        """Now and then, and before there is much too much, look for what is to be forgotten."""
        self._bytes_since_sweep += size
        at, most = time.monotonic(), self._limits.max_stored_artifact_bytes
        if at - self._swept_at > _SWEEP_INTERVAL_SECONDS or self._bytes_since_sweep > most // 16:
            self._swept_at, self._bytes_since_sweep = at, 0
            await store.sweep(now=_now(), max_total_bytes=most)

    def _link(self, record: ArtifactRecord) -> ResourceLink:
        return ResourceLink(
            uri=self._base + record.id,
            name=f"{record.type}-{record.id[:8]}",
            title=record.title,
            description=record.description,
            mime_type=record.mime_type,
            size=record.size,
        )

    # Coming back

    async def resolve(self, arguments: dict[str, Any], call: Call[Any]) -> dict[str, Any]:
        """The arguments with the artifacts that their ids stand for; raises `UnknownArtifact`."""
        return {name: await self._resolved(value, call) for name, value in arguments.items()}

    async def _resolved(self, value: Any, call: Call[Any]) -> Any:
        if isinstance(value, Artifact):
            return await self._load(value, call.principal.id)
        if isinstance(value, list):
            return [await self._resolved(item, call) for item in value]
        if isinstance(value, dict):
            return {key: await self._resolved(item, call) for key, item in value.items()}
        return value

    async def _load(self, artifact: Artifact[Any], principal: str) -> Artifact[Any]:
        store = await self._open_store()
        record = await store.get(principal, artifact.id, now=_now())
        if record is None:
            raise UnknownArtifact(
                f"There is no artifact {artifact.id!r}: it has expired, or never was. "
                "Call the tool that makes it once more, and use the artifact_id that it gives."
            )
        artifact.type, artifact.title, artifact.description = record.type, record.title, record.description
        artifact.mime_type = record.mime_type
        hint = artifact._hint
        if get_origin(hint) is not None and issubclass(get_origin(hint) or object, AsyncIterator):
            artifact._value = self._pieces(record, texts=get_args(hint)[:1] == (str,))
            return artifact
        raw = await self._bytes(record)
        try:
            artifact._value = _value(record, raw, hint)
        except (pydantic.ValidationError, UnicodeDecodeError) as error:
            problems = explain(error) if isinstance(error, pydantic.ValidationError) else "- it is no text"
            raise UnknownArtifact(
                f"The artifact {record.id!r} is a {record.type}, which is not what this takes:\n{problems}"
            ) from None
        return artifact

    async def _pieces(self, record: ArtifactRecord, *, texts: bool) -> AsyncIterator[Any]:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        for offset in range(0, record.size, self._limits.artifact_page_bytes):
            raw = await (await self._open_store()).read(record, offset, self._limits.artifact_page_bytes)
            yield decoder.decode(raw) if texts else raw

    async def _bytes(self, record: ArtifactRecord) -> bytes:
        return await (await self._open_store()).read(record, 0, record.size)

    # As resources

    async def read(self, artifact_id: str, ctx: Context, offset: int = 0, length: int = 0) -> Contents:
        """An artifact, or a stretch of it; `_meta` says where the next one is."""
        store = await self._open_store()
        record = await store.get(ctx.principal.id, artifact_id, now=_now())
        uri = str(ctx._call.request.uri).partition("?")[0]
        if record is None:
            raise ResourceNotFound(f"Resource not found: {uri}", data={"uri": uri})
        if offset < 0 or length < 0:
            raise InvalidParams("offset and length count bytes: neither can be negative.", data={"uri": uri})
        page = min(length or record.size, self._limits.artifact_page_bytes)
        raw = await store.read(record, offset, page)
        text = None if record.encoding == "blob" else _characters(raw, last=offset + len(raw) >= record.size)
        end = offset + (len(raw) if text is None else text[1])
        meta: dict[str, Any] = {"artifact_id": record.id, "x-artifact-type": record.type, "size": record.size}
        if (offset, end) != (0, record.size):
            meta |= {"offset": offset, "length": end - offset}
        if end < record.size:
            meta["next"] = f"{uri}?offset={end}&length={page}"
        if text is None:
            return BlobContents(uri, base64.b64encode(raw).decode(), record.mime_type, meta)
        return TextContents(uri, text[0], record.mime_type, meta)

    async def page(self, list_registered: Callable[[str | None], Page], call: Call[Any], size: int) -> Page:
        """A page of all resources: those that everybody sees, and then the caller's artifacts."""
        cursor: str | None = call.request.cursor
        items: tuple[Definition, ...] = ()
        before, ttl = None, 0
        if cursor is not None and cursor.startswith(_CURSOR_PREFIX):
            before = cursor.removeprefix(_CURSOR_PREFIX) or None
        else:
            page = list_registered(cursor)
            if page.next_cursor is not None:
                return page
            items, ttl = tuple(page.items), page.ttl_ms
        room = max(size - len(items), 1)
        try:
            found = await (await self._open_store()).list(
                call.principal.id, now=_now(), cursor=before, limit=room
            )
        except ValueError:
            raise InvalidParams(
                "That cursor is not one that this server gave out: start again without one."
            ) from None
        following = None if found.cursor is None else _CURSOR_PREFIX + found.cursor
        return Page(
            "resources", (*items, *map(self._definition, found.records)), following, ttl, shared=False
        )

    def _definition(self, record: ArtifactRecord) -> ResourceDefinition:
        link = self._link(record)
        meta = {"artifact_id": record.id, "x-artifact-type": record.type, "ui_uri": self._ui_base + record.id}
        return ResourceDefinition(
            uri=link.uri,
            name=link.name,
            title=link.title,
            description=link.description,
            mime_type=link.mime_type,
            size=link.size,
            meta=meta,
        )

    async def _open_store(self) -> ArtifactStore:
        """The store, opened when it is first needed; raises `StoreUnavailable`."""
        if self._store is None:
            async with self._opening:
                if self._store is None:
                    wanted = self.setting if self.setting is not None else _default_location(self._default())
                    store = open_artifacts(wanted) if isinstance(wanted, str) else wanted
                    await store.open()
                    self._store = store
        return self._store


class _Source:
    """Pieces of a value, the first of which is looked at before the others."""

    def __init__(self, pieces: AsyncIterator[Piece]) -> None:
        self._pieces = pieces
        self._first: Piece = b""

    async def first(self) -> Piece:
        """The first piece; empty if there is none."""
        self._first = await anext(self._pieces, b"")
        return self._first

    async def bytes(self) -> AsyncIterator[bytes]:
        """All of it."""
        yield _raw(self._first)
        async for piece in self._pieces:
            yield _raw(piece)


def _raw(piece: Piece) -> bytes:
    return piece.encode() if isinstance(piece, str) else piece


def _value(record: ArtifactRecord, raw: bytes, hint: Any) -> Any:
    """The value of an artifact, as the type that a function wants."""
    if hint is bytes:
        return raw
    if hint is str:
        return raw.decode()
    if record.encoding == "json":
        return _loads(raw) if hint is Any else pydantic.TypeAdapter(hint).validate_json(raw)
    value: Any = raw.decode() if record.encoding == "text" else raw
    if record.mime_type == "application/json" and hint is not Any:
        return pydantic.TypeAdapter(hint).validate_json(raw)
    return value if hint is Any else pydantic.TypeAdapter(hint).validate_python(value, strict=True)


def _characters(raw: bytes, *, last: bool) -> tuple[str, int]:
    """The whole characters in some bytes of a text, and how many of the bytes those take, or skip."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    start = 0
    while start < min(len(raw), 3) and raw[start] & 0xC0 == 0x80:
        start += 1
    text = decoder.decode(raw[start:], final=last)
    return text, len(raw) - len(decoder.getstate()[0])


def _default_location(store: Any) -> str:
    """Where artifacts go if nobody says: beside the tasks, if those are in a database."""
    if isinstance(store, str) and is_database_url(store):
        return store
    if store not in (None, "memory:"):
        logger.warning(
            "Artifacts are kept in the memory of this process, where no other finds them. "
            "Set ANTIPHON_ARTIFACTS, or Server(artifacts=…), to a file or a folder that all share."
        )
    return "memory:"


def _size(result: Result) -> int:
    """About how many bytes a result has to read, or to parse if that is more."""
    text = sum(len(block.text) for block in result.content if isinstance(block, Text))
    return max(text, len(_dumps(result.data))) if result.structured else text


def _text(result: Result) -> str:
    return "\n\n".join(block.text for block in result.content if isinstance(block, Text))


def _readable(piece: Piece) -> str:
    return piece if isinstance(piece, str) else piece.decode(errors="replace")


def _preview(text: str, size: int) -> str:
    """How a long text begins, cut at the end of a line if there is one near."""
    if len(text) <= _PREVIEW_CHARACTERS:
        return text
    cut = text[:_PREVIEW_CHARACTERS]
    line = cut.rfind("\n", _PREVIEW_CHARACTERS // 2)
    return f"{cut[: line if line > 0 else None]}\n\n… (this is the preview of {size:,} bytes)"


def _id_line(record: ArtifactRecord) -> str:
    return f"**Artifact ID:** `{record.id}`"


def _now() -> int:
    return int(time.time() * 1000)
