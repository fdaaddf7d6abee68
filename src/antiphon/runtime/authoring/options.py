"""What an author can say about a tool, a resource or a prompt, besides its function."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypedDict, get_args

from antiphon.errors import DefinitionError
from antiphon.model.catalog import ToolAnnotations
from antiphon.model.content import Annotations, Icon

__all__ = ["PromptOptions", "ResourceOptions", "TaskPolicy", "ToolOptions", "check_options"]

TaskPolicy: TypeAlias = Literal["forbidden", "optional", "required"]


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
    artifact_over: int | None
    """Keep results of more than so many bytes as artifacts, and answer with how they begin."""
    task: TaskPolicy
    """Whether a call may end with a promise: `forbidden` unless given."""
    task_ttl: float | None
    """How long a task is kept from its creation on, in seconds; an hour unless given, `None` for ever."""
    poll_interval: float
    """How often a caller should look at a task, in seconds."""
    answer_within: float | None
    """Begin every call as an answer, and make a promise of one that is not done in so many seconds, or
    when the function says so with `ctx.promise()`. Without it, a caller that takes promises gets one."""
    resume: bool
    """Whether a task whose worker was lost is run again from its journal; else it ends as failed."""
    streams: bool | None
    """Whether it emits: `True` for a function that calls `ctx.emit`; a generator does by itself."""
    timeout: float | None
    """How long a call may take, in seconds; `Limits.call_timeout` unless given."""


class PromptOptions(_Common, total=False):
    """The options of `Server.prompt`."""


class ResourceOptions(_Common, total=False):
    """The options of `Server.resource`."""

    mime_type: str | None
    size: int | None
    annotations: Annotations | None
    cache_ttl: float
    """How long callers may keep what they read, in seconds."""
    shared: bool
    """Whether what they read is the same for all of them."""


def check_options(function: Any, options: Mapping[str, Any], known: type[Any]) -> None:
    """Raise `DefinitionError` for an option that there is not, or that has none of its values."""
    label = getattr(function, "__name__", repr(function))
    names = [*known.__required_keys__, *known.__optional_keys__]
    for name in options:
        if name not in names:
            close = difflib.get_close_matches(name, names, n=1)
            hint = f"Did you mean {close[0]!r}?" if close else f"There are: {', '.join(sorted(names))}."
            raise DefinitionError(f"{label}: there is no option {name!r}. {hint}")
    if "task" in options and options["task"] not in get_args(TaskPolicy):
        raise DefinitionError(
            f"{label}: task={options['task']!r} is none of {', '.join(map(repr, get_args(TaskPolicy)))}."
        )
