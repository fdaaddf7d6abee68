"""The `Artifact` that authors use: a result of a call that is stored, so that later calls can use it.

Owns which values an artifact can hold and how a value becomes bytes: JSON, text or raw bytes, never pickle.
It must not know the store: `artifacts/service.py` uses the store.
"""

from __future__ import annotations

import dataclasses
import re
import secrets
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any, Generic, get_args, get_origin

import msgspec
import pydantic
from pydantic_core import core_schema
from typing_extensions import TypeVar

from antiphon.errors import DefinitionError
from antiphon.model.artifact import Encoding

__all__ = ["ANYTHING", "Artifact", "Piece", "encode", "is_artifact", "is_artifact_id", "takes_artifacts"]

T = TypeVar("T", default=Any)

_CHUNK_BYTES = 64 * 1024
"""The size of the chunks in which a value is stored."""
_ID_BYTES = 16
_MAX_ID_LENGTH = 200
"""The length of the longest id that a caller may pass."""
_MISSING: Any = object()
ANYTHING: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(Any)
"""Writes any value as JSON."""

Piece = bytes | str


class Artifact(Generic[T]):
    """A result that the server stores: a model, a mapping, text, bytes, a file, or an iterator of chunks.

    A tool returns an artifact, alone or as `Result(…, artifact=…)`. The server stores the artifact for the
    caller, and the caller gets its id. A parameter annotated `Artifact[Report]` accepts such an id: the
    function gets the artifact, with its `value` read as a `Report`. With `Artifact[AsyncIterator[bytes]]`,
    the `value` yields the bytes in chunks.

    `type` names the kind of artifact for callers; the default is the name of the value's class. `ttl` is the
    time that the artifact is kept, in seconds; the default is `Limits.artifact_lifetime`. Raises
    `DefinitionError` if `ttl` is not greater than 0.
    """

    __slots__ = ("_hint", "_value", "description", "id", "mime_type", "title", "ttl", "type")

    def __init__(
        self,
        value: T,
        *,
        type: str | None = None,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
        ttl: float | None = None,
    ) -> None:
        if ttl is not None and not ttl > 0:
            raise DefinitionError(
                f"Artifact(ttl={ttl!r}) would expire at once. "
                "Pass a number of seconds greater than 0, or None."
            )
        self._value: Any = value
        self._hint: Any = None
        self.id = secrets.token_hex(_ID_BYTES)
        self.type = type or _kind(value)
        self.title = title
        self.description = description
        self.mime_type = mime_type
        self.ttl = ttl

    @property
    def value(self) -> T:
        """The value of the artifact; raises `RuntimeError` if the artifact was not loaded."""
        if self._value is _MISSING:
            raise RuntimeError(
                f"The artifact {self.id} was not loaded: a tool can take artifacts as parameters, "
                "or in lists and dictionaries, but not inside other types."
            )
        value: T = self._value
        return value

    def __repr__(self) -> str:
        return f"Artifact({self.id!r}, type={self.type!r})"

    # Reading an id in a call's arguments as an artifact

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        hint = (get_args(source) or (Any,))[0]
        text = core_schema.str_schema(min_length=1, max_length=_MAX_ID_LENGTH, strict=True)
        read = core_schema.no_info_after_validator_function(lambda id: cls._reference(id, hint), text)
        return core_schema.union_schema([core_schema.is_instance_schema(cls), read], mode="left_to_right")

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, handler: Any) -> dict[str, Any]:
        return {"type": "string", "description": "The artifact_id of an artifact that a tool has made."}

    @classmethod
    def _reference(cls, id: str, hint: Any) -> Artifact[Any]:
        found: Artifact[Any] = cls.__new__(cls)
        found.id, found._hint, found._value = id, hint, _MISSING
        found.type, found.title, found.description, found.mime_type, found.ttl = "", None, None, None, None
        return found


def is_artifact_id(text: str) -> bool:
    """Return whether a text has the form of the id of an artifact."""
    return len(text) == 2 * _ID_BYTES and set(text) <= set("0123456789abcdef")


def is_artifact(hint: Any) -> bool:
    """Return whether an annotation is `Artifact` or `Artifact[…]`."""
    return hint is Artifact or get_origin(hint) is Artifact


def takes_artifacts(hint: Any) -> bool:
    """Return whether an annotation contains `Artifact`."""
    return is_artifact(hint) or any(takes_artifacts(inner) for inner in get_args(hint))


def encode(artifact: Artifact[Any]) -> tuple[Encoding | None, str | None, AsyncIterator[Piece]]:
    """Return how to store an artifact: the encoding and the media type if known, and the chunks."""
    value, mime = artifact.value, artifact.mime_type
    if isinstance(value, str):
        return "text", mime or "text/plain", _chunks(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return "blob", mime or "application/octet-stream", _chunks(value)
    if isinstance(value, Path):
        import mimetypes

        mime = mime or mimetypes.guess_type(value.name)[0] or "application/octet-stream"
        return None, mime, _from_file(value)
    if isinstance(value, AsyncIterator):
        return None, mime, value
    if isinstance(value, Iterator):
        return None, mime, _from_iterator(value)
    return "json", mime or "application/json", _chunks(ANYTHING.dump_json(value, by_alias=True))


async def _chunks(whole: Any) -> AsyncIterator[Piece]:
    for start in range(0, len(whole), _CHUNK_BYTES):
        part = whole[start : start + _CHUNK_BYTES]
        yield part if isinstance(part, str) else bytes(part)


async def _from_iterator(pieces: Iterator[Piece]) -> AsyncIterator[Piece]:
    for piece in pieces:
        yield piece


async def _from_file(path: Path) -> AsyncIterator[Piece]:
    with path.open("rb") as file:
        while piece := file.read(_CHUNK_BYTES):
            yield piece


def _kind(value: Any) -> str:
    """Return the default `type` of an artifact: the value's class in snake case, or a general word."""
    if isinstance(value, pydantic.BaseModel | msgspec.Struct) or dataclasses.is_dataclass(value):
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(value).__name__).lower()
    if isinstance(value, str):
        return "text"
    return "data" if isinstance(value, Mapping | list | tuple) else "file"
