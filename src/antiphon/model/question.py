"""What a tool can ask of its caller in the middle of a call, and what comes back.

Asking is the same on every protocol version; how a question travels is the dialects' and the
carriers' business.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from antiphon.errors import InvalidParams
from antiphon.model.base import Value
from antiphon.model.content import Role

__all__ = [
    "Answer",
    "Elicit",
    "ElicitResult",
    "ListRoots",
    "OpenUrl",
    "Question",
    "Root",
    "Sample",
    "SampleResult",
    "question_key",
    "read_answer",
]


class Elicit(msgspec.Struct, frozen=True):
    """Ask a person to fill in a form; `schema` is a flat JSON schema."""

    message: str
    schema: Mapping[str, Any]
    mode: Literal["form"] | None = "form"
    """`None` leaves the mode out, which means the same; there are clients older than modes."""


class OpenUrl(msgspec.Struct, frozen=True):
    """Ask a person to go to an address; what happens there does not pass through the client."""

    message: str
    url: str


class Sample(msgspec.Struct, frozen=True):
    """Ask the client's model; `params` are those of `sampling/createMessage`."""

    params: Mapping[str, Any]


class ListRoots(msgspec.Struct, frozen=True):
    """Ask which folders the client works in."""


Question: TypeAlias = Elicit | OpenUrl | Sample | ListRoots


class ElicitResult(msgspec.Struct, frozen=True):
    """What a person did with a form or an address."""

    action: Literal["accept", "decline", "cancel"]
    content: dict[str, Any] | None = None


class SampleResult(Value, frozen=True):
    """What the client's model said."""

    role: Role
    content: Any
    model: str
    stop_reason: str | None = None

    @property
    def text(self) -> str:
        """All the text in it."""
        blocks = self.content if isinstance(self.content, list) else [self.content]
        return "\n".join(
            block["text"] for block in blocks if isinstance(block, dict) and block.get("type") == "text"
        )


class Root(msgspec.Struct, frozen=True, omit_defaults=True):
    """A folder that the client works in."""

    uri: str
    name: str | None = None


class RootsResult(msgspec.Struct, frozen=True):
    """The folders that the client works in."""

    roots: tuple[Root, ...]


Answer: TypeAlias = ElicitResult | SampleResult | RootsResult

_ANSWERS: Mapping[type[Any], type[Any]] = {
    Elicit: ElicitResult,
    OpenUrl: ElicitResult,
    Sample: SampleResult,
    ListRoots: RootsResult,
}


def read_answer(ask: Question, key: str, response: Any) -> Any:
    """The answer in a response; raises `InvalidParams` for what answers no question of this kind."""
    try:
        return msgspec.convert(response, _ANSWERS[type(ask)])
    except msgspec.ValidationError as error:
        raise InvalidParams(f"The response to {key!r} does not answer it: {error}.") from None


def question_key(ask: Question) -> str:
    """A key made from the question: the same question has the same key, in every process."""
    if isinstance(ask, Elicit | OpenUrl):
        words = re.findall(r"[a-z0-9]+", ask.message.lower())
    else:
        words = ["sample" if isinstance(ask, Sample) else "roots"]
    digest = hashlib.sha256(msgspec.json.encode(ask, order="deterministic")).hexdigest()[:8]
    return f"{'_'.join(words)[:40].strip('_')}_{digest}"
