"""An `Artifact` as authors see it: something that a call makes, that outlives it and that others can take.

Owns what can be one and how it becomes bytes; JSON, text or raw bytes, never pickle. Where they are kept
is for `artifacts` and the stores.
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

from antiphon.model.artifact import Encoding

__all__ = ["ANYTHING", "Artifact", "Piece", "encoded", "is_artifact", "takes_artifacts"]

T = TypeVar("T", default=Any)

_SLICE = 64 * 1024
_MISSING: Any = object()
ANYTHING: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(Any)
"""Writes any value as JSON."""

Piece = bytes | str


class Artifact(Generic[T]):
    """Something worth keeping: a model, a mapping, a text, bytes, a file, or an iterator of pieces.

    A tool returns one, alone or as `Result(…, artifact=…)`; it is kept for its caller, who gets its id.
    A parameter annotated `Artifact[Report]` takes such an id, and the function gets the artifact with its
    `value`, read as a `Report`. `Artifact[AsyncIterator[bytes]]` gives the bytes piece by piece.

    `type` is what callers know its kind by, the name of the value's class unless given; `ttl` is how long
    it is kept, in seconds, `Limits.artifact_lifetime` unless given.
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
        self._value: Any = value
        self._hint: Any = None
        self.id = secrets.token_hex(16)
        self.type = type or _kind(value)
        self.title = title
        self.description = description
        self.mime_type = mime_type
        self.ttl = ttl

    @property
    def value(self) -> T:
        """What it is."""
        if self._value is _MISSING:
            raise RuntimeError(
                f"The artifact {self.id} was not looked up: "
                "a tool takes artifacts as parameters, or in lists and mappings of them."
            )
        value: T = self._value
        return value

    def __repr__(self) -> str:
        return f"Artifact({self.id!r}, type={self.type!r})"

    # From an id in a call's arguments to an artifact

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        hint = (get_args(source) or (Any,))[0]
        text = core_schema.str_schema(min_length=1, max_length=200, strict=True)
        read = core_schema.no_info_after_validator_function(lambda id: cls._referred(id, hint), text)
        return core_schema.union_schema([core_schema.is_instance_schema(cls), read], mode="left_to_right")

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, handler: Any) -> dict[str, Any]:
        return {"type": "string", "description": "The artifact_id of an artifact that a tool has made."}

    @classmethod
    def _referred(cls, id: str, hint: Any) -> Artifact[Any]:
        found: Artifact[Any] = cls.__new__(cls)
        found.id, found._hint, found._value = id, hint, _MISSING
        found.type, found.title, found.description, found.mime_type, found.ttl = "", None, None, None, None
        return found


def is_artifact(hint: Any) -> bool:
    """Whether an annotation is that of an artifact."""
    return hint is Artifact or get_origin(hint) is Artifact


def takes_artifacts(hint: Any) -> bool:
    """Whether there is an artifact in an annotation."""
    return is_artifact(hint) or any(takes_artifacts(inner) for inner in get_args(hint))


def encoded(artifact: Artifact[Any]) -> tuple[Encoding | None, str | None, AsyncIterator[Piece]]:
    """How an artifact is to be written down: its encoding and media type where known, and its pieces."""
    value, mime = artifact.value, artifact.mime_type
    if isinstance(value, str):
        return "text", mime or "text/plain", _slices(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return "blob", mime or "application/octet-stream", _slices(value)
    if isinstance(value, Path):
        import mimetypes

        mime = mime or mimetypes.guess_type(value.name)[0] or "application/octet-stream"
        return None, mime, _from_file(value)
    if isinstance(value, AsyncIterator):
        return None, mime, value
    if isinstance(value, Iterator):
        return None, mime, _from_iterator(value)
    return "json", mime or "application/json", _slices(ANYTHING.dump_json(value, by_alias=True))


async def _slices(whole: Any) -> AsyncIterator[Piece]:
    for start in range(0, len(whole), _SLICE):
        part = whole[start : start + _SLICE]
        yield part if isinstance(part, str) else bytes(part)


async def _from_iterator(pieces: Iterator[Piece]) -> AsyncIterator[Piece]:
    for piece in pieces:
        yield piece


async def _from_file(path: Path) -> AsyncIterator[Piece]:
    with path.open("rb") as file:
        while piece := file.read(_SLICE):
            yield piece


def _kind(value: Any) -> str:
    """What to call a value's kind, in the absence of a better word."""
    if isinstance(value, pydantic.BaseModel | msgspec.Struct) or dataclasses.is_dataclass(value):
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(value).__name__).lower()
    if isinstance(value, str):
        return "text"
    return "data" if isinstance(value, Mapping | list | tuple) else "file"
