"""Turns the value that a function returned into a `Result`: content to read, and structured data.

Owns the output schema of a tool and the checks against it. It must not know where artifacts are stored.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Union, cast, get_args, get_origin

import msgspec
import pydantic
from pydantic_core import PydanticSerializationError

from antiphon.errors import DefinitionError
from antiphon.model.content import Audio, Block, EmbeddedResource, Image, ResourceLink, Text, is_block_mapping
from antiphon.model.media import is_figure, is_picture, media_type
from antiphon.model.outcome import InputRequired, Result, text_result
from antiphon.runtime.artifacts.artifact import ANYTHING as _any
from antiphon.runtime.artifacts.artifact import Artifact, is_artifact
from antiphon.runtime.authoring.signature import first_sentence, schema_of
from antiphon.runtime.writable import without_non_finite

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
_LISTS = (list, tuple, Sequence)
_DEFAULT_STR: tuple[Any, ...] = (object.__str__, pydantic.BaseModel.__str__)
_dumps = msgspec.json.Encoder().encode


class InvalidReturnValue(ValueError):
    """A function returned a value that does not match its tool's output schema."""


class UnserializableReturnValue(InvalidReturnValue):
    """A function returned a value that JSON cannot represent."""


class ResultBuilder:
    """Converts the values of one function to results.

    `output_schema` replaces the generated schema: a value is then structured data even if the function has no
    return annotation. With `may_be_artifact`, the schema also allows a reference to an artifact, for large
    results. Raises `DefinitionError`.
    """

    def __init__(
        self,
        label: str,
        returns: Any,
        *,
        structured: bool | None = None,
        output_schema: Mapping[str, Any] | None = None,
        may_be_artifact: bool = False,
    ) -> None:
        if output_schema is not None:
            _check_schema(label, output_schema, structured)
        returns = _without_outcomes(returns)
        self.returns_artifact = is_artifact(returns)
        self.schema: dict[str, Any] | None = None
        is_listed = _is_list_of(returns, _have_block) or _is_list_of(returns, _are_texts)
        self.convert: Callable[[Any], Result] = _content_only if structured is False else _unstructured
        if is_listed:
            self.convert = _each_item(self.convert)
        self.is_text_only = True
        """Whether a string that the function returns is the whole result, without structured data."""
        if structured is False:
            return
        if output_schema is not None and _is_untyped(returns):
            returns = Any
        elif structured is None and _is_untyped(returns):
            if _is_list_of_anything(returns):
                self.convert = _list_or_blocks
            return
        self.is_text_only = False
        inner = (get_args(returns) or (Any,))[0] if self.returns_artifact else returns
        try:
            adapter: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(inner)
            schema = schema_of(adapter, mode="serialization")
        except (pydantic.errors.PydanticUserError, TypeError) as error:
            if self.returns_artifact:  # an iterator of bytes, or another type without a JSON schema
                self.schema = _reference_schema(None)
                self.convert = _artifact_converter(lambda value: value)
                return
            raise DefinitionError(
                f"{label}: the return annotation {returns!r} has no JSON schema. "
                f"{first_sentence(error)}. "
                "Return a type that pydantic supports, or register the tool with structured=False."
            ) from None
        if self.returns_artifact:
            generated = _reference_schema(None if inner in (str, bytes, Any) else schema)
            self.schema = generated if output_schema is None else dict(output_schema)
            self.convert = _artifact_converter(adapter.validate_python)
            return
        schema = schema if output_schema is None else dict(output_schema)
        boxed = schema.get("type") != "object"
        self.schema = _or_reference(schema, boxed=boxed) if may_be_artifact else schema
        self.convert = _structured(adapter, schema, boxed=boxed, is_listed=is_listed)
        if output_schema is not None and not boxed:
            self.convert = _object_only(self.convert)


def _check_schema(label: str, schema: Any, structured: bool | None) -> None:
    if not isinstance(schema, Mapping):
        raise DefinitionError(f"{label}: output_schema={schema!r} is not a JSON schema. Pass a dict.")
    if structured is False:
        raise DefinitionError(
            f"{label}: a tool with an output_schema returns structured content: remove structured=False."
        )


def blocks(value: Any) -> tuple[Block, ...]:
    """Return the content blocks of a value that has no declared type."""
    if isinstance(value, str):
        return (Text(value),)
    if value is None:
        return ()
    if isinstance(value, _BLOCKS):
        return (value,)
    if isinstance(value, list | tuple) and (any(map(_is_block, value)) or _is_texts(value)):
        return _blocks_of_items(value)
    if _is_block(value):
        return (cast(Block, to_jsonable(value)) if isinstance(value, Mapping) else _media_block(value),)
    if inspect.iscoroutine(value):
        value.close()
        raise InvalidReturnValue(
            f"The function returned the coroutine {value.__qualname__!r}: an `await` is missing."
        )
    return (Text(_json(value)),)


def _blocks_of_items(items: Iterable[Any]) -> tuple[Block, ...]:
    return tuple(block for item in items for block in blocks(item))


def to_jsonable(value: Any) -> Any:
    """Return a value in types that JSON has; raises `PydanticSerializationError`."""
    return _any.dump_python(value, mode="json", by_alias=True)


def generator_return_type(returns: Any) -> Any:
    """Return the type of a generator's return value, from a `Generator[…]` annotation, or `None`."""
    origin = get_origin(returns)
    if origin is not None and issubclass(origin, Generator):
        arguments = get_args(returns)
        return arguments[2] if len(arguments) > 2 else None
    return None


# Functions without a declared return type


def _unstructured(value: Any) -> Result:
    """Convert a value: text and blocks become content; mappings, models and dataclasses become data too."""
    if type(value) is str:
        return text_result(value)
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
    """Convert a value to content only; a `Result` or an `Artifact` may still bring data."""
    if type(value) is Result or isinstance(value, Artifact):
        return _unstructured(value)
    return Result(blocks(value))


def _each_item(convert: Callable[[Any], Result]) -> Callable[[Any], Result]:
    """Return a converter for a function that declares a list of texts and blocks: each item is content."""

    def convert_items(value: Any) -> Result:
        if isinstance(value, list | tuple | set):
            return Result(_blocks_of_items(value))
        return convert(value)

    return convert_items


def _list_or_blocks(value: Any) -> Result:
    """Convert a list of any values: one with content blocks is content, and any other is data too."""
    if isinstance(value, list | tuple) and not is_block(value):
        return _serialized(Result(data=value))
    return _unstructured(value)


def _serialized(result: Result) -> Result:
    """Convert the data of a `Result` to JSON without checking it against a schema."""
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
        raise UnserializableReturnValue(f"The result cannot be written as JSON: {error}") from error
    return result


# Functions with a declared return type


def _structured(
    adapter: pydantic.TypeAdapter[Any], schema: Mapping[str, Any], *, boxed: bool, is_listed: bool
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
            raise InvalidReturnValue(
                f"The returned value does not match the output schema: {error}"
            ) from error
        own, text = custom_text(valid), _dumps(data).decode()
        if "null" in text:
            data = checked(data)
        if is_listed and (data == [] or _is_texts(data)):
            result: Result = Result(tuple(map(Text, data)), data=data)
        else:
            result = Result((Text(text if own is None else own),), data=data)
        result.boxed = boxed
        return result

    def completed(result: Result) -> Result:
        if result.is_error:
            return _serialized(result)
        extras = _extras(result)
        if not result.structured and result.artifact is None:
            raise InvalidReturnValue(
                "The tool has an output schema, and the function returned a result without data."
            )
        given = result.data if result.structured else {}
        if isinstance(given, Mapping):
            given = {**{key: extras[key] for key in extras if key in declared}, **given}
        valid = validate(given)
        data = checked(dump(valid, mode="json", by_alias=True))
        if open and isinstance(data, dict):
            data = {**{key: extras[key] for key in extras if key not in data}, **data}
        result.data, result.structured, result.boxed = data, True, boxed
        if result.meta:
            result.meta = to_jsonable(result.meta)
        if not (is_listed and data == []):
            _add_text(result, valid)
        return result

    def checked(data: Any) -> Any:
        written = without_non_finite(data)
        if written is not data:
            try:
                validate(written)
            except pydantic.ValidationError as error:
                raise InvalidReturnValue(
                    "The returned value has NaN or infinity where the output schema has a number. JSON has "
                    "neither: return None there, and declare `float | None`."
                ) from error
        return written

    return convert


def _object_only(convert: Callable[[Any], Result]) -> Callable[[Any], Result]:
    """Return a converter that refuses data which is no object, as the output schema of the author says."""

    def checked(value: Any) -> Result:
        result = convert(value)
        if result.structured and not isinstance(result.data, dict):
            raise InvalidReturnValue(
                f"The output schema is an object, and the function returned a {type(value).__name__}."
            )
        return result

    return checked


def _artifact_converter(validate: Callable[[Any], Any]) -> Callable[[Any], Result]:
    """Return a converter for a function that declares an artifact as its return type."""

    def convert(value: Any) -> Result:
        result = Result(artifact=value) if isinstance(value, Artifact) else value
        if not isinstance(result, Result) or (result.artifact is None and not result.is_error):
            raise InvalidReturnValue("The function declares that it returns an artifact, and returned none.")
        artifact = result.artifact
        if isinstance(artifact, Artifact) and not isinstance(artifact.value, Path | str | bytes):
            try:
                validate(artifact.value)
            except pydantic.ValidationError as error:
                raise InvalidReturnValue(
                    f"The value of the artifact does not match the output schema: {error}"
                ) from error
        return _serialized(result)

    return convert


def _extras(result: Result) -> dict[str, Any]:
    """Return the fields that are added to the data of a result: the artifact's id, and the next steps."""
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
    """Return the schema of a reference to an artifact: its id, and its value if that is small."""
    properties = dict(_REFERENCE)
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if inner is not None:
        properties["artifact"] = {key: value for key, value in inner.items() if key != "$defs"}
        if "$defs" in inner:
            schema["$defs"] = inner["$defs"]
    schema["required"] = ["x-artifact-type", "artifact_id"]
    return schema


def _or_reference(schema: Mapping[str, Any], *, boxed: bool) -> dict[str, Any]:
    """Return the schema of a value, or of a reference to an artifact in its place."""
    inner = {key: value for key, value in schema.items() if key != "$defs"}
    either: dict[str, Any] = {"anyOf": [inner, _reference_schema(None)]}
    if not boxed:
        either = {"type": "object", **either}
    return {**either, "$defs": schema["$defs"]} if "$defs" in schema else either


# Text and media


def _add_text(result: Result, value: Any) -> None:
    """Add the data as text to a result without text. Results with an artifact get theirs later."""
    if result.artifact is None and not any(isinstance(block, Text) for block in result.content):
        texts = result.data if _is_texts(result.data) else (_text_of(value, result.data),)
        result.content = (*result.content, *map(Text, texts))


def _text_of(value: Any, data: Any) -> str:
    """Return the text for a value: from the class's own `__str__` if it has one, else the JSON."""
    own = custom_text(value)
    return _dumps(data).decode() if own is None else own


def custom_text(value: Any) -> str | None:
    """Return the string of a model or dataclass whose class defines `__str__`, else `None`."""
    if type(value).__str__ not in _DEFAULT_STR and (
        isinstance(value, pydantic.BaseModel) or dataclasses.is_dataclass(value)
    ):
        return str(value)
    return None


def is_block(value: Any) -> bool:
    """Return whether a value is a content block, an image or sound, or a list that contains one."""
    return _is_block(value) or (isinstance(value, list | tuple) and any(map(_is_block, value)))


def _is_block(value: Any) -> bool:
    if isinstance(value, _BLOCKS):
        return True
    if isinstance(value, Mapping):
        return is_block_mapping(value)
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
    """Return an annotation without `Result` and `InputRequired`, which are not values of the tool."""
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
    """Return whether an annotation gives no structure for an output schema: text, blocks, `None` or `Any`."""
    origin = get_origin(returns)
    if origin is Annotated:
        return _is_untyped(get_args(returns)[0])
    if origin in (Union, types.UnionType):
        members: Iterable[Any] = get_args(returns)
        return all(_is_untyped(member) for member in members)
    if _is_list_of_anything(returns):
        return True
    if _is_list_of(returns, _have_block):
        return True
    if inspect.isclass(returns) and returns.__module__.partition(".")[0] in ("PIL", "matplotlib"):
        return True
    return returns in (Any, None, inspect.Parameter.empty) or returns in _UNTYPED


def _is_list_of_anything(returns: Any) -> bool:
    """Return whether an annotation is a list whose items may be anything, content blocks included."""
    origin, inner = get_origin(returns), get_args(returns)
    if origin is Annotated:
        return _is_list_of_anything(inner[0])
    if origin in (Union, types.UnionType):
        return any(map(_is_list_of_anything, inner))
    if origin in _LISTS:
        return all(member in (Any, Ellipsis) for member in inner)
    return returns in (list, tuple)


def _is_list_of(returns: Any, fit: Callable[[Sequence[Any]], bool]) -> bool:
    """Return whether an annotation has a list whose types of items fit."""
    origin, inner = get_origin(returns), get_args(returns)
    if origin is Annotated:
        return _is_list_of(inner[0], fit)
    if origin in (Union, types.UnionType):
        return any(_is_list_of(member, fit) for member in inner)
    return origin in (*_LISTS, set) and fit([member for member in inner if member is not Ellipsis])


def _have_block(hints: Sequence[Any]) -> bool:
    return any(map(_has_block, hints))


def _are_texts(hints: Sequence[Any]) -> bool:
    return bool(hints) and all(
        hint is str or (get_origin(hint) is Annotated and get_args(hint)[0] is str) for hint in hints
    )


def _is_texts(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(item, str) for item in value)


def _has_block(hint: Any) -> bool:
    if get_origin(hint) in (Union, types.UnionType, Annotated):
        return any(_has_block(member) for member in get_args(hint))
    return hint in _BLOCKS
