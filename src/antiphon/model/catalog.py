"""What a server offers, as its lists show it: tools, resources, templates and prompts."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from antiphon.model.base import Value
from antiphon.model.content import Annotations, Block, Icon, Role

__all__ = [
    "Definition",
    "PromptArgument",
    "PromptDefinition",
    "PromptMessage",
    "ResourceDefinition",
    "TemplateDefinition",
    "ToolAnnotations",
    "ToolDefinition",
]


class ToolAnnotations(Value, frozen=True):
    """Hints on how a tool behaves; a client trusts them only from a server that it trusts."""

    title: str | None = None
    read_only_hint: bool | None = None
    destructive_hint: bool | None = None
    idempotent_hint: bool | None = None
    open_world_hint: bool | None = None


class ToolDefinition(Value, frozen=True):
    """A tool as `tools/list` shows it."""

    name: str
    input_schema: dict[str, Any]
    title: str | None = None
    description: str | None = None
    output_schema: dict[str, Any] | None = None
    annotations: ToolAnnotations | None = None
    icons: tuple[Icon, ...] | None = None
    execution: dict[str, Any] | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")

    @property
    def task_support(self) -> str:
        """Whether calls of the tool may become tasks: "forbidden", "optional" or "required"."""
        return str((self.execution or {}).get("taskSupport", "forbidden"))

    @staticmethod
    def execution_for(task_support: str) -> dict[str, Any] | None:
        """Return the `execution` of a tool with this task support; a tool without tasks has none."""
        return None if task_support == "forbidden" else {"taskSupport": task_support}


class ResourceDefinition(Value, frozen=True):
    """A resource as `resources/list` shows it."""

    uri: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None
    icons: tuple[Icon, ...] | None = None
    annotations: Annotations | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


class TemplateDefinition(Value, frozen=True):
    """A family of resources as `resources/templates/list` shows it."""

    uri_template: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    icons: tuple[Icon, ...] | None = None
    annotations: Annotations | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


class PromptArgument(Value, frozen=True):
    """One thing that a prompt wants to know."""

    name: str
    title: str | None = None
    description: str | None = None
    required: bool | None = None


class PromptDefinition(Value, frozen=True):
    """A prompt as `prompts/list` shows it."""

    name: str
    title: str | None = None
    description: str | None = None
    arguments: tuple[PromptArgument, ...] | None = None
    icons: tuple[Icon, ...] | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


class PromptMessage(msgspec.Struct, frozen=True):
    """One message of a prompt."""

    role: Role
    content: Block


Definition: TypeAlias = ToolDefinition | ResourceDefinition | TemplateDefinition | PromptDefinition
Kind: TypeAlias = Literal["tools", "resources", "templates", "prompts"]
