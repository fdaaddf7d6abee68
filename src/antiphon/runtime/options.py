"""What an author can say about a tool, a resource or a prompt, besides its function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from antiphon.model.catalog import ToolAnnotations
from antiphon.model.content import Annotations, Icon

__all__ = ["PromptOptions", "ResourceOptions", "ToolOptions"]


class _Common(TypedDict, total=False):
    name: str | None
    """What it is called on the wire; the function's name unless given."""
    title: str | None
    """What it is called in front of people."""
    description: str | None
    """What it is for; the function's docstring unless given."""
    icons: Sequence[Icon] | None
    meta: Mapping[str, Any] | None
    """What goes into its `_meta`."""


class ToolOptions(_Common, total=False):
    """The options of `Server.tool`."""

    annotations: ToolAnnotations | None
    input_schema: Mapping[str, Any] | None
    """Shown to callers instead of the schema made from the signature, which still reads the arguments."""
    structured: bool | None
    """`False` keeps a typed return value out of the structured content."""
    timeout: float | None
    """How long a call may take, in seconds; `Limits.call_time` unless given."""


class PromptOptions(_Common, total=False):
    """The options of `Server.prompt`."""


class ResourceOptions(_Common, total=False):
    """The options of `Server.resource`."""

    mime_type: str | None
    size: int | None
    annotations: Annotations | None
    ttl: float
    """How long callers may keep what they read, in seconds."""
    shared: bool
    """Whether what they read is the same for all of them."""
