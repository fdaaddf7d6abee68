"""The options of `Server.tool`, `resource`, `ui` and `prompt`, and their check at registration.

Owns the names and meanings of the options. It must not know how an option takes effect.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypedDict, get_args

from antiphon.errors import DefinitionError
from antiphon.model.catalog import ToolAnnotations
from antiphon.model.content import Annotations, Icon
from antiphon.model.ui import Permission, Visibility
from antiphon.runtime.authoring.offer import Visible
from antiphon.runtime.scopes import ScopesOption

__all__ = [
    "CspOptions",
    "PromptOptions",
    "ResourceOptions",
    "TaskPolicy",
    "ToolOptions",
    "UiOptions",
    "check_options",
    "check_seconds",
]

TaskPolicy: TypeAlias = Literal["forbidden", "optional", "required"]
"""Whether a tool runs as a task: never, if the caller accepts tasks, or always."""


class _Common(TypedDict, total=False):
    name: str | None
    """The name that callers use. The default is the function's name."""
    title: str | None
    """The name that clients display to users."""
    description: str | None
    """The description for models and users. The default is the function's docstring."""
    icons: Sequence[Icon] | None
    """The icons that clients may display."""
    meta: Mapping[str, Any] | None
    """The `_meta` of the definition in lists."""
    scopes: ScopesOption | None
    """The scopes that callers need, or a function that returns them for the arguments of a request, which it
    gets as they came, before they are validated. Callers without them get a 403 that names them."""
    tags: Collection[str]
    """Names for groups, such as `{"admin"}`, for `Server.enable` and `disable`. They are not listed."""
    enabled: bool
    """Whether it is offered from the start (the default). With `False`, nobody finds or uses it before
    `Server.enable`."""
    visible: Visible | None
    """A function that takes the `Principal` of a caller, or `None` if nobody knows who calls, and returns
    whether it exists for this caller. To others, it is in no list, and its name is unknown. The function runs
    for each list and each request: it must be fast. If it fails, nobody sees the item."""
    replay: bool
    """Whether the function runs again from its beginning after a question (the default). With `False`, it
    waits where it asks, in the memory of its process: if the process is lost, the call fails."""


class ToolOptions(_Common, total=False):
    """The options of `Server.tool`."""

    annotations: ToolAnnotations | None
    """Hints for clients: whether the tool only reads, whether it destroys data, and so on."""
    input_schema: Mapping[str, Any] | None
    """A JSON schema to list in place of the generated one. The function's signature still validates
    arguments."""
    output_schema: Mapping[str, Any] | None
    """A JSON schema to list in place of the generated one. The return annotation still validates
    values. Without an annotation, values of any type become structured content."""
    structured: bool | None
    """Set it to `False` to return typed values as text only, without structured content."""
    artifact_over: int | None
    """The size in bytes above which a result is stored as an artifact; callers get a preview and the id."""
    task: TaskPolicy
    """Whether calls may run as tasks: `"forbidden"` (the default), `"optional"` or `"required"`."""
    task_ttl: float | None
    """How long the store keeps a task after its end, in seconds; 3600 by default, `None` for ever. A task
    that has not ended is kept, unless its caller asked for a lifetime."""
    poll_interval: float
    """How often callers should poll a task, in seconds; 1 by default."""
    answer_within: float | None
    """How long to wait for an answer before the call becomes a task, in seconds. The function can also
    convert the call itself, with `ctx.promise()`. Without this option, every call from a caller that accepts
    tasks is a task from the start."""
    resume: bool
    """Whether another worker resumes a task whose worker died (the default), or the task fails."""
    max_attempts: int
    """How often a task is tried if its worker is lost each time before the task makes progress; 5 by default.
    A recorded step, a segment and an answer are progress."""
    max_running: int | None
    """How many tasks of this tool one process runs at once; further ones wait for a worker. By default, only
    `Limits.max_running_tasks` applies."""
    max_queued: int | None
    """How many tasks of this tool may wait for a worker; further ones are refused with 503 and `Retry-After`.
    By default, only `Limits.max_queued_tasks` applies."""
    streams: bool | None
    """Set it to `True` for a function that calls `ctx.emit`. Generators stream without it."""
    timeout: float | None
    """How long a call may take, in seconds. The default is `Limits.call_timeout`."""
    ui: str | None
    """The address of the MCP App that shows the results, registered with `Server.ui`."""
    visibility: Sequence[Visibility] | None
    """Who may call the tool: `["model"]`, `["app"]`, or both, which is the default. Hosts keep a tool without
    `"model"` from the model, and clients that show no Apps do not find it in the list. It is no protection:
    use `scopes`."""


class PromptOptions(_Common, total=False):
    """The options of `Server.prompt`."""


class ResourceOptions(_Common, total=False):
    """The options of `Server.resource`."""

    mime_type: str | None
    """The media type of the content. The default depends on the type that the function returns."""
    size: int | None
    """The size of the content in bytes, if you know it."""
    annotations: Annotations | None
    """Hints for clients: the audience and the priority of the resource."""
    cache_ttl: float
    """How long callers may cache the content, in seconds; 0 by default."""
    shared: bool
    """Whether every caller gets the same content, so that a shared cache may keep it."""


class CspOptions(TypedDict, total=False):
    """The `csp` of `Server.ui`: the origins that an App may reach, such as `https://api.example.com`.

    A host blocks all others.
    """

    connect_domains: Sequence[str]
    """The origins that scripts may send requests to: `https`, or `wss` for WebSockets."""
    resource_domains: Sequence[str]
    """The origins of images, scripts, styles, fonts and media, such as `https://*.example.com`."""
    frame_domains: Sequence[str]
    """The origins of frames inside the App."""
    base_uri_domains: Sequence[str]
    """The origins that the `<base>` of the document may name."""


class UiOptions(_Common, total=False):
    """The options of `Server.ui`."""

    csp: CspOptions | None
    """The origins that the App may reach. By default none: the HTML has to contain its scripts and styles."""
    permissions: Sequence[Permission]
    """The features that the App asks for: `"camera"`, `"microphone"`, `"geolocation"`, `"clipboard_write"`.
    A host may refuse them."""
    domain: str | None
    """The origin from which the host serves the App, in the format of the host's documentation."""
    prefers_border: bool | None
    """Whether the host draws a border and a background around the App. By default, the host decides."""
    cache_ttl: float
    """How long callers may cache the HTML, in seconds; 0 by default."""
    shared: bool
    """Whether every caller gets the same HTML, so that a shared cache may keep it."""


_TIMES: Mapping[str, Mapping[str, bool]] = {
    "task_ttl": {"none": True},
    "poll_interval": {},
    "answer_within": {"none": True, "zero": True, "infinite": True},
    "timeout": {"none": True, "infinite": True},
    "cache_ttl": {"zero": True},
}
"""The options that are times, and whether each may be `None`, zero or infinite."""


def check_options(function: Any, options: Mapping[str, Any], known: type[Any]) -> None:
    """Raise `DefinitionError` for an unknown option, or an invalid value for it."""
    label = getattr(function, "__name__", repr(function))
    names = [*known.__required_keys__, *known.__optional_keys__]
    for name in options:
        if name not in names:
            close = difflib.get_close_matches(name, names, n=1)
            hint = f"Did you mean {close[0]!r}?" if close else f"The options are: {', '.join(sorted(names))}."
            raise DefinitionError(f"{label}: unknown option {name!r}. {hint}")
    if "task" in options and options["task"] not in get_args(TaskPolicy):
        raise DefinitionError(
            f"{label}: task={options['task']!r} is invalid. Use one of "
            f"{', '.join(map(repr, get_args(TaskPolicy)))}."
        )
    for name, allowed in _TIMES.items():
        if name in options:
            check_seconds(f"{label}: {name}", options[name], **allowed)
    for name, default in (("max_attempts", 1), ("max_running", None), ("max_queued", None)):
        count = options.get(name, default)
        if count is not default and (not isinstance(count, int) or isinstance(count, bool) or count < 1):
            raise DefinitionError(f"{label}: {name}={count!r} is invalid. Use a number of at least 1.")


def check_seconds(
    name: str, value: Any, *, none: bool = False, zero: bool = False, infinite: bool = False
) -> None:
    """Raise `DefinitionError` unless a value is a time in seconds, or one of the other values allowed."""
    if value is None and none:
        return
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if number and (value > 0 or (zero and value == 0)) and (infinite or math.isfinite(value)):
        return
    bound = "of at least 0" if zero else "greater than 0"
    otherwise = ", or None" if none else ""
    raise DefinitionError(f"{name}={value!r} is not a time. Pass a number of seconds {bound}{otherwise}.")
