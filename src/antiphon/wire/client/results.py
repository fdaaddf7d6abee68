"""Reads results, errors and notifications for a client.

Reading is lenient where the specification allows it: content of an unknown type stays a dict, and a malformed
entry of a list is left out. The differences between versions are in the dialects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

import msgspec

from antiphon.errors import (
    BadAnswer,
    HeaderMismatch,
    InternalError,
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    MissingCapability,
    ParseError,
    RequestError,
    ResourceNotFound,
    UnsupportedVersion,
)
from antiphon.model.base import Value
from antiphon.model.capabilities import PROTECTED, ServerCapabilities
from antiphon.model.catalog import (
    Definition,
    Kind,
    PromptDefinition,
    PromptMessage,
    ResourceDefinition,
    TemplateDefinition,
    ToolDefinition,
)
from antiphon.model.content import (
    Annotations,
    Audio,
    BlobContents,
    Block,
    Contents,
    EmbeddedResource,
    Image,
    ResourceLink,
    Text,
    TextContents,
)
from antiphon.model.identity import LOG_LEVELS, Implementation
from antiphon.model.notification import (
    Acknowledged,
    ListChanged,
    Log,
    Notification,
    Progress,
    ResourceUpdated,
)
from antiphon.model.outcome import DONE, Completion, InputRequired, Page, PromptResult, ReadResult, Result
from antiphon.model.request import Cancel, SubscriptionFilter
from antiphon.model.ui import UI_EXTENSION
from antiphon.printable import printable, printable_text
from antiphon.wire.jsonrpc import Frame, excerpt
from antiphon.wire.questions import ELICITATION, ROOTS, SAMPLING

if TYPE_CHECKING:
    from antiphon.wire.client.dialect import ClientDialect

__all__ = ["Listing", "Welcome", "discovery", "done", "error", "initialization", "listing", "notification"]
__all__ += [
    "blocks",
    "completion",
    "input_required",
    "params_of",
    "prompt",
    "read_notification",
    "refuse_message",
    "refuse_question",
]
__all__ += ["resource", "result", "server_capabilities", "supported_versions", "version_mismatch"]

MAX_PAGE_ITEMS = 100_000
"""How many entries of one page a client reads."""

T = TypeVar("T")
Fields: TypeAlias = Mapping[str, Any]


class _Embedded(Value, frozen=True, tag_field="type", tag="resource"):
    """An embedded resource with raw contents: no tag distinguishes text from a blob."""

    resource: dict[str, Any]
    annotations: Annotations | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


_BLOCKS: Mapping[str, type[Any]] = {
    "text": Text,
    "image": Image,
    "audio": Audio,
    "resource": _Embedded,
    "resource_link": ResourceLink,
}

_ASKING_BLOCKS = ("elicitation", "sampling")
"""The types of blocks with which some servers ask, in place of content."""

_ERRORS: Mapping[int, type[RequestError]] = {
    -32700: ParseError,
    -32600: InvalidRequest,
    -32601: MethodNotFound,
    -32602: InvalidParams,
    -32603: InternalError,
    -32002: ResourceNotFound,
    -32020: HeaderMismatch,
    -32021: MissingCapability,
    -32022: UnsupportedVersion,
}

_ENTRIES: Mapping[Kind, tuple[str, type[Definition]]] = {
    "tools": ("tools", ToolDefinition),
    "resources": ("resources", ResourceDefinition),
    "templates": ("resourceTemplates", TemplateDefinition),
    "prompts": ("prompts", PromptDefinition),
}


class Welcome(msgspec.Struct, frozen=True):
    """The response of a server to a client's greeting: its versions, capabilities and name."""

    versions: tuple[str, ...]
    capabilities: Mapping[str, Any] = {}
    server: Implementation | None = None
    instructions: str | None = None


class Listing(msgspec.Struct, frozen=True):
    """One page, and the entries that could not be read: each with its name and the reason."""

    page: Page
    rejected: tuple[tuple[str, str], ...] = ()


def error(value: Any) -> RequestError:
    """Return the error in a response, as the class with its code; raises `BadAnswer`."""
    if not isinstance(value, dict) or type(value.get("code")) is not int:
        raise BadAnswer(f"The server sent an error without a code: {excerpt(value)}.")
    code, message = value["code"], value.get("message")
    kind = _ERRORS.get(code, RequestError)
    # Programs print errors and log them, often without a second thought.
    text = printable_text(message) if isinstance(message, str) else f"Error {code}"
    return kind(text, data=value.get("data"), code=code)


def result(fields: Fields) -> Result:
    """Return the result of a tool; raises `BadAnswer` if the fields ask something."""
    refuse_question(fields)
    meta = fields.get("_meta")
    return Result(
        blocks(fields.get("content")),
        data=fields.get("structuredContent", msgspec.UNSET),
        meta=meta if isinstance(meta, dict) else None,
        is_error=fields.get("isError") is True,
    )


def refuse_question(fields: Fields) -> None:
    """Raise `BadAnswer` if a complete result asks something: a question is never a success.

    A dialect that reads one of these shapes reads it before.
    """
    if fields.get("AdditionalInfoRequested"):
        raise _unread("with AdditionalInfoRequested", "DRAFT-000-additional-info")
    method = fields.get("method")
    if isinstance(method, str) and method in (ELICITATION, SAMPLING, ROOTS):
        raise BadAnswer(f"The server asks with {method} inside of a result, which no protocol version has.")
    for key in ("inputRequests", "requestState"):
        if fields.get(key):
            raise BadAnswer(
                f"The server sent {key!r} in a result that is not of the resultType 'input_required', "
                "so this client cannot tell whether the server asks something."
            )


def refuse_message(frame: Frame) -> None:
    """Raise `BadAnswer` for a question that came as the response to a request."""
    if frame.method in (ELICITATION, SAMPLING):
        raise _unread(f"with {frame.method} in place of a result", "DRAFT-001-messages")


def _unread(how: str, protocol: str) -> BadAnswer:
    """Return the error for a question in the shape of another protocol."""
    return BadAnswer(
        f"The server asks {how}, which only the protocol {protocol} reads: "
        f"pass protocol={protocol!r}, or --protocol {protocol} on the command line."
    )


def input_required(dialect: ClientDialect, fields: Fields) -> InputRequired:
    """Return the questions of a server, and the state to send back, or neither; raises `BadAnswer`."""
    asked, sealed = dialect.read_questions(fields), fields.get("requestState")
    if not isinstance(sealed, str | None):
        raise BadAnswer("The server wants input, and does not say which.")
    return InputRequired(asked, sealed=sealed)


def resource(fields: Fields) -> ReadResult:
    """Return the contents of a resource."""
    contents = fields.get("contents")
    if not isinstance(contents, list):
        raise BadAnswer("The server sent a resource without contents.")
    return ReadResult(
        tuple(_contents(part) for part in contents),
        ttl_ms=_ttl(fields),
        shared=fields.get("cacheScope") == "public",
    )


def prompt(fields: Fields) -> PromptResult:
    """Return a filled-in prompt."""
    messages = fields.get("messages")
    if not isinstance(messages, list):
        raise BadAnswer("The server sent a prompt without messages.")
    return PromptResult(tuple(_message(message) for message in messages), _text(fields, "description"))


def completion(fields: Fields) -> Completion:
    """Return suggested values."""
    inner = fields.get("completion")
    renamed = {**inner, "has_more": inner.get("hasMore")} if isinstance(inner, dict) else inner
    return _convert(renamed, Completion, "completion")


def listing(kind: Kind) -> Callable[[Fields], Listing]:
    """Return a reader for pages of this kind."""
    key, entry = _ENTRIES[kind]

    def page(fields: Fields) -> Listing:
        entries = fields.get(key)
        if not isinstance(entries, list):
            raise BadAnswer(f"The server sent a page of {kind} without {key!r}.")
        if len(entries) > MAX_PAGE_ITEMS:
            raise BadAnswer(f"The server sent a page of {len(entries)} {kind}: more than {MAX_PAGE_ITEMS}.")
        items: list[Definition] = []
        rejected: list[tuple[str, str]] = []
        for value in entries:
            try:
                items.append(msgspec.convert(value, entry))
            except msgspec.ValidationError as reason:
                name = value.get("name") if isinstance(value, dict) else value
                rejected.append((excerpt(name), printable(str(reason))))
        shared = fields.get("cacheScope") == "public"
        read = Page(kind, items, _text(fields, "nextCursor"), ttl_ms=_ttl(fields), shared=shared)
        return Listing(read, tuple(rejected))

    return page


def discovery(fields: Fields) -> Welcome:
    """Read the response to `server/discover`."""
    versions = _convert(fields.get("supportedVersions"), tuple[str, ...], "supportedVersions")
    meta = fields.get("_meta")
    stated = meta.get("io.modelcontextprotocol/serverInfo") if isinstance(meta, dict) else None
    return _welcome(fields, versions, stated or fields.get("serverInfo"))


def server_capabilities(fields: Fields) -> ServerCapabilities:
    """Return the capabilities that all versions write alike."""
    changing = frozenset(
        kind for kind in ("tools", "resources", "prompts") if _flag(fields, kind, "listChanged")
    )
    return ServerCapabilities(
        tools="tools" in fields,
        resources="resources" in fields,
        prompts="prompts" in fields,
        completions="completions" in fields,
        logging="logging" in fields,
        list_changes=changing,
        resource_subscriptions=_flag(fields, "resources", "subscribe"),
        task_list=isinstance(fields.get("tasks"), dict) and "list" in fields["tasks"],
        protected=isinstance(fields.get("experimental"), dict) and PROTECTED in fields["experimental"],
        apps=isinstance(fields.get("extensions"), dict) and UI_EXTENSION in fields["extensions"],
    )


def _flag(fields: Fields, capability: str, flag: str) -> bool:
    declared = fields.get(capability)
    return isinstance(declared, dict) and declared.get(flag) is True


def supported_versions(error: UnsupportedVersion) -> list[Any]:
    """Return the versions that a server named when it refused another one; none if it named none."""
    supported = error.data.get("supported") if isinstance(error.data, dict) else None
    return supported if isinstance(supported, list) else []


def version_mismatch(offered: Sequence[str], wanted: str) -> UnsupportedVersion:
    """Return the error for a server that speaks other versions than the client wants."""
    return UnsupportedVersion(
        f"The server speaks {excerpt(', '.join(offered)) or 'no version'}, and this client wants {wanted}.",
        data={"supported": list(offered), "requested": wanted},
    )


def initialization(fields: Fields) -> Welcome:
    """Read the response to `initialize`."""
    version = _convert(fields.get("protocolVersion"), str, "protocolVersion")
    return _welcome(fields, (version,), fields.get("serverInfo"))


def done(fields: Fields) -> Any:
    """Read a response without content."""
    return DONE


def notification(frame: Frame) -> Notification | Cancel | None:
    """Return the notification in a frame; `None` if this client does not know it or cannot read it."""
    return read_notification(cast(str, frame.method), params_of(frame))


def read_notification(method: str, params: Fields) -> Notification | Cancel | None:
    """Return the notification of a method; `None` if this client does not know it or cannot read it."""
    reader = _NOTIFICATIONS.get(method)
    if reader is None:
        return None
    try:
        return reader(params)
    except (KeyError, TypeError, msgspec.ValidationError):
        return None


def params_of(frame: Frame) -> Fields:
    """Return the parameters in a frame; empty if they are not an object."""
    return frame.params if isinstance(frame.params, dict) else {}


def _progress(params: Fields) -> Progress:
    renamed = {**params, "token": params["progressToken"]}
    return msgspec.convert(renamed, Progress)


def _log(params: Fields) -> Log | None:
    if not isinstance(params.get("level"), str) or params["level"] not in LOG_LEVELS:
        return None
    return Log(params["level"], params.get("data"), _text(params, "logger"))


_NOTIFICATIONS: Mapping[str, Callable[[Fields], Notification | Cancel | None]] = {
    "notifications/progress": _progress,
    "notifications/message": _log,
    "notifications/tools/list_changed": lambda params: ListChanged("tools"),
    "notifications/resources/list_changed": lambda params: ListChanged("resources"),
    "notifications/prompts/list_changed": lambda params: ListChanged("prompts"),
    "notifications/resources/updated": lambda params: ResourceUpdated(msgspec.convert(params["uri"], str)),
    "notifications/cancelled": lambda params: msgspec.convert(params, Cancel),
    "notifications/subscriptions/acknowledged": lambda params: Acknowledged(
        msgspec.convert(params["notifications"], SubscriptionFilter)
    ),
}


def _welcome(fields: Fields, versions: tuple[str, ...], stated: Any) -> Welcome:
    capabilities = fields.get("capabilities")
    try:
        server = None if stated is None else msgspec.convert(stated, Implementation)
    except msgspec.ValidationError:  # nothing depends on the name of a server
        server = None
    return Welcome(
        versions,
        capabilities if isinstance(capabilities, dict) else {},
        server,
        _text(fields, "instructions"),
    )


def blocks(value: Any) -> tuple[Block, ...]:
    """Return content blocks; raises `BadAnswer`."""
    if value is None:
        return ()
    if not isinstance(value, list):
        raise BadAnswer(f"The server sent content that is not a list: {excerpt(value)}.")
    return tuple(_block(block) for block in value)


def _block(value: Any) -> Block:
    """Return a content block; a block of an unknown type stays a dict, and one that asks is refused."""
    stated = value.get("type") if isinstance(value, dict) else None
    kind = _BLOCKS.get(stated) if isinstance(stated, str) else None
    if kind is not None:
        block = _convert(value, kind, "content")
        if isinstance(block, _Embedded):
            return EmbeddedResource(_contents(block.resource), block.annotations, block.meta)
        return cast(Block, block)
    if not isinstance(value, dict):
        raise BadAnswer(f"The server sent a content block that is not an object: {excerpt(value)}.")
    if stated in _ASKING_BLOCKS:
        raise _unread(f"with content of the type {stated!r}", "DRAFT-001-content")
    return cast(Block, value)


def _contents(value: Any) -> Contents:
    if isinstance(value, dict) and "blob" in value:
        return _convert(value, BlobContents, "contents")
    return _convert(value, TextContents, "contents")


def _message(value: Any) -> PromptMessage:
    if not isinstance(value, dict) or value.get("role") not in ("user", "assistant"):
        raise BadAnswer(f"The server sent a prompt message without a role: {excerpt(value)}.")
    return PromptMessage(value["role"], _block(value.get("content")))


def _convert(value: Any, kind: type[T], where: str) -> T:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as reason:
        raise BadAnswer(f"The server sent {where} that cannot be read: {reason}.") from None


def _ttl(fields: Fields) -> int:
    ttl = fields.get("ttlMs")
    return max(0, int(ttl)) if isinstance(ttl, int | float) and ttl < 2**53 else 0


def _text(fields: Fields, key: str) -> str | None:
    value = fields.get(key)
    return value if isinstance(value, str) else None
