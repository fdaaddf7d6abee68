"""Stores the artifacts of calls, loads them by id, and lists and serves them as resources.

Owns the artifact store and its bounds, and the reference to an artifact in a result. Every query names the
caller, so that nobody can read the artifacts of another caller. A reader needs the scopes of the call that
stored an artifact. It must not know how bytes are stored.
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

from antiphon import wall_clock
from antiphon.errors import Failure, InvalidParams, ResourceNotFound, TooLarge, UnknownArtifact
from antiphon.model.artifact import ArtifactRecord
from antiphon.model.catalog import Definition, ResourceDefinition
from antiphon.model.content import BlobContents, Contents, ResourceLink, Text, TextContents
from antiphon.model.identity import Principal
from antiphon.model.outcome import Page, Result
from antiphon.model.ui import APP_MIME_TYPE, UiSettings
from antiphon.runtime.artifacts.artifact import Artifact, Piece, encode, is_artifact_id
from antiphon.runtime.artifacts.viewer import VIEWER_ID, viewer_page
from antiphon.runtime.authoring.resource import Resource
from antiphon.runtime.authoring.results import custom_text
from antiphon.runtime.authoring.signature import explain
from antiphon.runtime.execution.call import Call
from antiphon.runtime.execution.context import Context
from antiphon.runtime.execution.executor import ThreadExecutor
from antiphon.runtime.execution.run import Run
from antiphon.runtime.limits import Limits
from antiphon.runtime.scopes import ScopeCheck, Scoped
from antiphon.store import is_database_url
from antiphon.store.artifacts import ArtifactStore, open_artifacts

__all__ = ["ArtifactService", "whole_characters"]

logger = logging.getLogger("antiphon")

_MAX_INLINE_BYTES = 16 * 1024
"""The size up to which the value of an artifact is also in the structured content of the result."""
_PREVIEW_CHARACTERS = 1000
"""How many characters of a long result the content shows."""
_SWEEP_INTERVAL_SECONDS = 5.0
"""How often artifacts that have expired or exceed the limits are deleted."""
_SWEEP_FRACTION = 16
"""A sweep is also due when the artifacts since the last one take this part of the total limit."""
_BYTES_PER_ARTIFACT = 4096
"""For so many bytes of the total limit, there may be one artifact: many empty ones take space too."""
_MIN_ARTIFACTS = 1000
"""How many artifacts there may be with a small total limit."""
_CURSOR_PREFIX = "artifacts:"
_dumps = msgspec.json.Encoder().encode
_loads = msgspec.json.Decoder().decode


class ArtifactService:
    """The artifacts of one server."""

    def __init__(
        self,
        name: str,
        setting: str | ArtifactStore | None,
        default: Callable[[], Any],
        limits: Limits,
        threads: ThreadExecutor,
        scopes: ScopeCheck,
    ) -> None:
        self.setting = setting if setting is not None else os.environ.get("ANTIPHON_ARTIFACTS") or None
        """Where artifacts are stored. The default is the database of the tasks, or else memory."""
        self._default = default
        self._threads = threads
        self._limits = limits
        self._scopes = scopes
        self._store: ArtifactStore | None = None
        self._opening = asyncio.Lock()
        self._swept_at = float("-inf")
        self._bytes_since_sweep = self._since_sweep = 0
        self._last_created = 0
        self.enabled = setting is not None
        """Whether the server lists artifacts among its resources."""
        self.on_enabled: Callable[[], None] = lambda: None
        """Called when the first artifact is stored on a server that had not enabled artifacts."""
        host = re.sub(r"[^A-Za-z0-9._-]+", "-", name) or "server"
        self._base = f"artifact://{host}/"
        self._ui_base = f"ui://{host}/"

    @functools.cached_property
    def resources(self) -> tuple[Resource, ...]:
        """The resource templates of artifacts: one for `artifact://` URIs and one for `ui://` URIs."""
        return tuple(
            Resource(
                function,
                self._threads,
                f"{base}{{artifact_id}}{{?offset,length}}",
                name="artifact",
                title="Artifacts of your calls",
                mime_type=mime_type,
            )
            for function, base, mime_type in (
                (self.read, self._base, None),
                (self.read_ui, self._ui_base, APP_MIME_TYPE),
            )
        )

    @property
    def viewer_uri(self) -> str:
        """The address of the App that shows the artifact of a tool's result."""
        return self._ui_base + VIEWER_ID

    def resources_for(self, uri: str) -> tuple[Resource, ...]:
        """Return the resource templates for a URI of an artifact, which another process may have stored.

        Apps of the author may have other URIs that begin with `ui://` and the name of the server.
        """
        if uri.startswith(self._ui_base):
            id = uri.removeprefix(self._ui_base).partition("?")[0]
            return self.resources if id == VIEWER_ID or is_artifact_id(id) else ()
        return self.resources if uri.startswith(self._base) else ()

    async def close(self) -> None:
        """Close the artifact store."""
        store, self._store = self._store, None
        if store is not None:
            await store.close()

    # Storing

    async def store_result(self, result: Result, call: Call[Any], tool: Scoped, over: int | None) -> Result:
        """Store the artifact of a result, or a result larger than `over`; return it with a reference."""
        artifact, whole = result.artifact, None
        if artifact is None:
            if over is None or result.is_error or (size := _size(result)) <= over:
                return result
            whole = result.data if result.structured else _text(result)
            artifact = Artifact(
                whole,
                type=f"{tool.definition.name}_result",
                mime_type=None if result.structured else "text/markdown",
            )
            preview = _text(result) if len(_text(result)) <= over else _preview(_text(result), size)
        assert isinstance(artifact, Artifact)
        scopes = self._scopes.needed(tool, call.request.arguments)
        record, start = await self._store_artifact(artifact, call.principal, scopes)
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
                reference["artifact"] = _loads(await self._bytes(record, 0, record.size))
            result.data, result.structured, result.boxed = reference, True, False
        if not any(isinstance(block, Text) for block in result.content):
            start = custom_text(artifact.value) or start
            result.content = (Text(f"{_preview(start, record.size)}\n\n{_id_line(record)}"), *result.content)
        result.content = (*result.content, self._link(record))
        result.meta = {"artifact_id": record.id, "ui_uri": self._ui_base + record.id, **(result.meta or {})}
        result.artifact = None
        return result

    async def _store_artifact(
        self, artifact: Artifact[Any], principal: Principal, scopes: tuple[str, ...]
    ) -> tuple[ArtifactRecord, str]:
        """Store an artifact; return its record and the text that it starts with."""
        store = await self.open_store()
        # Distinct times give artifacts a stable order.
        self._last_created = now = max(_now(), self._last_created + 1)
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
            principal=principal.id,
            type=artifact.type,
            encoding=encoding,
            mime_type=mime or "application/octet-stream",
            created=now,
            expires=now + int(lifetime * 1000),
            title=artifact.title,
            description=artifact.description,
            scopes=scopes,
            sharer="" if principal.id else principal.share,
        )
        most = self._limits.max_artifact_bytes
        try:
            record = await store.put(record, source.bytes(), max_bytes=most)
        except TooLarge:
            raise Failure(
                f"The result exceeds the limit of {most} bytes for an artifact: ask for less."
            ) from None
        await self._sweep(store, record.size)
        if not self.enabled:
            self.enabled = True
            self.on_enabled()
        if encoding == "blob":
            return record, f"{record.size} bytes of {record.mime_type}."
        return record, _readable(first)

    async def _sweep(self, store: ArtifactStore, size: int) -> None:
        """Delete artifacts beyond the limits, if the last sweep was some time or many bytes ago."""
        self._bytes_since_sweep += size
        self._since_sweep += 1
        at, max_total = time.monotonic(), self._limits.max_stored_artifact_bytes
        is_overdue = at - self._swept_at > _SWEEP_INTERVAL_SECONDS
        most = max(_MIN_ARTIFACTS, max_total // _BYTES_PER_ARTIFACT)
        is_large = self._bytes_since_sweep > max_total // _SWEEP_FRACTION
        if is_overdue or is_large or self._since_sweep > most // _SWEEP_FRACTION:
            self._swept_at, self._bytes_since_sweep, self._since_sweep = at, 0, 0
            await store.sweep(now=_now(), max_total_bytes=max_total, max_artifacts=most)

    def _link(self, record: ArtifactRecord) -> ResourceLink:
        return ResourceLink(
            uri=self._base + record.id,
            name=f"{record.type}-{record.id[:8]}",
            title=record.title,
            description=record.description,
            mime_type=record.mime_type,
            size=record.size,
        )

    # Loading

    async def resolve(self, arguments: dict[str, Any], call: Call[Any], run: Run) -> dict[str, Any]:
        """Return the arguments with artifacts loaded by their ids; raises `UnknownArtifact`.

        The function may read those that come in pieces while it runs: `run` waits while the store is away.
        """
        return {name: await self._resolved(value, call, run) for name, value in arguments.items()}

    async def _resolved(self, value: Any, call: Call[Any], run: Run) -> Any:
        if isinstance(value, Artifact):
            return await self._load(value, call.principal, run)
        if isinstance(value, list):
            return [await self._resolved(item, call, run) for item in value]
        if isinstance(value, dict):
            return {key: await self._resolved(item, call, run) for key, item in value.items()}
        return value

    async def _load(self, artifact: Artifact[Any], principal: Principal, run: Run) -> Artifact[Any]:
        store = await self.open_store()
        record = await store.get(principal.id, artifact.id, now=_now())
        if record is None:
            raise UnknownArtifact(
                f"There is no artifact {artifact.id!r}: it has expired, or never existed. "
                "Call the tool that creates it again, and use the artifact_id of the new result."
            )
        self._check_scopes(record, principal)
        artifact.type, artifact.title, artifact.description = record.type, record.title, record.description
        artifact.mime_type = record.mime_type
        hint = artifact._hint
        if get_origin(hint) is not None and issubclass(get_origin(hint) or object, AsyncIterator):
            artifact._value = self._pieces(record, run, texts=get_args(hint)[:1] == (str,))
            return artifact
        raw = await self._bytes(record, 0, record.size)
        try:
            artifact._value = _value(record, raw, hint)
        except (pydantic.ValidationError, UnicodeDecodeError) as error:
            problems = explain(error) if isinstance(error, pydantic.ValidationError) else "- it is not text"
            raise UnknownArtifact(
                f"The artifact {record.id!r} of type {record.type!r} does not fit this parameter:\n{problems}"
            ) from None
        return artifact

    async def _pieces(self, record: ArtifactRecord, run: Run, *, texts: bool) -> AsyncIterator[Any]:
        decoder, page = codecs.getincrementaldecoder("utf-8")("replace"), self._limits.artifact_page_bytes
        for offset in range(0, record.size, page):
            raw = await run.reach(functools.partial(self._bytes, record, offset, page))
            yield decoder.decode(raw) if texts else raw

    async def _bytes(self, record: ArtifactRecord, offset: int, length: int) -> bytes:
        return await (await self.open_store()).read(record, offset, length)

    # Serving as resources

    async def read(self, artifact_id: str, ctx: Context, offset: int = 0, length: int = 0) -> Contents:
        """An artifact of your calls, or a range of its bytes; `_meta` has the URI of the next range."""
        uri = _uri_of(ctx)
        record = await self._readable_record(artifact_id, ctx)
        if offset < 0 or length < 0:
            raise InvalidParams(
                "offset and length are numbers of bytes and cannot be negative.", data={"uri": uri}
            )
        if offset > record.size:
            raise InvalidParams(
                f"The offset is beyond the end: the artifact has {record.size} bytes.", data={"uri": uri}
            )
        page = min(length or record.size, self._limits.artifact_page_bytes)
        raw = await (await self.open_store()).read(record, offset, page)
        text = (
            None
            if record.encoding == "blob"
            else whole_characters(raw, last=offset + len(raw) >= record.size)
        )
        end = offset + (len(raw) if text is None else text[1])
        meta: dict[str, Any] = {"artifact_id": record.id, "x-artifact-type": record.type, "size": record.size}
        if (offset, end) != (0, record.size):
            meta |= {"offset": offset, "length": end - offset}
        if end < record.size:
            meta["next"] = f"{uri}?offset={end}&length={page}"
        if text is None:
            return BlobContents(uri, base64.b64encode(raw).decode(), record.mime_type, meta)
        return TextContents(uri, text[0], record.mime_type, meta)

    async def read_ui(self, artifact_id: str, ctx: Context, offset: int = 0, length: int = 0) -> Contents:
        """An App that shows an artifact of your calls; a client that shows no Apps reads the artifact."""
        title = None
        if artifact_id == VIEWER_ID:
            uri = ""  # the App shows the artifact of the result that it gets from the host
        elif not ctx.shows_ui:
            return await self.read(artifact_id, ctx, offset, length)
        else:
            record = await self._readable_record(artifact_id, ctx)
            uri, title = self._base + record.id, record.title
        meta = {"ui": UiSettings(prefers_border=True).to_meta()}
        return TextContents(_uri_of(ctx), viewer_page(uri, title), APP_MIME_TYPE, meta)

    async def _readable_record(self, artifact_id: str, ctx: Context) -> ArtifactRecord:
        """Return the record of an artifact of the caller; raises `ResourceNotFound`, `InsufficientScope`."""
        record = await (await self.open_store()).get(ctx.principal.id, artifact_id, now=_now())
        if record is None:
            uri = _uri_of(ctx)
            raise ResourceNotFound(f"Resource not found: {uri}", data={"uri": uri})
        self._check_scopes(record, ctx.principal)
        return record

    async def page(self, list_registered: Callable[[str | None], Page], call: Call[Any], size: int) -> Page:
        """Return a page of all resources: the registered ones first, and then the caller's artifacts."""
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
            found = await (await self.open_store()).list(
                call.principal.id, now=_now(), cursor=before, limit=room
            )
        except ValueError:
            raise InvalidParams("Invalid cursor: start again without a cursor.") from None
        following = None if found.cursor is None else _CURSOR_PREFIX + found.cursor
        readable = (each for each in found.records if self._scopes.has_all(call.principal, each.scopes))
        return Page("resources", (*items, *map(self._definition, readable)), following, ttl, shared=False)

    def _check_scopes(self, record: ArtifactRecord, principal: Principal) -> None:
        """Raise `InsufficientScope` if a caller could not have made the call that stored an artifact."""
        self._scopes.check_named(principal, record.scopes, f"The artifact {record.id!r}")

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

    async def open_store(self) -> ArtifactStore:
        """Return the artifact store, and open it at the first use; raises `StoreUnavailable`."""
        if self._store is None:
            async with self._opening:
                if self._store is None:
                    setting = self.setting if self.setting is not None else _default_location(self._default())
                    store = open_artifacts(setting) if isinstance(setting, str) else setting
                    await store.open()
                    self._store = store
        return self._store


class _Source:
    """The chunks of a value; the first one can be read ahead, to detect the encoding."""

    def __init__(self, pieces: AsyncIterator[Piece]) -> None:
        self._pieces = pieces
        self._first: Piece = b""

    async def first(self) -> Piece:
        """Return the first chunk, or an empty one."""
        self._first = await anext(self._pieces, b"")
        return self._first

    async def bytes(self) -> AsyncIterator[bytes]:
        """Yield all chunks as bytes."""
        yield _raw(self._first)
        async for piece in self._pieces:
            yield _raw(piece)


def _uri_of(ctx: Context) -> str:
    """Return the URI that a caller reads, without the range of bytes."""
    return str(ctx._call.request.uri).partition("?")[0]


def _raw(piece: Piece) -> bytes:
    return piece.encode() if isinstance(piece, str) else piece


def _value(record: ArtifactRecord, raw: bytes, hint: Any) -> Any:
    """Return the value of an artifact as the type that a parameter is annotated with."""
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


def whole_characters(raw: bytes, *, last: bool) -> tuple[str, int]:
    """Decode the complete characters in a range of bytes; return them and the number of bytes consumed."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    start = 0
    while start < min(len(raw), 3) and raw[start] & 0xC0 == 0x80:
        start += 1
    text = decoder.decode(raw[start:], final=last)
    return text, len(raw) - len(decoder.getstate()[0])


def _default_location(store: Any) -> str:
    """Return the default location of artifacts: the database of the tasks, or else memory."""
    if isinstance(store, str) and is_database_url(store):
        return store
    if store not in (None, "memory:"):
        logger.warning(
            "Artifacts are kept in memory, so other processes cannot read them. "
            "Set ANTIPHON_ARTIFACTS, or Server(artifacts=…), to a file or a folder that all processes share."
        )
    return "memory:"


def _size(result: Result) -> int:
    """Return the approximate size of a result in bytes: of its text or its data, whichever is larger."""
    text = sum(len(block.text) for block in result.content if isinstance(block, Text))
    return max(text, len(_dumps(result.data))) if result.structured else text


def _text(result: Result) -> str:
    return "\n\n".join(block.text for block in result.content if isinstance(block, Text))


def _readable(piece: Piece) -> str:
    return piece if isinstance(piece, str) else piece.decode(errors="replace")


def _preview(text: str, size: int) -> str:
    """Return the start of a long text, cut at the end of a line if one is near."""
    if len(text) <= _PREVIEW_CHARACTERS:
        return text
    cut = text[:_PREVIEW_CHARACTERS]
    line = cut.rfind("\n", _PREVIEW_CHARACTERS // 2)
    return f"{cut[: line if line > 0 else None]}\n\n… (the beginning of {size:,} bytes)"


def _id_line(record: ArtifactRecord) -> str:
    return f"**Artifact ID:** `{record.id}`"


def _now() -> int:
    return int(wall_clock.now() * 1000)
