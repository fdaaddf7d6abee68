"""The definitions in a server's lists: tools, resources, resource templates and prompts."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from antiphon.model.base import Value
from antiphon.model.content import Annotations, Block, Icon, Role
from antiphon.model.ui import UiSettings, Visibility, read_ui, tool_ui, tool_visibility

__all__ = [
    "SCOPES_META_KEY",
    "Definition",
    "PromptArgument",
    "PromptDefinition",
    "PromptMessage",
    "ResourceDefinition",
    "TemplateDefinition",
    "ToolAnnotations",
    "ToolDefinition",
]


SCOPES_META_KEY = "antiphon/scopes"
"""The key in the metadata of a definition that has the scopes which callers need, as a list."""


class ToolAnnotations(Value, frozen=True):
    """Hints about how a tool behaves. A client relies on them only if it trusts the server."""

    title: str | None = None
    """The name to show to people."""
    read_only_hint: bool | None = None
    """Whether the tool leaves its environment unchanged."""
    destructive_hint: bool | None = None
    """Whether the tool may delete or overwrite something."""
    idempotent_hint: bool | None = None
    """Whether a second call with the same arguments changes nothing more."""
    open_world_hint: bool | None = None
    """Whether the tool reaches outside systems, such as the web."""


class ToolDefinition(Value, frozen=True):
    """A tool in `tools/list`."""

    name: str
    input_schema: dict[str, Any]
    """The JSON schema of the arguments."""
    title: str | None = None
    description: str | None = None
    output_schema: dict[str, Any] | None = None
    """The JSON schema of the structured data, or `None` if the tool declares none."""
    annotations: ToolAnnotations | None = None
    icons: tuple[Icon, ...] | None = None
    execution: dict[str, Any] | None = None
    """Whether calls may become tasks, as it is on the wire; see `task_support`."""
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")

    @property
    def task_support(self) -> str:
        """Whether calls of the tool may become tasks: "forbidden", "optional" or "required"."""
        return str((self.execution or {}).get("taskSupport", "forbidden"))

    @property
    def ui(self) -> str | None:
        """The URI of the MCP App that shows the results of the tool, or `None` if it has none."""
        return tool_ui(self.meta)

    @property
    def visibility(self) -> tuple[Visibility, ...]:
        """Who may use the tool: "model", "app" or both. A host leaves a tool without "model" to its Apps."""
        return tool_visibility(self.meta)

    @staticmethod
    def execution_for(task_support: str) -> dict[str, Any] | None:
        """Return the `execution` of a tool with this task support; a tool without tasks has none."""
        return None if task_support == "forbidden" else {"taskSupport": task_support}


class ResourceDefinition(Value, frozen=True):
    """A resource in `resources/list`."""

    uri: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None
    icons: tuple[Icon, ...] | None = None
    annotations: Annotations | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")

    @property
    def ui(self) -> UiSettings | None:
        """How a host shows the MCP App, if the contents do not say it; `None` if it is no App."""
        return read_ui(self.meta)


class TemplateDefinition(Value, frozen=True):
    """A resource template in `resources/templates/list`."""

    uri_template: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    icons: tuple[Icon, ...] | None = None
    annotations: Annotations | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")

    @property
    def ui(self) -> UiSettings | None:
        """How a host shows the MCP App, if the contents do not say it; `None` if it is no App."""
        return read_ui(self.meta)


class PromptArgument(Value, frozen=True):
    """One argument of a prompt."""

    name: str
    title: str | None = None
    description: str | None = None
    required: bool | None = None


class PromptDefinition(Value, frozen=True):
    """A prompt in `prompts/list`."""

    name: str
    title: str | None = None
    description: str | None = None
    arguments: tuple[PromptArgument, ...] | None = None
    icons: tuple[Icon, ...] | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


class PromptMessage(msgspec.Struct, frozen=True):
    """One message of a prompt, by the user or the assistant."""

    role: Role
    content: Block


Definition: TypeAlias = ToolDefinition | ResourceDefinition | TemplateDefinition | PromptDefinition
Kind: TypeAlias = Literal["tools", "resources", "templates", "prompts"]
