"""Signatures to schemas, and arguments to keyword arguments."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import functools
from collections.abc import Callable
from typing import Annotated, Any, Literal, Self

import pydantic
import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from typing_extensions import TypedDict  # the one of typing has what pydantic needs from 3.12 on

from antiphon import Context, DefinitionError
from antiphon.runtime.authoring.signature import Signature


class Point(BaseModel):
    x: int
    y: int = 0


@dataclasses.dataclass
class Size:
    width: float
    height: float = 1.0


class Tag(TypedDict):
    name: str


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Node(BaseModel):
    value: int
    children: list[Node] = []


def schema(function: Callable[..., Any]) -> dict[str, Any]:
    found = Signature.of(function, Context).schema
    assert found["type"] == "object"
    return found


def properties(function: Callable[..., Any]) -> dict[str, Any]:
    return dict(schema(function)["properties"])


def bind(function: Callable[..., Any], /, **arguments: Any) -> dict[str, Any]:
    return Signature.of(function, Context).binder()(arguments)


def test_plain_types_and_defaults() -> None:
    def f(a: int, b: str = "x", c: float | None = None, d: bool = False): ...

    assert schema(f) == {
        "type": "object",
        "properties": {
            "a": {"type": "integer"},
            "b": {"type": "string", "default": "x"},
            "c": {"anyOf": [{"type": "number"}, {"type": "null"}], "default": None},
            "d": {"type": "boolean", "default": False},
        },
        "required": ["a"],
        "additionalProperties": False,
    }
    assert bind(f, a=1) == {"a": 1, "b": "x", "c": None, "d": False}


def test_a_function_without_parameters() -> None:
    def f(): ...

    assert schema(f) == {"type": "object", "properties": {}, "additionalProperties": False}
    assert bind(f) == {}


def test_a_parameter_without_annotation_takes_anything() -> None:
    def f(a, b=2): ...

    assert properties(f) == {"a": {}, "b": {"default": 2}}
    assert bind(f, a=[1]) == {"a": [1], "b": 2}


def test_models_dataclasses_and_typed_dicts() -> None:
    def f(point: Point, size: Size, tag: Tag): ...

    assert set(schema(f)["$defs"]) == {"Point", "Size", "Tag"}
    bound = bind(f, point={"x": 1}, size={"width": 2}, tag={"name": "n"})
    assert bound == {"point": Point(x=1), "size": Size(2.0), "tag": {"name": "n"}}


def test_nested_and_recursive_types() -> None:
    def f(tree: Node, table: dict[str, list[Point]]): ...

    bound = bind(f, tree={"value": 1, "children": [{"value": 2}]}, table={"a": [{"x": 1}]})
    assert bound["tree"].children[0].value == 2
    assert bound["table"] == {"a": [Point(x=1)]}


def test_choices_and_dates() -> None:
    def f(a: Literal["x", "y"], b: Colour, c: datetime.date): ...

    assert properties(f)["a"] == {"enum": ["x", "y"], "type": "string"}
    assert schema(f)["$defs"]["Colour"]["enum"] == ["red", "blue"]
    bound = bind(f, a="y", b="red", c="2026-01-02")
    assert bound == {"a": "y", "b": Colour.RED, "c": datetime.date(2026, 1, 2)}


def test_field_metadata_is_in_the_schema() -> None:
    def f(
        a: Annotated[int, Field(ge=0, le=9, description="A digit.")],
        b: Annotated[str, Field(json_schema_extra={"x-mcp-header": "B"})] = "x",
        c: int = Field(3, title="See", examples=[1]),
        d: Annotated[int, "only a comment"] = 1,
    ): ...

    assert properties(f) == {
        "a": {"type": "integer", "minimum": 0, "maximum": 9, "description": "A digit."},
        "b": {"type": "string", "default": "x", "x-mcp-header": "B"},
        "c": {"type": "integer", "default": 3, "title": "See", "examples": [1]},
        "d": {"type": "integer", "default": 1},
    }
    assert schema(f)["required"] == ["a"]
    with pytest.raises(pydantic.ValidationError):
        bind(f, a=10)


def test_a_field_default_without_a_value_is_required() -> None:
    def f(a: int = Field(description="Needed.")): ...

    assert schema(f)["required"] == ["a"]


def test_names_make_no_titles() -> None:
    def f(some_name: Point, other: Size): ...

    assert "title" not in str(schema(f))


def test_a_description_in_the_docstring_loses_to_one_in_the_field() -> None:
    def f(a: Annotated[int, Field(description="from the field")], b: int):
        """Do it.

        Args:
            a: from the docstring
            b: from the docstring
        """

    assert properties(f)["a"]["description"] == "from the field"
    assert properties(f)["b"]["description"] == "from the docstring"
    assert Signature.of(f, Context).description == "Do it."


@pytest.mark.parametrize(
    "name",
    [
        "schema",
        "json",
        "copy",
        "dict",
        "validate",
        "_x",
        "__x",
        "model_y",
        "model_config",
        "model_fields",
        "construct",
    ],
)
def test_names_that_models_keep_to_themselves(name: str) -> None:
    scope: dict[str, Any] = {}
    exec(f"def f({name}: int, plain: int = 0): ...", scope)
    f = scope["f"]
    assert set(properties(f)) == {name, "plain"}
    assert schema(f)["required"] == [name]
    assert bind(f, **{name: 3}) == {name: 3, "plain": 0}


def test_names_that_differ_by_underscores_alone() -> None:
    scope: dict[str, Any] = {}
    exec("def f(_x: int, __x: int, x: int, argument_x_: int): ...", scope)
    f = scope["f"]
    arguments = {"_x": 1, "__x": 2, "x": 3, "argument_x_": 4}
    assert set(properties(f)) == set(arguments)
    assert bind(f, **arguments) == arguments


def test_more_arguments_than_named() -> None:
    def f(a: int, **more: Any): ...

    assert schema(f)["additionalProperties"] is True
    assert bind(f, a=1, b=2, schema=3) == {"a": 1, "b": 2, "schema": 3}


def test_arguments_that_nobody_named_are_refused() -> None:
    def f(a: int): ...

    with pytest.raises(pydantic.ValidationError):
        bind(f, a=1, b=2)


def first(ctx: Context, a: int): ...
def last(a: int, ctx: Context): ...
def keyword(a: int, *, context: Context): ...
def optional(a: int, ctx: Context | None = None): ...
def annotated(a: int, ctx: Annotated[Context, "mine"]): ...
def quoted(a: int, ctx: "Context"): ...  # noqa: UP037


@pytest.mark.parametrize(
    "function", [first, last, keyword, optional, annotated, quoted], ids=lambda f: f.__name__
)
def test_the_context_may_stand_anywhere_and_is_no_argument(function: Callable[..., Any]) -> None:
    signature = Signature.of(function, Context)
    assert signature.context in ("ctx", "context")
    assert set(signature.schema["properties"]) == {"a"}
    with pytest.raises(pydantic.ValidationError):
        signature.binder()({"a": 1, str(signature.context): {}})


class Service:
    """A service."""

    def method(self, a: int) -> str:
        """Do a method."""
        return str(a)

    @classmethod
    def class_method(cls, a: int) -> str:
        """Do a class method."""
        return str(a)

    @staticmethod
    def static_method(a: int) -> str:
        """Do a static method."""
        return str(a)

    def __call__(self, a: int) -> str:
        """Do a call."""
        return str(a)


def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def inner(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return inner


@decorated
def wrapped(a: int) -> str:
    """Do a wrapped one."""
    return str(a)


@pytest.mark.parametrize(
    ("function", "description"),
    [
        (Service().method, "Do a method."),
        (Service.class_method, "Do a class method."),
        (Service.static_method, "Do a static method."),
        (Service(), "Do a call."),
        (wrapped, "Do a wrapped one."),
    ],
)
def test_everything_that_can_be_called(function: Callable[..., Any], description: str) -> None:
    signature = Signature.of(function, Context)
    assert signature.description == description
    assert signature.schema["properties"] == {"a": {"type": "integer"}}
    assert signature.returns is str
    assert function(**signature.binder()({"a": "7"})) == "7"


def test_a_keyword_of_a_partial_is_a_default() -> None:
    def f(a: int, b: int, c: int = 3): ...

    signature = Signature.of(functools.partial(f, b=2), Context)
    assert signature.schema["required"] == ["a"]
    assert signature.binder()({"a": 1}) == {"a": 1, "b": 2, "c": 3}


def test_a_positional_argument_of_a_partial_is_not_a_parameter() -> None:
    def f(a: int, b: int): ...

    assert set(Signature.of(functools.partial(f, 1), Context).schema["properties"]) == {"b"}


def positional_only(a: int, /): ...
def variadic(*a: int): ...
def missing(a: Nowhere): ...  # type: ignore[name-defined]  # noqa: F821
def unreadable(a: Callable[[], int]): ...


class Opaque:
    pass


def opaque(a: Opaque): ...


@pytest.mark.parametrize(
    "function", [positional_only, variadic, missing, unreadable, opaque], ids=lambda f: f.__name__
)
def test_parameters_that_callers_cannot_pass_are_refused(function: Callable[..., Any]) -> None:
    with pytest.raises(DefinitionError) as caught:
        Signature.of(function, Context)
    assert function.__name__ in str(caught.value)


class Titled(BaseModel):
    model_config = ConfigDict(title="A title of its own")
    a: int


def test_a_title_that_an_author_gave_is_kept() -> None:
    def f(a: Titled): ...

    schema = Signature.of(f, Context).schema
    assert schema["$defs"]["Titled"]["title"] == "A title of its own"


class Ordered(BaseModel):
    low: int
    high: int

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.low > self.high:
            raise ValueError("The other way round.")
        return self


def test_arguments_are_validated_together() -> None:
    def f(low: int | str, high: int | str): ...

    bind = dataclasses.replace(Signature.of(f, Context), model=Ordered).binder()
    assert bind({"low": "1", "high": 2}) == {"low": 1, "high": 2}
    with pytest.raises(ValidationError, match="The other way round"):
        bind({"low": 2, "high": 1})
