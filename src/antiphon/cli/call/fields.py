"""The fields of a form: how each is shown to the user, and how the user's text becomes a value.

`model.form` decides whether a value is valid. Pure.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from antiphon.model.form import choices, field_problem

__all__ = ["Field", "form_fields"]

_BOOLEANS = {"yes": True, "y": True, "true": True, "no": False, "n": False, "false": False}
_FORMATS = {
    "email": "an email address",
    "uri": "a URI",
    "date": "a date, such as 2026-11-30",
    "date-time": "a date and time, such as 2026-11-30T12:00:00Z",
}


class _Choice(msgspec.Struct):
    const: Any = None
    title: str | None = None


class _Schema(msgspec.Struct, rename="camel"):
    """The keywords of a field's schema. A field with other values of these keywords cannot be shown."""

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
    """One field of a form."""

    name: str
    schema: Mapping[str, Any]
    required: bool

    @property
    def title(self) -> str:
        """The title of the field, with its name if the title does not show it."""
        title: str = self.schema.get("title") or self.name
        same = title.replace(" ", "_").lower() == self.name.lower()
        return title if same else f"{title} ({self.name})"

    @property
    def has_default(self) -> bool:
        """Whether the field has a default value."""
        return self.schema.get("default") is not None

    @property
    def is_list(self) -> bool:
        """Whether the field takes several values."""
        return self.schema.get("type") == "array"

    @property
    def labels(self) -> list[str]:
        """The labels of the choices, each with its value if the two differ."""
        return [label if label == str(value) else f"{label} ({value})" for value, label in self._choices]

    @property
    def is_numbered(self) -> bool:
        """Whether the user can choose by number. Not if a value or a label is itself a number."""
        return not any(str(value).isdigit() or label.isdigit() for value, label in self._choices)

    @property
    def hint(self) -> str:
        """What to type, in words."""
        if self._choices:
            hint = f"1 to {len(self._choices)}" if self.is_numbered else "one of these"
            return f"{hint}; separate several with commas{self._range('Items')}" if self.is_list else hint
        type_ = self.schema.get("type", "string")
        if type_ == "boolean":
            return "yes or no"
        if type_ in ("integer", "number"):
            hint = "a whole number" if type_ == "integer" else "a number"
            return hint + _range(self.schema.get("minimum"), self.schema.get("maximum"))
        if self.is_list:
            return f"values separated by commas{self._range('Items')}"
        hint = _FORMATS.get(self.schema.get("format", ""), "text")
        return hint + self._range("Length", " characters")

    @property
    def default(self) -> str:
        """The default value, as a user would type it."""
        value = self.schema.get("default")
        labels = {str(known): label for known, label in self._choices}
        if isinstance(value, bool):
            return "yes" if value else "no"
        if isinstance(value, list):
            return ", ".join(labels.get(str(item), str(item)) for item in value) or "none"
        return labels.get(str(value), str(value))

    def parse(self, text: str, *, by_number: bool = False) -> Any:
        """Return the value of the text. Raises `ValueError` with the reason if the value is invalid."""
        value = self._parse_list(text, by_number) if self.is_list else self._parse_one(text, by_number)
        self.check(value)
        return value

    def check(self, value: Any) -> None:
        """Raise `ValueError` with the reason if a value is invalid."""
        problem = field_problem(self.schema, value)
        if problem is not None:
            raise ValueError(problem)

    @property
    def _choices(self) -> list[tuple[Any, str]]:
        return choices(self.schema)

    def _parse_list(self, text: str, by_number: bool) -> Any:
        if text.lstrip().startswith("["):
            try:
                return json.loads(text)
            except ValueError:
                raise ValueError("this is not a JSON array") from None
        items = [item.strip() for item in text.split(",") if item.strip()]
        if [item.lower() for item in items] == ["none"] and "none" not in map(str.lower, self.labels):
            return []
        return [self._parse_one(item, by_number) for item in items]

    def _parse_one(self, text: str, by_number: bool) -> Any:
        if self._choices:
            return self._parse_choice(text.strip(), by_number and self.is_numbered)
        type_ = self.schema.get("type", "string")
        if type_ == "boolean":
            if text.strip().lower() not in _BOOLEANS:
                raise ValueError("answer yes or no")
            return _BOOLEANS[text.strip().lower()]
        if type_ in ("integer", "number"):
            return _parse_number(text.strip())
        return text.strip() if "format" in self.schema else text

    def _parse_choice(self, text: str, by_number: bool) -> Any:
        for value, label in self._choices:
            if text in (str(value), label):
                return value
        similar = [
            value for value, label in self._choices if text.lower() in (str(value).lower(), label.lower())
        ]
        if len(similar) == 1:
            return similar[0]
        if by_number and text.isdecimal() and 0 < int(text) <= len(self._choices):
            return self._choices[int(text) - 1][0]
        if by_number:
            raise ValueError(f"choose a number from 1 to {len(self._choices)}")
        raise ValueError(f"choose one of {', '.join(self.labels)}")

    def _range(self, keyword: str, unit: str = "") -> str:
        text = _range(self.schema.get(f"min{keyword}"), self.schema.get(f"max{keyword}"))
        return text + unit if text else ""


def form_fields(schema: Mapping[str, Any]) -> list[Field]:
    """Return the fields of a form, in order. Raises `ValueError` if the schema is not a form."""
    try:
        form = msgspec.convert(schema, _Form)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None
    properties, required = schema.get("properties", {}), set(form.required)
    fields = [Field(name, properties[name], name in required) for name in form.properties]
    try:
        for field in fields:
            _ = (field.title, field.labels, field.hint, field.default)
    except (ArithmeticError, AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"the field {field.name} cannot be shown: {error}") from None
    return fields


def _range(minimum: float | None, maximum: float | None) -> str:
    if minimum is not None and maximum is not None:
        return f", {minimum:g} to {maximum:g}"
    if minimum is not None:
        return f", at least {minimum:g}"
    return f", at most {maximum:g}" if maximum is not None else ""


def _parse_number(text: str) -> int | float:
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
