"""Turns a type into a form for the user, and the user's input back into a value of the type.

Owns which schemas the protocol allows for forms. It must not know how a question reaches the user.
https://modelcontextprotocol.io/specification/2026-07-28/client/elicitation
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import pydantic

from antiphon.errors import DefinitionError
from antiphon.model.form import problems
from antiphon.model.question import Elicit, question_key
from antiphon.runtime.authoring.signature import explain, first_sentence, schema_of
from antiphon.runtime.authoring.typed_dicts import adapt_typed_dicts

__all__ = ["Form"]

_FORM_KEYWORDS = {
    "type",
    "title",
    "description",
    "default",
    "enum",
    "enumNames",
    "oneOf",
    "anyOf",
    "items",
    "format",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
}
_FORMATS = {"email", "uri", "date", "date-time"}
_KINDS: Mapping[str, type[Any]] = {
    "string": str,
    "number": float,
    "integer": int,
    "boolean": bool,
    "array": list,
}
_MAX_CACHED_FORMS = 1024
"""How many types have their forms cached."""
_MAX_CACHED_KEYS = 256
"""How many question keys a form caches."""
_PRIMITIVES = {"string", "number", "integer", "boolean"}


class Form:
    """The schema of a form, with a reader for the user's input."""

    __slots__ = ("_kinds", "_read", "keys", "schema")

    def __init__(
        self, schema: dict[str, Any], read: Callable[[dict[str, Any]], Any], *, typed: bool = False
    ) -> None:
        self.schema = schema
        self._read = read
        self.keys: dict[str, str] = {}
        self._kinds = {
            name: _KINDS[field["type"]]
            for name, field in schema["properties"].items()
            if typed and "type" in field
        }

    def key(self, message: str) -> str:
        """Return the key of a question with this form, which is the same in every process."""
        found = self.keys.get(message)
        if found is None:
            if len(self.keys) >= _MAX_CACHED_KEYS:
                self.keys.clear()
            found = self.keys[message] = question_key(Elicit(message, self.schema))
        return found

    def read(self, content: Mapping[str, Any] | None) -> tuple[Any, str | None]:
        """Return the value and `None`, or `None` and a description of what is wrong with the input."""
        entered = dict(content or {})
        # The type validates bounds itself. Only the JSON type of each value has to be checked here.
        if not self._has_right_types(entered):
            wrong = problems(self.schema, entered)
            if wrong:
                return None, "; ".join(wrong)
        try:
            return self._read(entered), None
        except pydantic.ValidationError as error:
            return None, "; ".join(problems(self.schema, entered)) or explain(error)

    def _has_right_types(self, entered: Mapping[str, Any]) -> bool:
        """Return whether the form has a type for each value, and the value is of that type."""
        kinds = self._kinds
        for name, value in entered.items():
            if type(value) is not kinds.get(name):
                return False
        return bool(kinds)

    @staticmethod
    def of(wanted: Any) -> Form:
        """Return the form for a type or a JSON schema; raises `DefinitionError` if neither fits a form."""
        if not isinstance(wanted, type) and isinstance(wanted, Mapping):
            return Form(_checked(wanted), lambda content: content)
        return _form(wanted)


def _checked(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return an author's schema; raises `DefinitionError` if it is not valid for a form."""
    properties = schema.get("properties")
    if schema.get("type") != "object" or not isinstance(properties, Mapping):
        raise DefinitionError("The schema of a form needs the type object, and properties.")
    for name, field in properties.items():
        kind = field.get("type") if isinstance(field, Mapping) else None
        if not isinstance(kind, str) or kind not in _PRIMITIVES | {"array"}:
            raise _not_flat(dict(schema), name)
        if kind == "array" and not isinstance(field.get("items"), Mapping):
            raise _not_flat(dict(schema), name)
    return dict(schema)


@functools.lru_cache(maxsize=_MAX_CACHED_FORMS)
def _form(wanted: Any) -> Form:
    try:
        adapter: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(adapt_typed_dicts(wanted))
        schema = schema_of(adapter, mode="validation")
    except (pydantic.errors.PydanticUserError, TypeError) as error:
        raise DefinitionError(f"Cannot make a form of {wanted!r}: {first_sentence(error)}.") from None
    definitions: Mapping[str, Any] = schema.get("$defs", {})
    if "properties" in schema:
        return Form(_flat(wanted, schema, definitions), adapter.validator.validate_python, typed=True)
    if _resolved(schema, definitions).get("type") not in _PRIMITIVES | {"array"}:
        raise DefinitionError(
            f"Cannot make a form of {wanted!r}: it has no fields. "
            "Use a model, a string, a number or a choice."
        )
    field = _field(wanted, "value", schema, definitions)
    whole = {"type": "object", "properties": {"value": field}, "required": ["value"]}
    return Form(whole, lambda content: adapter.validate_python(content["value"]))


def _flat(wanted: Any, schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema with only the keywords that forms allow."""
    fields = {name: _field(wanted, name, prop, definitions) for name, prop in schema["properties"].items()}
    flat: dict[str, Any] = {"type": "object", "properties": fields}
    if required := schema.get("required"):
        flat["required"] = list(required)
    return flat


def _field(wanted: Any, name: str, prop: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    field = _resolved(prop, definitions)
    if "items" in field:
        field["items"] = _resolved(field["items"], definitions)
        field["items"].pop("title", None)
        if not (field["items"].get("enum") or field["items"].get("anyOf")):
            raise _not_flat(wanted, name)
    elif field.get("type") not in _PRIMITIVES:
        raise _not_flat(wanted, name)
    if "exclusiveMinimum" in field or "exclusiveMaximum" in field:
        raise DefinitionError(
            f"{wanted!r}: the field {name!r} has an exclusive bound, which forms do not support: "
            "use ge and le instead of gt and lt."
        )
    if field.get("format") not in _FORMATS:
        field.pop("format", None)
    return {key: value for key, value in field.items() if key in _FORM_KEYWORDS}


def _resolved(prop: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """Return a property with its `$ref` resolved, and without the `null` alternative of an optional field."""
    field = dict(prop)
    if "$ref" in field:
        target = definitions[field.pop("$ref").rpartition("/")[2]]
        field = {**{key: value for key, value in target.items() if key != "title"}, **field}
    options = [option for option in field.get("anyOf", ()) if option.get("type") != "null"]
    if len(options) == 1 and "const" not in options[0]:
        field.pop("anyOf")
        field = {**_resolved(options[0], definitions), **field}
        if field.get("default", ...) is None:
            field.pop("default")
    if "const" in field and "enum" not in field:
        field["enum"] = [field.pop("const")]
    return field


def _not_flat(wanted: Any, name: str) -> DefinitionError:
    return DefinitionError(
        f"{wanted!r}: a form cannot have the field {name!r}. "
        "Fields are strings, numbers, booleans, choices and lists of choices."
    )
