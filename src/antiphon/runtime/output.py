"""From what a function returned to a `Result`: readable content, and structured data where it is typed."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Generator, Iterable
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec
import pydantic

from antiphon.errors import DefinitionError
from antiphon.model.content import Audio, Block, EmbeddedResource, Image, ResourceLink, Text
from antiphon.model.outcome import InputRequired, Result
from antiphon.runtime.signature import schema_of

__all__ = ["Output", "blocks", "yielding"]

_BLOCKS = (Text, Image, Audio, ResourceLink, EmbeddedResource)
_UNTYPED = (str, bytes, Result, InputRequired, type(None), *_BLOCKS)
_dumps = msgspec.json.Encoder().encode
_any: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(Any)


class Output:
    """How one function's values become results."""

    def __init__(self, label: str, returns: Any, *, structured: bool | None = None) -> None:
        returns = _without_outcomes(returns)
        if structured is None:
            structured = not _is_untyped(returns)
        self.schema: dict[str, Any] | None = None
        self.convert: Callable[[Any], Result] = _unstructured
        if not structured:
            return
        try:
            adapter: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(returns)
            self.schema = schema_of(adapter, mode="serialization")
        except (pydantic.errors.PydanticUserError, TypeError) as error:
            raise DefinitionError(
                f"{label}: the return annotation {returns!r} has no JSON schema. "
                f"{str(error).splitlines()[0]} "
                "Return a type that pydantic knows, or register the tool with structured=False."
            ) from None
        self.convert = _structured(adapter, boxed=self.schema.get("type") != "object")


def blocks(value: Any) -> tuple[Block, ...]:
    """The blocks of a value that has no declared type."""
    if isinstance(value, str):
        return (Text(value),)
    if value is None:
        return ()
    if isinstance(value, _BLOCKS):
        return (value,)
    if isinstance(value, list | tuple) and any(isinstance(item, _BLOCKS) for item in value):
        return tuple(block for item in value for block in blocks(item))
    return (Text(_json(value)),)


def yielding(returns: Any) -> Any:
    """What a generator returns in the end, by its return annotation; what it yields is no part of that."""
    origin = get_origin(returns)
    if origin is not None and issubclass(origin, Generator):
        arguments = get_args(returns)
        return arguments[2] if len(arguments) > 2 else None
    return None


def _unstructured(value: Any) -> Result:
    if type(value) is str:
        return Result.of_text(value)
    if type(value) is Result:
        return value
    return Result(blocks(value))


def _structured(adapter: pydantic.TypeAdapter[Any], *, boxed: bool) -> Callable[[Any], Result]:
    validate, dump = adapter.validate_python, adapter.dump_python

    def convert(value: Any) -> Result:
        if type(value) is Result:
            if value.structured and not value.is_error:
                value.data = dump(validate(value.data), mode="json", by_alias=True)
                value.boxed = boxed
            return value
        data = dump(validate(value), mode="json", by_alias=True)
        return Result((Text(_dumps(data).decode()),), data=data, boxed=boxed)

    return convert


def _json(value: Any) -> str:
    return _dumps(_any.dump_python(value, mode="json", by_alias=True, fallback=str)).decode()


def _without_outcomes(returns: Any) -> Any:
    """A return annotation without the ways to end a call that are no values of their own."""
    if get_origin(returns) not in (Union, types.UnionType):
        return returns
    kept = tuple(member for member in get_args(returns) if member not in (Result, InputRequired))
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
    return returns in (Any, None, inspect.Parameter.empty) or returns in _UNTYPED


def _has_block(hint: Any) -> bool:
    if get_origin(hint) in (Union, types.UnionType, Annotated):
        return any(_has_block(member) for member in get_args(hint))
    return hint in _BLOCKS
