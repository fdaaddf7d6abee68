"""What a server offers, as the page lists it: tools, resources and prompts, with schemas of their arguments.

The variables of a resource template and the arguments of a prompt become a schema too, so the page knows one
kind of form.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from antiphon.client import Client
from antiphon.console.workbench.views import error_view
from antiphon.errors import AntiphonError
from antiphon.model.capabilities import ServerCapabilities
from antiphon.model.catalog import (
    Definition,
    PromptDefinition,
    ResourceDefinition,
    TemplateDefinition,
    ToolDefinition,
)
from antiphon.printable import printable, printable_text

__all__ = ["expand", "form_schema", "read_catalog"]

_LISTS = {"tools": "tool", "resources": "resource", "templates": "resource", "prompts": "prompt"}
"""The lists of a server, and the kind of each one's items."""
_TABS = {"tool": "Tools", "resource": "Resources", "prompt": "Prompts"}
_VERBS = {"tool": "Call", "resource": "Read", "prompt": "Get"}
_HINTS = {
    "read_only_hint": "read-only",
    "destructive_hint": "may delete",
    "idempotent_hint": "idempotent",
    "open_world_hint": "reaches outside",
}
_EXPRESSION = re.compile(r"\{([+#./;?&]?)([^{}]+)\}")
_JOINTS = {"": ",", "+": ",", "#": ",", ".": ".", "/": "/", ";": ";", "?": "&", "&": "&"}
_RESERVED = ":/?#[]@!$&'()*+,;="


async def read_catalog(client: Client, *, shows_apps: bool) -> dict[str, Any]:
    """Return the items that the server offers, and an error for each list that it cannot send.

    A resource that only a link names is shown as `unlisted` says.
    """
    offers = client.offers
    items: list[dict[str, Any]] = []
    errors: dict[str, str] = {}
    for name, kind in _LISTS.items():
        if not getattr(offers, "resources" if name == "templates" else name):
            continue
        try:
            items += (_item(kind, each, offers, shows_apps) for each in await getattr(client, name)())
        except AntiphonError as error:
            errors[kind] = error_view(error)["message"]
    unlisted: dict[str, Any] = {
        "kind": "resource",
        "tab": [*_TABS].index("resource"),
        "verb": _VERBS["resource"],
        "schema": _no_arguments(),
        "badges": [],
        "asTask": None,
        "canSubscribe": offers.resource_subscriptions,
    }
    tabs = [
        {
            "label": label,
            "count": sum(each["kind"] == kind for each in items),
            "error": errors.get(kind),
        }
        for kind, label in _TABS.items()
    ]
    return {"tabs": tabs, "items": items, "errors": errors, "unlisted": unlisted}


def expand(template: str, values: Mapping[str, Any]) -> str:
    """Return the URI of a template and the values of its variables, as RFC 6570 does up to level 3."""

    def fill(found: re.Match[str]) -> str:
        operator, joint = found[1], _JOINTS[found[1]]
        safe = _RESERVED if operator in ("+", "#") else ""
        parts = []
        for name in _variables(found[2]):
            if (value := values.get(name)) not in (None, ""):
                text = quote(str(value), safe=safe)
                parts.append(f"{name}={text}" if operator in (";", "?", "&") else text)
        first = "" if operator == "+" else operator
        return first + joint.join(parts) if parts else ""

    return _EXPRESSION.sub(fill, template) if values else template


def _item(kind: str, definition: Definition, offers: ServerCapabilities, shows_apps: bool) -> dict[str, Any]:
    ref, schema, about = definition.name, _no_arguments(), ""
    badges: list[str] = []
    as_task: bool | None = None
    if isinstance(definition, ToolDefinition):
        schema = form_schema(definition.input_schema)
        hints = definition.annotations
        badges = [label for name, label in _HINTS.items() if hints and getattr(hints, name)]
        if offers.tasks and definition.task_support != "forbidden":
            as_task = definition.task_support == "required"
    elif isinstance(definition, PromptDefinition):
        arguments = definition.arguments or ()
        schema = _schema({each.name: each.description for each in arguments})
        schema["required"] = [each.name for each in arguments if each.required]
    elif isinstance(definition, TemplateDefinition):
        ref = about = definition.uri_template
        found = [
            (name, operator) for operator, names in _EXPRESSION.findall(ref) for name in _variables(names)
        ]
        schema = _schema({name: None for name, _ in found})
        schema["required"] = [name for name, operator in found if operator not in ("?", "&")]
        badges = [definition.mime_type] if definition.mime_type else []
    elif isinstance(definition, ResourceDefinition):
        ref = about = definition.uri
        badges = [definition.mime_type] if definition.mime_type else []
    description = printable_text(definition.description or "")
    return {
        "kind": kind,
        "tab": [*_TABS].index(kind),
        "ref": ref,
        "title": printable(definition.title or definition.name),
        "description": description,
        "about": printable(about or re.sub(r"[*`]", "", description.strip().partition("\n")[0])),
        "schema": schema,
        "badges": badges,
        "verb": _VERBS[kind],
        "asTask": as_task,  # whether a call is a task unless the person says otherwise; null if none can be
        "canSubscribe": isinstance(definition, ResourceDefinition) and offers.resource_subscriptions,
        "suggests": kind != "tool" and offers.completions,
        "ui": definition.ui if isinstance(definition, ToolDefinition) and shows_apps else None,
        "definition": msgspec.to_builtins(definition),
    }


def form_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a tool as a form of the page: without parts that are not of their type."""
    properties, required = schema.get("properties"), schema.get("required")
    fields = properties.items() if isinstance(properties, Mapping) else ()
    return {
        **schema,
        "properties": {name: _field(field) for name, field in fields},
        "required": required if isinstance(required, list) else [],
    }


def _field(field: Any) -> dict[str, Any]:
    """Return a field of a form. Its title and its description cannot reorder what a person reads."""
    if not isinstance(field, Mapping):
        return {}
    shown = dict(field)
    for name, clean in (("title", printable), ("description", printable_text)):
        if name in shown:
            shown[name] = clean(str(shown[name]))
    for name in ("enum", "enumNames", "anyOf", "oneOf"):
        parts = shown.get(name)
        if not isinstance(parts, list):
            shown.pop(name, None)
        elif name in ("anyOf", "oneOf"):
            shown[name] = [part for part in parts if isinstance(part, Mapping)]
    if "items" in shown:
        shown["items"] = _field(shown["items"])
    return shown


def _variables(text: str) -> list[str]:
    """Return the names in an expression, without their modifiers."""
    return [re.sub(r"\*$|:\d+$", "", name.strip()) for name in text.split(",")]


def _no_arguments() -> dict[str, Any]:
    return {"type": "object", "properties": {}}


def _schema(names: Mapping[str, str | None]) -> dict[str, Any]:
    properties = {
        name: {"type": "string", **({"description": about} if about else {})} for name, about in names.items()
    }
    return {"type": "object", "properties": properties}
