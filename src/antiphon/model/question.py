"""Questions that a tool asks its caller during a call, and their answers.

The questions are the same in every protocol version. The dialects write them, and the carriers deliver them;
this module must not know either.
"""

from __future__ import annotations

import hashlib
import re
import reprlib
from collections.abc import Mapping, Sequence
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
    "place_answers",
    "question_key",
    "read_answer",
    "with_problem",
]


class Elicit(msgspec.Struct, frozen=True):
    """Asks a person to fill in a form."""

    message: str
    """The text that the person reads."""
    schema: Mapping[str, Any]
    """The fields of the form, as a flat JSON schema."""
    mode: Literal["form"] | None = "form"
    """`None` omits the mode, for clients that do not know modes. The meaning is the same."""
    ui: str | msgspec.UnsetType = msgspec.UNSET
    """The URI of an MCP App that asks in place of the form, for clients that let Apps ask. Experimental."""


class OpenUrl(msgspec.Struct, frozen=True):
    """Asks a person to open a web page. The data that the person enters there does not reach the client."""

    message: str
    """The text that the person reads."""
    url: str
    """The address of the page."""


class Sample(msgspec.Struct, frozen=True):
    """Asks the client's model for a completion."""

    params: Mapping[str, Any]
    """The parameters of `sampling/createMessage`."""


class ListRoots(msgspec.Struct, frozen=True):
    """Asks for the root folders of the client."""


Question: TypeAlias = Elicit | OpenUrl | Sample | ListRoots


class ElicitResult(msgspec.Struct, frozen=True):
    """The answer of a person to `Elicit` or `OpenUrl`."""

    action: Literal["accept", "decline", "cancel"]
    """Whether the person answered, said no, or closed the dialog."""
    content: dict[str, Any] | None = None
    """The fields of the form, if the person answered."""


class SampleResult(Value, frozen=True):
    """The completion of the client's model."""

    role: Role
    content: Any
    """One content block or a list of them, as plain mappings."""
    model: str
    """The name of the model."""
    stop_reason: str | None = None
    """Why the model stopped, such as `"endTurn"` or `"maxTokens"`."""

    @property
    def text(self) -> str:
        """The text of all text blocks, joined by line breaks."""
        blocks = self.content if isinstance(self.content, list) else [self.content]
        texts = [
            block.get("text") for block in blocks if isinstance(block, dict) and block.get("type") == "text"
        ]
        return "\n".join(text for text in texts if isinstance(text, str))


class Root(msgspec.Struct, frozen=True, omit_defaults=True):
    """A root folder of the client."""

    uri: str
    name: str | None = None


class RootsResult(msgspec.Struct, frozen=True):
    """The root folders of the client."""

    roots: tuple[Root, ...]


Answer: TypeAlias = ElicitResult | SampleResult | RootsResult

_ANSWERS: Mapping[type[Any], type[Any]] = {
    Elicit: ElicitResult,
    OpenUrl: ElicitResult,
    Sample: SampleResult,
    ListRoots: RootsResult,
}


def read_answer(question: Question, key: str, response: Any) -> Any:
    """Return the answer in a response; raises `InvalidParams` if the response does not fit the question."""
    try:
        return msgspec.convert(response, _ANSWERS[type(question)])
    except msgspec.ValidationError as error:
        raise InvalidParams(f"The response does not answer the question {key!r}: {error}.") from None


def place_answers(questions: Mapping[str, Question], answers: Sequence[Any]) -> dict[str, Any]:
    """Return answers without keys as responses by key: each question takes the first answer that fits it.

    An answer is a response, a field of a form as `{"name": …, "value": …}`, or `None` in place of an answer
    that the caller does not have yet. Raises `InvalidParams` for an answer that fits no question.
    """
    left, responses = list(answers), {}
    for key, question in questions.items():
        response = None if isinstance(question, ListRoots) else _take(question, left)
        if response is not None:
            responses[key] = response
    for answer in left:
        if answer is not None:
            asked = ", ".join(map(repr, questions))
            raise InvalidParams(
                f"The answer {reprlib.repr(answer)} fits none of the open questions: {asked}. A form takes "
                '{"action": …, "content": {…}}, or each field as {"name": …, "value": …}. A model '
                "answers with a role, content and its name."
            )
    return responses


def _take(question: Question, left: list[Any]) -> Any:
    """Take the first answer that fits a question; return `None` if there is none, or it stands for none."""
    for place, answer in enumerate(left):
        if answer is None:
            return left.pop(place)
        if isinstance(question, Elicit) and _is_field(answer, question):
            content: dict[str, Any] = {}
            while (
                place < len(left) and _is_field(left[place], question) and left[place]["name"] not in content
            ):
                field = left.pop(place)
                content[field["name"]] = field["value"]
            return {"action": "accept", "content": content}
        try:
            msgspec.convert(answer, _ANSWERS[type(question)])
        except msgspec.ValidationError:
            continue
        return left.pop(place)
    return None


def _is_field(answer: Any, form: Elicit) -> bool:
    """Return whether an answer is a field of a form."""
    if not isinstance(answer, dict) or answer.keys() != {"name", "value"}:
        return False
    fields, name = form.schema.get("properties"), answer["name"]
    return isinstance(fields, Mapping) and isinstance(name, str) and name in fields


def with_problem(question: Question, problem: str | None) -> Question:
    """Return a question that is asked again, with the problem of the last answer in its message.

    Only forms have a message that a person reads before the next answer.
    """
    if problem is None or not isinstance(question, Elicit):
        return question
    message = f"{question.message}\n\nThe last answer does not fit: {problem}"
    return msgspec.structs.replace(question, message=message)


def question_key(question: Question) -> str:
    """Return the default key of a question. Equal questions have the same key, in every process."""
    if isinstance(question, Elicit | OpenUrl):
        words = re.findall(r"[a-z0-9]+", question.message.lower())
    else:
        words = ["sample" if isinstance(question, Sample) else "roots"]
    digest = hashlib.sha256(msgspec.json.encode(question, order="deterministic")).hexdigest()[:8]
    return f"{'_'.join(words)[:40].strip('_')}_{digest}"
