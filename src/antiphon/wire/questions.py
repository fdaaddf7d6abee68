"""The questions of a server and the answers to them, as MCP writes them.

One table for both sides: servers write questions and clients read them; clients write answers. Every protocol
version has the same methods and parameters; where and when a question travels is in the dialects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import msgspec

from antiphon.errors import BadAnswer
from antiphon.model.question import Answer, Elicit, ListRoots, OpenUrl, Question, Sample
from antiphon.model.ui import tool_ui
from antiphon.wire.jsonrpc import excerpt

__all__ = [
    "ELICITATION",
    "ROOTS",
    "SAMPLING",
    "accept",
    "accepted_content",
    "plain_answer",
    "read_question",
    "read_questions",
    "refuse",
    "write_answer",
    "write_question",
]

ELICITATION = "elicitation/create"
SAMPLING = "sampling/createMessage"
ROOTS = "roots/list"

Params: TypeAlias = Mapping[str, Any]


def _write_form(question: Elicit) -> dict[str, Any]:
    params: dict[str, Any] = {
        "mode": question.mode,
        "message": question.message,
        "requestedSchema": question.schema,
    }
    if question.mode is None:
        del params["mode"]
    if question.ui is not msgspec.UNSET:
        params["_meta"] = {"ui": {"resourceUri": question.ui}}
    return params


_TABLE: Mapping[type[Any], tuple[str, Callable[[Any], dict[str, Any]]]] = {
    Elicit: (ELICITATION, _write_form),
    OpenUrl: (
        ELICITATION,
        lambda question: {"mode": "url", "message": question.message, "url": question.url},
    ),
    Sample: (SAMPLING, lambda question: dict(question.params)),
    ListRoots: (ROOTS, lambda question: {}),
}


def write_question(question: Question) -> tuple[str, dict[str, Any]]:
    """Return the method and the parameters of a question."""
    method, write = _TABLE[type(question)]
    return method, write(question)


def _read_elicitation(params: Params) -> Question | None:
    message, schema, url = params.get("message", ""), params.get("requestedSchema"), params.get("url")
    mode = params.get("mode", "form")
    if not isinstance(message, str):
        return None
    if mode == "url" and isinstance(url, str):
        return OpenUrl(message, url)
    if mode != "form" or not isinstance(schema, dict):
        return None
    return Elicit(message, schema, ui=tool_ui(params.get("_meta")) or msgspec.UNSET)


_READERS: Mapping[Any, Callable[[Params], Question | None]] = {
    ELICITATION: _read_elicitation,
    SAMPLING: Sample,
    ROOTS: lambda params: ListRoots(),
}


def read_question(key: str, request: Any) -> Question:
    """Return the question that a server asks under a key; raises `BadAnswer`."""
    params = request.get("params", {}) if isinstance(request, dict) else None
    if not isinstance(params, dict):
        raise BadAnswer(f"The server asks {key!r} without a method and params.")
    method = request.get("method")
    reader = _READERS.get(method) if isinstance(method, str) else None
    question = None if reader is None else reader(params)
    if question is None:
        raise BadAnswer(
            f"The server asks {key!r} in a way that this client does not know: {excerpt(request)}."
        )
    return question


def read_questions(requests: Any) -> dict[str, Question]:
    """Return questions by key; raises `BadAnswer`."""
    if not isinstance(requests, dict):
        raise BadAnswer("The server wants input, and does not say which.")
    return {key: read_question(key, request) for key, request in requests.items()}


def accept(content: Any = None) -> dict[str, Any]:
    """Return the response of a person who filled in a form, or went to an address."""
    return {"action": "accept"} if content is None else {"action": "accept", "content": content}


def refuse(action: str) -> dict[str, Any]:
    """Return the response of a person who answered with "decline" or "cancel"."""
    return {"action": action}


def accepted_content(response: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the content that a person filled in; `None` if the person did not accept."""
    if response.get("action") != "accept":
        return None
    content = response.get("content")
    return content if isinstance(content, Mapping) else {}


def plain_answer(answer: Answer) -> dict[str, Any]:
    """Return an answer as the client sent it, without the fields that it left out."""
    written: dict[str, Any] = msgspec.to_builtins(answer)
    return {name: value for name, value in written.items() if value is not None}


def write_answer(question: Question | None, answer: Any, *, model: str = "unknown") -> dict[str, Any]:
    """Return the response for an answer to a question.

    A form is answered with its content, "decline" or "cancel", sampling with a text, and roots with a
    sequence of addresses or roots. A response as it is on the wire answers every question.
    """
    if isinstance(question, Sample) and not isinstance(answer, Mapping):
        return {"role": "assistant", "content": {"type": "text", "text": str(answer)}, "model": model}
    if isinstance(question, ListRoots) and not isinstance(answer, Mapping):
        return {"roots": [dict(root) if isinstance(root, Mapping) else {"uri": str(root)} for root in answer]}
    if isinstance(answer, str) and answer in ("decline", "cancel"):
        return refuse(answer)
    if isinstance(answer, Mapping) and ("action" in answer or isinstance(question, Sample | ListRoots)):
        return dict(answer)
    return accept(None if isinstance(question, OpenUrl) else answer)
