"""Outcomes of requests: results, questions, lists, prompts and resources.

The runtime creates outcomes; a dialect writes them for its protocol version.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Generic, TypeAlias

import msgspec
from typing_extensions import TypeVar

from antiphon.model.artifact import ArtifactLike
from antiphon.model.capabilities import ServerCapabilities
from antiphon.model.catalog import Definition, Kind, PromptMessage
from antiphon.model.content import Block, Contents, Text
from antiphon.model.identity import Implementation
from antiphon.model.question import Question
from antiphon.model.request import RequestId
from antiphon.model.waiting import Wait

__all__ = [
    "DONE",
    "Completion",
    "Discovery",
    "Done",
    "InputRequired",
    "Listened",
    "Outcome",
    "Page",
    "PromptResult",
    "ReadResult",
    "Result",
    "text_result",
]


Data = TypeVar("Data", default=Any)
_new = object.__new__


class Result(Generic[Data]):
    """The result of a tool call: content blocks for people and models, and `data` for programs.

    A tool returns a plain value, or a `Result` if it needs more control. `Client.call` returns a `Result`.
    A tool annotated `-> Result[Report]` publishes the schema of `Report`, and its `data` is validated
    against that schema.
    """

    __slots__ = (
        "artifact",
        "boxed",
        "content",
        "data",
        "emitted",
        "is_error",
        "meta",
        "next_steps",
        "structured",
    )

    def __init__(
        self,
        content: str | Block | Iterable[str | Block] = (),
        *,
        data: Any = msgspec.UNSET,
        meta: Mapping[str, Any] | None = None,
        next_steps: Sequence[str] = (),
        artifact: ArtifactLike | None = None,
        is_error: bool = False,
    ) -> None:
        self.content: tuple[Block, ...]
        """The content blocks. Strings that you pass become `Text` blocks."""
        if isinstance(content, str):
            self.content = (Text(content),)
        elif isinstance(content, msgspec.Struct):
            self.content = (content,)
        else:
            self.content = tuple(Text(block) if isinstance(block, str) else block for block in content)
        # Whether there is structured data, which may be `None`.
        self.structured = data is not msgspec.UNSET
        self.data: Any = data if self.structured else None
        """The structured data, or `None` without structured data."""
        self.meta = meta
        """The `_meta` of the result."""
        self.artifact = artifact
        """An artifact that the server stores for the caller before it sends the result."""
        self.next_steps = tuple(next_steps)
        """Suggestions for the caller. They are appended to the text, and added to `data`."""
        if self.next_steps:
            self.content = _append_paragraph(self.content, _format_steps(self.next_steps))
        self.is_error = is_error
        """Whether the tool failed."""
        # Whether the type of `data` is not always an object, so that some dialects must wrap the data.
        self.boxed = False
        # How many blocks at the start of `content` the tool emitted before it returned.
        self.emitted = 0

    @property
    def text(self) -> str:
        """The text of all text blocks, joined by line breaks."""
        return "\n".join(block.text for block in self.content if isinstance(block, Text))

    def __repr__(self) -> str:
        error = ", is_error=True" if self.is_error else ""
        data = f", data={self.data!r}" if self.structured else ""
        return f"Result({list(self.content)!r}{data}{error})"


def text_result(text: str) -> Result:
    """Create the result of a tool that returned a string. Skips the constructor, for speed."""
    result: Result = _new(Result)
    result.content = (Text(text),)
    result.data = result.meta = result.artifact = None
    result.structured = result.is_error = result.boxed = False
    result.emitted = 0
    result.next_steps = ()
    return result


def _format_steps(steps: Sequence[str]) -> str:
    if len(steps) == 1:
        return f"**Next step:** {steps[0]}"
    return "**Next steps:**\n\n" + "\n".join(f"- {step}" for step in steps)


def _append_paragraph(content: tuple[Block, ...], text: str) -> tuple[Block, ...]:
    """Return the content with a paragraph appended to its last text block."""
    if content and isinstance(content[-1], Text):
        return (*content[:-1], msgspec.structs.replace(content[-1], text=f"{content[-1].text}\n\n{text}"))
    return (*content, Text(text))


class InputRequired:
    """The outcome of a call that needs answers before it can continue.

    `Client.call_once` returns one. To continue the call, make it again with the `InputRequired` as `resume`
    and with the answers.

    A tool returns one if it manages its own rounds in place of `await ctx.elicit(…)`. In the next round it
    finds the answers in `ctx.input_responses` and `state` in `ctx.state`. Without questions, the caller
    calls again at once.
    """

    __slots__ = ("questions", "sealed", "state", "streamed", "waits")

    def __init__(
        self, questions: Mapping[str, Question] | None = None, *, state: Any = None, sealed: str | None = None
    ) -> None:
        self.questions = dict(questions or {})
        """The questions, by key."""
        self.state = state
        """A value of the tool's own, for its next round. A caller does not see it."""
        self.sealed = sealed
        """The encrypted request state, which the client sends back unchanged. The server sets it."""
        # What a task waits for besides the answers, by key. No caller sees it.
        self.waits: Mapping[str, Wait] = {}
        # Whether it ends a stream of segments, which some dialects say.
        self.streamed = False

    def __repr__(self) -> str:
        return f"InputRequired({self.questions!r}, state={self.state!r})"


class ReadResult(msgspec.Struct, frozen=True):
    """The contents of a resource, and how long a caller may cache them."""

    contents: tuple[Contents, ...]
    ttl_ms: int = 0
    """How long a caller may cache the contents, in milliseconds."""
    shared: bool = False
    """Whether a cache may serve the contents to other callers."""


class PromptResult(msgspec.Struct, frozen=True):
    """The messages of a prompt, with its arguments filled in."""

    messages: tuple[PromptMessage, ...]
    description: str | None = None


class Page(msgspec.Struct, frozen=True):
    """One page of a list: tools, resources, resource templates or prompts."""

    kind: Kind
    items: Sequence[Definition]
    next_cursor: str | None = None
    ttl_ms: int = 0
    shared: bool = True


class Completion(msgspec.Struct, frozen=True):
    """Suggested values for an argument."""

    values: tuple[str, ...]
    """The suggestions; at most 100 are sent."""
    total: int | None = None
    """The number of all suggestions, sent or not."""
    has_more: bool | None = None
    """Whether there are more suggestions than were sent."""


class Discovery(msgspec.Struct, frozen=True):
    """The identity, the capabilities and the instructions of a server."""

    server: Implementation
    capabilities: ServerCapabilities
    instructions: str | None = None
    ttl_ms: int = 0


class Listened(msgspec.Struct, frozen=True):
    """The end of a subscription that the server closed."""

    subscription: RequestId


class Done(msgspec.Struct, frozen=True):
    """An empty result: the request succeeded."""


DONE = Done()

Outcome: TypeAlias = (
    Result | InputRequired | ReadResult | PromptResult | Page | Completion | Discovery | Listened | Done
)
