"""From what a function returned to a `Result`: readable content, and structured data where it has a shape."""

from __future__ import annotations

import dataclasses
import inspect
import types
from collections.abc import Callable, Generator, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec
import pydantic
from pydantic_core import PydanticSerializationError

from antiphon.errors import DefinitionError
from antiphon.model.content import Audio, Block, EmbeddedResource, Image, ResourceLink, Text
from antiphon.model.media import is_figure, is_picture, media_type
from antiphon.model.outcome import InputRequired, Result
from antiphon.runtime.artifacts.artifact import ANYTHING as _any
from antiphon.runtime.artifacts.artifact import Artifact, is_artifact
from antiphon.runtime.authoring.signature import first_sentence, schema_of

__all__ = [
    "InvalidReturnValue",
    "ResultBuilder",
    "UnserializableReturnValue",
    "blocks",
    "custom_text",
    "generator_return_type",
    "is_block",
    "to_jsonable",
]

_BLOCKS = (Text, Image, Audio, ResourceLink, EmbeddedResource)
_UNTYPED = (str, bytes, Result, InputRequired, type(None), *_BLOCKS)
_DEFAULT_STR: tuple[Any, ...] = (object.__str__, pydantic.BaseModel.__str__)
_dumps = msgspec.json.Encoder().encode


class InvalidReturnValue(ValueError):
    """A function gave something that is not what its tool has declared, which no caller can help."""


class UnserializableReturnValue(InvalidReturnValue):
    """A function gave something that JSON has no words for."""


class ResultBuilder:
    """How one function's values become results. With `may_be_artifact`, large ones may become artifacts."""

    def __init__(
        self, label: str, returns: Any, *, structured: bool | None = None, may_be_artifact: bool = False
    ) -> None:
        returns = _without_outcomes(returns)
        self.returns_artifact = is_artifact(returns)
        self.schema: dict[str, Any] | None = None
        self.convert: Callable[[Any], Result] = _content_only if structured is False else _unstructured
        self.is_text_only = True
        """Whether a string is nothing but text to be read."""
        if structured is False or (structured is None and _is_untyped(returns)):
            return
        self.is_text_only = False
        inner = (get_args(returns) or (Any,))[0] if self.returns_artifact else returns
        try:
            adapter: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(inner)
            schema = schema_of(adapter, mode="serialization")
        except (pydantic.errors.PydanticUserError, TypeError) as error:
            if self.returns_artifact:  # bytes in pieces, or something else that is not JSON
                self.schema = _reference_schema(None)
                self.convert = _artifact_converter(lambda value: value)
                return
            raise DefinitionError(
                f"{label}: the return annotation {returns!r} has no JSON schema. "
                f"{first_sentence(error)}. "
                "Return a type that pydantic knows, or register the tool with structured=False."
            ) from None
        if self.returns_artifact:
            self.schema = _reference_schema(None if inner in (str, bytes, Any) else schema)
            self.convert = _artifact_converter(adapter.validate_python)
            return
        boxed = schema.get("type") != "object"
        self.schema = _or_reference(schema, boxed=boxed) if may_be_artifact else schema
        self.convert = _structured(adapter, schema, boxed=boxed)


def blocks(value: Any) -> tuple[Block, ...]:
    """The blocks of a value that has no declared type."""
    if isinstance(value, str):
        return (Text(value),)
    if value is None:
        return ()
    if isinstance(value, _BLOCKS):
        return (value,)
    if isinstance(value, list | tuple) and any(_is_block(item) for item in value):
        return tuple(block for item in value for block in blocks(item))
    if _is_block(value):
        return (_media_block(value),)
    if inspect.iscoroutine(value):
        value.close()
        raise InvalidReturnValue(
            f"It returned the coroutine {value.__qualname__!r}: an `await` is missing before it."
        )
    return (Text(_json(value)),)


def to_jsonable(value: Any, *, lossy: bool = False) -> Any:
    """The same in what JSON has; raises `PydanticSerializationError`, unless lossy will do."""
    fallback = (lambda other: f"<{type(other).__name__}>") if lossy else None
    return _any.dump_python(value, mode="json", by_alias=True, fallback=fallback)


def generator_return_type(returns: Any) -> Any:
    """What a generator returns in the end, by its return annotation; what it yields is no part of that."""
    origin = get_origin(returns)
    if origin is not None and issubclass(origin, Generator):
        arguments = get_args(returns)
        return arguments[2] if len(arguments) > 2 else None
    return None


# Without a declared type


def _unstructured(value: Any) -> Result:
    """A text is content alone, and so are blocks; what has named fields is data too."""
    if type(value) is str:
        return Result.of_text(value)
    if type(value) is Result:
        return _serialized(value)
    if isinstance(value, Artifact):
        return Result(artifact=value)
    if isinstance(value, Mapping | pydantic.BaseModel) or (
        dataclasses.is_dataclass(value) and not isinstance(value, type)
    ):
        data = _any.dump_python(value, mode="json", by_alias=True, fallback=str)
        if isinstance(data, dict):
            return Result(_text_of(value, data), data=data)
    return Result(blocks(value))


def _content_only(value: Any) -> Result:
    """For tools that want no structured content, but where they say so themselves."""
    if type(value) is Result or isinstance(value, Artifact):
        return _unstructured(value)
    return Result(blocks(value))


def _serialized(result: Result) -> Result:
    """A result of a function that has declared nothing: its data goes out as it is, in JSON."""
    try:
        if result.meta:
            result.meta = to_jsonable(result.meta)
        if result.structured:
            data = to_jsonable(result.data)
            if isinstance(data, dict):
                data = {**{key: value for key, value in _extras(result).items() if key not in data}, **data}
            result.data, result.boxed = data, not isinstance(data, dict)
            _add_text(result, result.data)
    except PydanticSerializationError as error:
        raise UnserializableReturnValue(f"Its result cannot be written as JSON: {error}") from error
    return result


# With one


def _structured(
    adapter: pydantic.TypeAdapter[Any], schema: Mapping[str, Any], *, boxed: bool
) -> Callable[[Any], Result]:
    validate, dump = adapter.validate_python, adapter.dump_python
    declared: Mapping[str, Any] = schema.get("properties", {})
    open = schema.get("additionalProperties") is not False

    def convert(value: Any) -> Result:
        try:
            if type(value) is Result:
                return value if value.is_error and not value.structured else completed(value)
            valid = validate(value)
            data = dump(valid, mode="json", by_alias=True)
        except (pydantic.ValidationError, PydanticSerializationError) as error:
            raise InvalidReturnValue(f"What it returned does not fit its output schema: {error}") from error
        return Result((Text(_text_of(valid, data)),), data=data, boxed=boxed)

    def completed(result: Result) -> Result:
        if result.is_error:
            return _serialized(result)
        extras = _extras(result)
        if not result.structured and result.artifact is None:
            raise InvalidReturnValue("It has an output schema, and returned a result without data.")
        given = result.data if result.structured else {}
        if isinstance(given, Mapping):
            given = {**{key: extras[key] for key in extras if key in declared}, **given}
        valid = validate(given)
        data = dump(valid, mode="json", by_alias=True)
        if open and isinstance(data, dict):
            data = {**{key: extras[key] for key in extras if key not in data}, **data}
        result.data, result.structured, result.boxed = data, True, boxed
        if result.meta:
            result.meta = to_jsonable(result.meta)
        _add_text(result, valid)
        return result

    return convert


def _artifact_converter(validate: Callable[[Any], Any]) -> Callable[[Any], Result]:
    """For a function that says it gives an artifact."""

    def convert(value: Any) -> Result:
        result = Result(artifact=value) if isinstance(value, Artifact) else value
        if not isinstance(result, Result) or (result.artifact is None and not result.is_error):
            raise InvalidReturnValue("It is to give an artifact, and gave none.")
        artifact = result.artifact
        if isinstance(artifact, Artifact) and not isinstance(artifact.value, Path | str | bytes):
            try:
                validate(artifact.value)
            except pydantic.ValidationError as error:
                raise InvalidReturnValue(
                    f"The value of its artifact does not fit its output schema: {error}"
                ) from error
        return _serialized(result)

    return convert


def _extras(result: Result) -> dict[str, Any]:
    """What stands in the data of a result besides what its author put there."""
    extras: dict[str, Any] = {}
    if result.artifact is not None:
        extras["x-artifact-type"] = result.artifact.type
        extras["artifact_id"] = result.artifact.id
    if result.next_steps:
        extras["next_steps"] = list(result.next_steps)
    return extras


_REFERENCE: Mapping[str, Any] = {
    "x-artifact-type": {"type": "string"},
    "artifact_id": {"type": "string"},
    "size": {"type": "integer"},
}


def _reference_schema(inner: Mapping[str, Any] | None) -> dict[str, Any]:
    """What stands in the place of an artifact: its id, and its value where that is small."""
    properties = dict(_REFERENCE)
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if inner is not None:
        properties["artifact"] = {key: value for key, value in inner.items() if key != "$defs"}
        if "$defs" in inner:
            schema["$defs"] = inner["$defs"]
    schema["required"] = ["x-artifact-type", "artifact_id"]
    return schema


def _or_reference(schema: Mapping[str, Any], *, boxed: bool) -> dict[str, Any]:
    """The schema of a value that may be an artifact in its place."""
    inner = {key: value for key, value in schema.items() if key != "$defs"}
    either: dict[str, Any] = {"anyOf": [inner, _reference_schema(None)]}
    if not boxed:
        either = {"type": "object", **either}
    return {**either, "$defs": schema["$defs"]} if "$defs" in schema else either


# Words and pictures


def _add_text(result: Result, value: Any) -> None:
    """Let a result that has nothing to read say what its data is; an artifact speaks for itself."""
    if result.artifact is None and not any(isinstance(block, Text) for block in result.content):
        result.content = (*result.content, Text(_text_of(value, result.data)))


def _text_of(value: Any, data: Any) -> str:
    """What a person reads of a value: what its class says it is, or else its JSON."""
    own = custom_text(value)
    return _dumps(data).decode() if own is None else own


def custom_text(value: Any) -> str | None:
    """What a model or a dataclass says that it is, if its class has an opinion on that."""
    if type(value).__str__ not in _DEFAULT_STR and (
        isinstance(value, pydantic.BaseModel) or dataclasses.is_dataclass(value)
    ):
        return str(value)
    return None


def is_block(value: Any) -> bool:
    """Whether a value is a block, a picture or sound that can be one, or a list with one in it."""
    return _is_block(value) or (isinstance(value, list | tuple) and any(map(_is_block, value)))


def _is_block(value: Any) -> bool:
    if isinstance(value, _BLOCKS):
        return True
    if isinstance(value, bytes):
        return media_type(value) is not None
    if isinstance(value, Path):
        return media_type(b"", value.name) is not None
    return is_picture(value) or is_figure(value)


def _media_block(value: Any) -> Block:
    kind = "image/png"
    if isinstance(value, bytes | Path):
        kind = media_type(value if isinstance(value, bytes) else b"", getattr(value, "name", "")) or kind
    return Audio.of(value, kind) if kind.startswith("audio/") else Image.of(value, kind)


def _json(value: Any) -> str:
    return _dumps(_any.dump_python(value, mode="json", by_alias=True, fallback=str)).decode()


def _without_outcomes(returns: Any) -> Any:
    """A return annotation without the ways to end a call that are no values of their own."""
    if get_origin(returns) is Result:
        return get_args(returns)[0]
    if get_origin(returns) not in (Union, types.UnionType):
        return returns
    members = get_args(returns)
    kept = tuple(
        member
        for member in members
        if member not in (Result, InputRequired) and get_origin(member) is not Result
    )
    if any(is_artifact(member) for member in kept) and len(kept) > 1:
        return Any
    return Union[kept] if kept else Result  # noqa: UP007


def _is_untyped(returns: Any) -> bool:
    """Whether a return annotation says nothing that a program could rely on beyond its blocks."""
    origin = get_origin(returns)
    if origin is Annotated:
        return _is_untyped(get_args(returns)[0])
    if origin in (Union, types.UnionType):
        members: Iterable[Any] = get_args(returns)
        return all(_is_untyped(member) for member in members)
    if origin in (list, tuple, set):
        inner = [member for member in get_args(returns) if member is not Ellipsis]
        return bool(inner) and any(_has_block(member) for member in inner)
    if inspect.isclass(returns) and returns.__module__.partition(".")[0] in ("PIL", "matplotlib"):
        return True
    return returns in (Any, None, inspect.Parameter.empty) or returns in _UNTYPED


def _has_block(hint: Any) -> bool:
    if get_origin(hint) in (Union, types.UnionType, Annotated):
        return any(_has_block(member) for member in get_args(hint))
    return hint in _BLOCKS
