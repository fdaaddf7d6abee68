"""The fields of a form: what a person is shown of each, and how what they write is read.

Whether a value fits is for `model.form` to say. Pure.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from antiphon.model.form import choices, field_problem

__all__ = ["Field", "fields_of"]

_WORDS = {"yes": True, "y": True, "true": True, "no": False, "n": False, "false": False}
_FORMATS = {
    "email": "an email address",
    "uri": "a URI",
    "date": "a date, as 2026-11-30",
    "date-time": "a date and time, as 2026-11-30T12:00:00Z",
}


class _Choice(msgspec.Struct):
    const: Any = None
    title: str | None = None


class _Schema(msgspec.Struct, rename="camel"):
    """What a field may say; a server that says something else cannot be shown to a person."""

    type: Literal["string", "number", "integer", "boolean", "array"] = "string"
    title: str | None = None
    description: str | None = None
    format: str | None = None
    enum: list[Any] | None = None
    enum_names: list[str] | None = None
    one_of: list[_Choice] | None = None
    any_of: list[_Choice] | None = None
    items: _Schema | None = None
    minimum: float | None = None
    maximum: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    min_items: int | None = None
    max_items: int | None = None


class _Form(msgspec.Struct):
    properties: dict[str, _Schema] = {}
    required: list[str] = []


@dataclass(frozen=True, slots=True)
class Field:
    """One field, and whether it must be filled in."""

    name: str
    schema: Mapping[str, Any]
    required: bool

    @property
    def title(self) -> str:
        """What it is called, with its name where that cannot be guessed."""
        title: str = self.schema.get("title") or self.name
        same = title.replace(" ", "_").lower() == self.name.lower()
        return title if same else f"{title} ({self.name})"

    @property
    def has_default(self) -> bool:
        """Whether it starts with a value."""
        return self.schema.get("default") is not None

    @property
    def is_list(self) -> bool:
        """Whether several values can be chosen."""
        return self.schema.get("type") == "array"

    @property
    def labels(self) -> list[str]:
        """What can be chosen, where it is a choice: the label, and the value where that is another."""
        return [label if label == str(value) else f"{label} ({value})" for value, label in self._choices]

    @property
    def numbered(self) -> bool:
        """Whether a choice can be made by its number, which none of the values looks like."""
        return not any(str(value).isdigit() or label.isdigit() for value, label in self._choices)

    @property
    def kind(self) -> str:
        """What is to be written there, in words."""
        if self._choices:
            what = f"1 to {len(self._choices)}" if self.numbered else "one of these"
            return f"{what}; several with commas{self._span('Items')}" if self.is_list else what
        type_ = self.schema.get("type", "string")
        if type_ == "boolean":
            return "yes or no"
        if type_ in ("integer", "number"):
            what = "a whole number" if type_ == "integer" else "a number"
            return what + _between(self.schema.get("minimum"), self.schema.get("maximum"))
        if self.is_list:
            return f"values with commas between them{self._span('Items')}"
        what = _FORMATS.get(self.schema.get("format", ""), "text")
        return what + self._span("Length", " characters")

    @property
    def default(self) -> str:
        """The value it starts with, as a person would write it."""
        value = self.schema.get("default")
        labels = {str(known): label for known, label in self._choices}
        if isinstance(value, bool):
            return "yes" if value else "no"
        if isinstance(value, list):
            return ", ".join(labels.get(str(item), str(item)) for item in value) or "none"
        return labels.get(str(value), str(value))

    def read(self, text: str, *, by_number: bool = False) -> Any:
        """The value of what was written; raises `ValueError` that says what is wrong with it."""
        value = self._list(text, by_number) if self.is_list else self._single(text, by_number)
        self.check(value)
        return value

    def check(self, value: Any) -> None:
        """Raise `ValueError` for a value that does not fit."""
        problem = field_problem(self.schema, value)
        if problem is not None:
            raise ValueError(problem)

    @property
    def _choices(self) -> list[tuple[Any, str]]:
        return choices(self.schema)

    def _list(self, text: str, by_number: bool) -> Any:
        if text.lstrip().startswith("["):
            try:
                return json.loads(text)
            except ValueError:
                raise ValueError("this is not a JSON array") from None
        pieces = [piece.strip() for piece in text.split(",") if piece.strip()]
        if [piece.lower() for piece in pieces] == ["none"] and "none" not in map(str.lower, self.labels):
            return []
        return [self._single(piece, by_number) for piece in pieces]

    def _single(self, text: str, by_number: bool) -> Any:
        if self._choices:
            return self._choice(text.strip(), by_number and self.numbered)
        kind = self.schema.get("type", "string")
        if kind == "boolean":
            if text.strip().lower() not in _WORDS:
                raise ValueError("say yes or no")
            return _WORDS[text.strip().lower()]
        if kind in ("integer", "number"):
            return _number(text.strip())
        return text.strip() if "format" in self.schema else text

    def _choice(self, text: str, by_number: bool) -> Any:
        for value, label in self._choices:
            if text in (str(value), label):
                return value
        near = [
            value for value, label in self._choices if text.lower() in (str(value).lower(), label.lower())
        ]
        if len(near) == 1:
            return near[0]
        if by_number and text.isdecimal() and 0 < int(text) <= len(self._choices):
            return self._choices[int(text) - 1][0]
        allowed = f"1 to {len(self._choices)}" if by_number else ", ".join(self.labels)
        raise ValueError(f"this must be one of {allowed}")

    def _span(self, what: str, unit: str = "") -> str:
        span = _between(self.schema.get(f"min{what}"), self.schema.get(f"max{what}"))
        return span + unit if span else ""


def fields_of(schema: Mapping[str, Any]) -> list[Field]:
    """The fields of a form, in order; raises `ValueError` for what is no form."""
    try:
        form = msgspec.convert(schema, _Form)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None
    properties = schema.get("properties", {})
    return [Field(name, properties[name], name in form.required) for name in form.properties]


def _between(least: float | None, most: float | None) -> str:
    if least is not None and most is not None:
        return f", {least:g} to {most:g}"
    if least is not None:
        return f", at least {least:g}"
    return f", at most {most:g}" if most is not None else ""


def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        number = float(text)
    except ValueError:
        raise ValueError("this must be a number") from None
    if not math.isfinite(number):
        raise ValueError("this must be a number")
    return number
