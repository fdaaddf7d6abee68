"""Fingerprints of steps and questions, and canonical JSON."""

from __future__ import annotations

import datetime
import decimal
import enum
import functools
import uuid
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from antiphon.model.question import Elicit, ListRoots, OpenUrl, Sample
from antiphon.runtime.execution.fingerprints import (
    StepPrint,
    canonical_json,
    is_same_question,
    json_spellings,
    question_print,
    step_print,
)


class Point(BaseModel):
    x: float
    y: int = 0


@dataclass
class Spot:
    x: int


@dataclass
class Application:
    connection: Any
    hits: int = 0


class Colour(enum.StrEnum):
    RED = "red"


class Name(str):
    pass


def charge(*args: Any, **kwargs: Any) -> None: ...


def digest(*args: Any, **kwargs: Any) -> str:
    return step_print(charge, args, kwargs).digest


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(json_values)
def test_canonical_json_is_the_same_after_a_round_trip(value: Any) -> None:
    written = canonical_json(value)
    assert canonical_json(msgspec.json.decode(written)) == written
    assert canonical_json(msgspec.msgpack.decode(msgspec.msgpack.encode(value))) == written


@given(json_values)
def test_the_spellings_of_data_are_its_canonical_json_and_its_json_as_it_is(value: Any) -> None:
    spelled = msgspec.json.encode(value, order="deterministic")
    assert json_spellings(value) == tuple(dict.fromkeys((canonical_json(value), spelled)))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (4522, 4522.0),
        ({"a": 1, "b": 2}, {"b": 2.0, "a": 1}),
        ((1, 2), [1, 2]),
        (Point(x=1), Point(x=1.0, y=0)),
        (Name("x"), "x"),
        (OrderedDict(a=1), {"a": 1}),
        (PurePosixPath("a/b"), "a/b"),
        (Colour.RED, "red"),
    ],
)
def test_arguments_that_mean_the_same_have_one_fingerprint(one: Any, other: Any) -> None:
    assert digest(one) == digest(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 2),
        (1, "1"),
        (1, True),
        (1.5, 1.25),
        (Point(x=1), Point(x=2)),
        (Spot(1), Spot(2)),
        ({"a": 1}, {"b": 1}),
        (decimal.Decimal("9.90"), decimal.Decimal("9.91")),
        (datetime.date(2026, 1, 1), datetime.date(2026, 1, 2)),
        (uuid.UUID(int=1), uuid.UUID(int=2)),
        (b"a", b"b"),
        (None, object()),
    ],
)
def test_other_arguments_have_another_fingerprint(one: Any, other: Any) -> None:
    assert digest(one) != digest(other)
    assert digest(named=one) != digest(named=other)
    assert digest(one) != digest(named=one)


def test_objects_that_are_not_data_all_the_way_down_are_not_compared() -> None:
    assert digest(object()) == digest(object()) == digest(charge)
    assert digest(Application(object(), 1)) == digest(Application(object(), 2))
    assert digest({"connection": object(), "hits": 1}) == digest({"connection": object(), "hits": 2})
    loop: list[Any] = []
    loop.append(loop)
    assert digest(loop) == digest(object())
    assert digest(object(), 1) != digest(object(), 2)


def test_the_object_that_all_calls_share_is_not_compared() -> None:
    before, after = Spot(1), Spot(2)
    assert step_print(charge, (before,), {}, shared=before) == step_print(charge, (after,), {}, shared=after)
    assert step_print(charge, (None,), {}, shared=None).digest == digest(None)


def test_arguments_that_are_bound_before_are_not_compared() -> None:
    first, second = functools.partial(charge, "token 1"), functools.partial(charge, "token 2")
    assert step_print(first, (5,), {}) == step_print(second, (5,), {})


def test_the_name_of_a_function_does_not_tell_where_it_was_defined() -> None:
    def local() -> None: ...

    class Shop:
        def charge(self) -> None: ...

        def __call__(self) -> None: ...

    assert step_print(local, (), {}).function == "local"
    assert step_print(Shop().charge, (), {}).function == "Shop.charge"
    assert step_print(Shop(), (), {}).function == "Shop.__call__"


@pytest.mark.parametrize("key", ["step:charge", "step:charge#2", "step:pay"])
@pytest.mark.parametrize("function", ["charge", "Shop.charge"])
def test_a_fingerprint_is_read_as_it_was_written(key: str, function: str) -> None:
    for marks in range(8):
        written = StepPrint("0a1b2c3d", function, bool(marks & 1), bool(marks & 2), bool(marks & 4))
        assert StepPrint.read(written.write(key), key) == written


def test_a_fingerprint_is_short_where_the_key_has_the_name() -> None:
    assert len(step_print(charge, (1, 2, 3), {}).write("step:charge")) == 8


def test_a_question_is_the_same_in_other_words_and_with_other_fields_beside() -> None:
    def form(*fields: str) -> str:
        return question_print(Elicit("?", {"type": "object", "properties": {key: {} for key in fields}}))

    assert question_print(Elicit("a?", {})) == question_print(Elicit("b?", {}))
    assert is_same_question(form("a", "b"), form("b", "c"))
    assert is_same_question(form(), form("a"))
    assert not is_same_question(form("a"), form("b"))
    assert not is_same_question(form("a"), question_print(Sample({})))
    assert not is_same_question(
        question_print(OpenUrl("?", "https://example.com")), question_print(ListRoots())
    )
