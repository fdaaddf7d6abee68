"""How a request ends. The runtime makes outcomes, a dialect writes them down."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Generic, TypeAlias

import msgspec
from typing_extensions import TypeVar

from antiphon.model.artifact import Keepable
from antiphon.model.capabilities import ServerCapabilities
from antiphon.model.catalog import Definition, Kind, PromptMessage
from antiphon.model.content import Block, Contents, Text
from antiphon.model.identity import Implementation
from antiphon.model.question import Question
from antiphon.model.request import RequestId

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
]


Data = TypeVar("Data", default=Any)
_new = object.__new__


class Result(Generic[Data]):
    """What a tool gave: blocks to read, and `data` for programs.

    A tool may return one to say more than its value can; a client's `call` returns one. A function
    annotated `-> Result[Report]` gives data of that type, which is checked. `next_steps` are for the
    reader, and stand under the text and in the data; `artifact` is kept when the result goes out.
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
        artifact: Keepable | None = None,
        is_error: bool = False,
        boxed: bool = False,
    ) -> None:
        if isinstance(content, str):
            self.content: tuple[Block, ...] = (Text(content),)
        elif isinstance(content, msgspec.Struct):
            self.content = (content,)
        else:
            self.content = tuple(Text(block) if isinstance(block, str) else block for block in content)
        self.structured = data is not msgspec.UNSET
        self.data: Any = data if self.structured else None
        self.meta = meta
        self.artifact = artifact
        self.next_steps = tuple(next_steps)
        if self.next_steps:
            self.content = _followed_by(self.content, _steps(self.next_steps))
        self.is_error = is_error
        self.boxed = boxed
        """Whether `data` is of a type that is not always an object, which some dialects must wrap."""
        self.emitted = 0
        """How many of its first blocks were emitted, and not returned in the end."""

    @classmethod
    def of_text(cls, text: str) -> Result:
        """A result that is one text, and nothing else."""
        result: Result = _new(cls)
        result.content = (Text(text),)
        result.data = result.meta = result.artifact = None
        result.structured = result.is_error = result.boxed = False
        result.emitted = 0
        result.next_steps = ()
        return result

    @property
    def text(self) -> str:
        """All its text blocks, a line break between them."""
        return "\n".join(block.text for block in self.content if isinstance(block, Text))

    def __repr__(self) -> str:
        error = ", is_error=True" if self.is_error else ""
        data = f", data={self.data!r}" if self.structured else ""
        return f"Result({list(self.content)!r}{data}{error})"


def _steps(steps: Sequence[str]) -> str:
    if len(steps) == 1:
        return f"**Next step:** {steps[0]}"
    return "**Next steps:**\n\n" + "\n".join(f"- {step}" for step in steps)


def _followed_by(content: tuple[Block, ...], text: str) -> tuple[Block, ...]:
    """The content with a paragraph after its last text."""
    if content and isinstance(content[-1], Text):
        return (*content[:-1], msgspec.structs.replace(content[-1], text=f"{content[-1].text}\n\n{text}"))
    return (*content, Text(text))


class InputRequired:
    """The call cannot go on without answers: the caller retries it with them, and with the state.

    A function of the explicit style returns one: `questions` are its questions by key, `state` is what it
    wants back as `ctx.state` in the next round. With neither of them, or with state alone, the caller
    retries at once.
    """

    __slots__ = ("questions", "sealed", "state")

    def __init__(
        self, questions: Mapping[str, Question] | None = None, *, state: Any = None, sealed: str | None = None
    ) -> None:
        self.questions = dict(questions or {})
        self.state = state
        self.sealed = sealed
        """The journal, for the caller to carry; a client brings it back as it is."""

    def __repr__(self) -> str:
        return f"InputRequired({self.questions!r}, state={self.state!r})"


class ReadResult(msgspec.Struct, frozen=True):
    """What a resource holds, and how long a caller may keep it."""

    contents: tuple[Contents, ...]
    ttl_ms: int = 0
    shared: bool = False


class PromptResult(msgspec.Struct, frozen=True):
    """A prompt, filled in."""

    messages: tuple[PromptMessage, ...]
    description: str | None = None


class Page(msgspec.Struct, frozen=True):
    """Some of the things a server offers."""

    kind: Kind
    items: Sequence[Definition]
    next_cursor: str | None = None
    ttl_ms: int = 0
    shared: bool = True


class Completion(msgspec.Struct, frozen=True):
    """Suggested values; `total` counts those that did not fit as well."""

    values: tuple[str, ...]
    total: int | None = None
    has_more: bool | None = None


class Discovery(msgspec.Struct, frozen=True):
    """What a server is and can do."""

    server: Implementation
    capabilities: ServerCapabilities
    instructions: str | None = None
    ttl_ms: int = 0


class Listened(msgspec.Struct, frozen=True):
    """The server ended a subscription of its own accord."""

    subscription: RequestId


class Done(msgspec.Struct, frozen=True):
    """It is done, and there is nothing to say about it."""


DONE = Done()

Outcome: TypeAlias = (
    Result | InputRequired | ReadResult | PromptResult | Page | Completion | Discovery | Listened | Done
)
