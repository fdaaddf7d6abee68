"""Conversion of return values to results."""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field, RootModel
from typing_extensions import TypedDict

from antiphon import (
    Artifact,
    Audio,
    DefinitionError,
    EmbeddedResource,
    Image,
    ResourceLink,
    Result,
    Text,
    TextContents,
)
from antiphon.runtime.authoring.results import InvalidReturnValue, ResultBuilder


class Point(BaseModel):
    x: int
    y: int = Field(0, serialization_alias="why")


@dataclasses.dataclass
class Size:
    width: float


class Tag(TypedDict):
    name: str


class Line(BaseModel):
    ends: list[Point]


class Names(RootModel[list[str]]):
    """A model whose JSON is not an object."""


VIDEO = {"type": "video", "text": "Here is a video.", "url": "https://example.com/a.mp4"}
IMAGE = Image("YQ==", "image/png")


@pytest.mark.parametrize(
    ("returns", "value", "data", "boxed"),
    [
        (Point, Point(x=1), {"x": 1, "why": 0}, False),
        (Point, {"x": 1}, {"x": 1, "why": 0}, False),
        (Size, Size(2), {"width": 2.0}, False),
        (Tag, {"name": "n"}, {"name": "n"}, False),
        (dict[str, int], {"a": 1}, {"a": 1}, False),
        (dict, {"a": 1}, {"a": 1}, False),
        (int, 3, 3, True),
        (float, 1.5, 1.5, True),
        (bool, True, True, True),
        (list[int], [1, 2], [1, 2], True),
        (Point | None, None, None, True),
        (Point | None, Point(x=1), {"x": 1, "why": 0}, True),
        (str | int, "a", "a", True),
        (datetime.date, datetime.date(2026, 1, 2), "2026-01-02", True),
        (Annotated[int, Field(ge=0)], 3, 3, True),
        (tuple[int, str], (1, "a"), [1, "a"], True),
    ],
    ids=repr,
)
def test_typed_values_are_structured_and_readable(returns: Any, value: Any, data: Any, boxed: bool) -> None:
    output = ResultBuilder("t", returns)
    assert output.schema is not None
    result = output.convert(value)
    assert (result.structured, result.data, result.boxed, result.is_error) == (True, data, boxed, False)
    assert json.loads(result.text) == data


@pytest.mark.parametrize(
    ("returns", "value", "content"),
    [
        (str, "a", [Text("a")]),
        (str, "", [Text("")]),
        (None, None, []),
        (str | None, None, []),
        (Any, "a", [Text("a")]),
        (Any, [1, "a"], [Text('[1,"a"]')]),
        (Any, object, [Text(json.dumps(str(object)))]),
        (Image, IMAGE, [IMAGE]),
        (Image | Text, IMAGE, [IMAGE]),
        (list[Image], [IMAGE, IMAGE], [IMAGE, IMAGE]),
        (list[Text | Image], [Text("a"), IMAGE], [Text("a"), IMAGE]),
        (list[str | Image], ["a", IMAGE], [Text("a"), IMAGE]),
        (list[str | Image], ["a", "b"], [Text("a"), Text("b")]),
        (list[str | Image], [], []),
        (list[str | Image] | None, ("a", "b"), [Text("a"), Text("b")]),
        (list[str | Image] | None, None, []),
        (list[str | Image] | str, "a", [Text("a")]),
        (Annotated[list[str | Image], "note"], ["a", "b"], [Text("a"), Text("b")]),
        (list[dict[str, int] | Image], [{"b": 1}, {"b": 2}], [Text('{"b":1}'), Text('{"b":2}')]),
        (tuple[str | Text, ...], ("a", "b"), [Text("a"), Text("b")]),
        (Any, ["a", "b"], [Text("a"), Text("b")]),
        (Any, [], [Text("[]")]),
        (Any, ["a", IMAGE, {"b": 1}], [Text("a"), IMAGE, Text('{"b":1}')]),
        (list[Any], ["a", IMAGE, {"b": 1}], [Text("a"), IMAGE, Text('{"b":1}')]),
        (list[Any] | None, [IMAGE], [IMAGE]),
        (tuple[Any, ...], (IMAGE, "a"), [IMAGE, Text("a")]),
        (Sequence[Any], [IMAGE], [IMAGE]),
        (list, [IMAGE, 1], [IMAGE, Text("1")]),
        (list[Any], [VIDEO, "a"], [VIDEO, Text("a")]),
        (list[Any], [{"type": "text", "text": "a"}], [{"type": "text", "text": "a"}]),
        (Audio, Audio("YQ==", "audio/wav"), [Audio("YQ==", "audio/wav")]),
        (ResourceLink, ResourceLink("u:", "n"), [ResourceLink("u:", "n")]),
        (
            EmbeddedResource,
            EmbeddedResource(TextContents("u:", "t")),
            [EmbeddedResource(TextContents("u:", "t"))],
        ),
    ],
    ids=repr,
)
def test_text_and_blocks_are_content_alone(returns: Any, value: Any, content: list[Any]) -> None:
    output = ResultBuilder("t", returns)
    assert output.schema is None
    result = output.convert(value)
    assert list(result.content) == content
    assert not result.structured


@pytest.mark.parametrize(
    "returns",
    [
        list[str],
        tuple[str, ...],
        Sequence[str],
        list[str] | None,
        list[Annotated[str, Field(max_length=9)]],
        Annotated[list[str], "note"],
    ],
    ids=repr,
)
@pytest.mark.parametrize("value", [["a", "b"], ["a"], [], ["[1]", ""]], ids=repr)
def test_a_list_of_strings_is_a_block_for_each_and_data(returns: Any, value: list[str]) -> None:
    output = ResultBuilder("t", returns)
    assert output.schema is not None
    for given in (value, Result(data=value)):
        result = output.convert(given)
        assert list(result.content) == [Text(item) for item in value]
        assert (result.structured, result.data, result.boxed) == (True, value, True)
    content_only = ResultBuilder("t", returns, structured=False)
    assert content_only.schema is None
    result = content_only.convert(value)
    assert (list(result.content), result.structured) == ([Text(item) for item in value], False)


def test_a_list_of_strings_or_nothing_is_json_where_it_is_nothing() -> None:
    result = ResultBuilder("t", list[str] | None).convert(None)
    assert (result.text, result.data) == ("null", None)


def test_a_list_of_anything_with_strings_alone_is_a_block_for_each_and_data() -> None:
    result = ResultBuilder("t", list[Any]).convert(["a", "b"])
    assert (list(result.content), result.data) == ([Text("a"), Text("b")], ["a", "b"])


@pytest.mark.parametrize("returns", [list[Any], list, list[Any] | None, Sequence[Any]])
def test_a_list_of_anything_is_data_unless_it_has_blocks(returns: Any) -> None:
    output = ResultBuilder("t", returns)
    assert output.schema is None
    result = output.convert([1, {"type": "user", "text": "a"}])
    assert result.data == [1, {"type": "user", "text": "a"}]
    assert (result.structured, result.boxed) == (True, True)
    assert result.text == '[1,{"type":"user","text":"a"}]'


@pytest.mark.parametrize("returns", [Any, str])
@pytest.mark.parametrize(
    ("value", "data"), [({"a": 1}, {"a": 1}), (Point(x=1), {"x": 1, "why": 0}), (Size(2), {"width": 2.0})]
)
def test_values_with_named_fields_are_structured_without_an_annotation(
    returns: Any, value: Any, data: dict[str, Any]
) -> None:
    result = ResultBuilder("t", returns).convert(value)
    assert (result.data, result.boxed, json.loads(result.text)) == (data, False, data)
    assert not ResultBuilder("t", returns, structured=False).convert(value).structured


def test_structured_content_can_be_switched_off_and_on() -> None:
    off = ResultBuilder("t", Point, structured=False)
    assert off.schema is None
    assert off.convert(Point(x=1)).text == '{"x":1,"why":0}'
    on = ResultBuilder("t", str, structured=True)
    assert on.schema == {"type": "string"}
    assert on.convert("a").data == "a"


@pytest.mark.parametrize("returns", [str, Result, Any])
def test_a_result_is_passed_on_as_it_is(returns: Any) -> None:
    given = Result("a", data={"b": 1}, meta={"m": 1}, is_error=True)
    assert ResultBuilder("t", returns).convert(given) is given


def test_the_data_of_a_result_is_checked_against_the_annotation() -> None:
    convert: Callable[[Any], Result] = ResultBuilder("t", Point).convert
    result = convert(Result("said otherwise", data={"x": 1}))
    assert (result.text, result.data) == ("said otherwise", {"x": 1, "why": 0})
    with pytest.raises(ValueError):
        convert(Result("x", data={"x": "no number"}))


def test_the_data_of_a_failed_result_is_not_checked() -> None:
    assert ResultBuilder("t", Point).convert(Result("x", data={"why": "not"}, is_error=True)).data == {
        "why": "not"
    }


def test_a_value_that_does_not_match_the_annotation_is_an_error() -> None:
    with pytest.raises(ValueError):
        ResultBuilder("t", Point).convert({"x": "no number"})


def test_a_type_without_a_schema_is_refused() -> None:
    with pytest.raises(DefinitionError) as caught:
        ResultBuilder("t", object())
    assert "structured=False" in str(caught.value)


def test_a_model_that_has_no_named_fields_is_content_alone() -> None:
    result = ResultBuilder("t", Any).convert(Names(["a", "b"]))
    assert (result.text, result.structured) == ('["a","b"]', False)


def test_the_data_of_a_result_is_not_checked_without_an_annotation() -> None:
    result = ResultBuilder("t", Any).convert(Result(data=[1, 2]))
    assert (result.text, result.data, result.boxed) == ("[1,2]", [1, 2], True)


def test_the_data_of_a_result_may_be_a_declared_type_that_is_not_an_object() -> None:
    result = ResultBuilder("t", list[int]).convert(Result("two", data=(1, "2")))
    assert (result.text, result.data, result.boxed) == ("two", [1, 2], True)


@pytest.mark.parametrize("structured", [None, False])
def test_an_artifact_needs_no_annotation(structured: bool | None) -> None:
    convert = ResultBuilder("t", Any, structured=structured).convert
    artifact = Artifact({"a": 1})
    assert convert(artifact).artifact is artifact
    given = Result("said", artifact=artifact)
    assert convert(given) is given


@pytest.mark.parametrize("value", [{"x": 1}, Result("said")])
def test_a_tool_that_declares_an_artifact_must_return_one(value: Any) -> None:
    with pytest.raises(InvalidReturnValue, match="and returned none"):
        ResultBuilder("t", Artifact[Point]).convert(value)
    failed = Result("It cannot be done.", is_error=True)
    assert ResultBuilder("t", Artifact[Point]).convert(failed) is failed


def test_the_schema_of_an_artifact_has_the_definitions_of_its_value() -> None:
    schema = ResultBuilder("t", Artifact[Line]).schema
    assert schema is not None
    assert schema["properties"]["artifact"]["properties"]["ends"]["items"] == {"$ref": "#/$defs/Point"}
    assert set(schema["$defs"]) == {"Point"}
    assert "$defs" not in schema["properties"]["artifact"]


def test_a_union_with_an_artifact_has_no_schema() -> None:
    output = ResultBuilder("t", Artifact[Point] | Point | Result)
    assert output.schema is None
    assert output.convert(Point(x=1)).data == {"x": 1, "why": 0}
    assert output.convert(Artifact(Point(x=1))).artifact is not None
