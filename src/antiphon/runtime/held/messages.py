"""The messages between the process that holds a run and the process that got the caller's next request.

Owns their form, which is JSON. They pass through the store that the processes share.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from antiphon.errors import (
    Declined,
    Failure,
    Forbidden,
    InternalError,
    MissingCapability,
    NotFound,
    RequestError,
)
from antiphon.model.catalog import PromptMessage
from antiphon.model.content import BlobContents, Block, Contents, Role, TextContents
from antiphon.model.notification import Log, Progress
from antiphon.model.outcome import PromptResult, ReadResult, Result
from antiphon.model.request import RequestId, RequestMeta
from antiphon.model.segment import CallerMessage, Segments
from antiphon.model.task import dump_questions, dump_result, load_questions, load_result
from antiphon.runtime.held.run import Asked, Outcome, Returned

__all__ = ["Reply", "Request", "dump_note", "dump_outcome", "load_note", "load_outcome"]

logger = logging.getLogger("antiphon")


class Request(msgspec.Struct, frozen=True, tag="request", omit_defaults=True):
    """A request of a caller, for the process that holds its run."""

    exchange: str
    """The name of the exchange. A request that is sent again has the same one."""
    origin: str
    """The process that waits for the outcome."""
    run: str
    round: int
    request_id: RequestId = 0
    answers: Mapping[str, Any] | None = None
    """The answers of the caller; `None` in a message that asks whether the process still lives."""
    meta: RequestMeta | None = None
    cancels: bool = False
    """Whether the caller has given the request up."""


class Reply(msgspec.Struct, frozen=True, tag="reply", omit_defaults=True):
    """A reply of the process that holds a run. A reply without anything says that the process lives."""

    exchange: str
    sent: int = 0
    """How many segments the caller received in the rounds before."""
    notes: Sequence[Any] = ()
    """Progress, log messages and segments for the caller."""
    outcome: Any = None
    """The outcome of the round; `None` while the function runs."""
    wants_answers: bool = False
    """Whether the answers have not arrived, and have to be sent again."""


# What a function sends while it runs

_NOTES: Mapping[str, type[Any]] = {"progress": Progress, "log": Log}
_NOTE_NAMES: Mapping[type[Any], str] = {kind: name for name, kind in _NOTES.items()}


def dump_note(message: CallerMessage) -> Any:
    """Return a message for the caller as JSON; `None` if it is of another kind."""
    if isinstance(message, Segments):
        return ["segments", [message.first, msgspec.to_builtins(message.blocks)]]
    name = _NOTE_NAMES.get(type(message))
    return None if name is None else [name, msgspec.to_builtins(message)]


def load_note(data: Any) -> Progress | Log | Segments:
    """Return the message that `dump_note` wrote."""
    name, fields = data
    if name == "segments":
        return Segments(*fields)
    note: Progress | Log = msgspec.convert(fields, _NOTES[name])
    return note


# Outcomes

_PLAIN_ERRORS: Mapping[str, type[Forbidden] | type[NotFound]] = {
    "forbidden": Forbidden,
    "not_found": NotFound,
}
"""Errors that the dispatcher tells apart by their class."""


def dump_outcome(outcome: Outcome, request_id: RequestId) -> Any:
    """Return the outcome of a round as JSON; raises `TypeError` or `ValueError` if that is not possible."""
    if isinstance(outcome, Asked):
        return {"asked": [dump_questions(outcome.questions), outcome.next_round]}
    if outcome.error is not None:
        return _dump_error(outcome.error, request_id)
    value = outcome.value
    if isinstance(value, Result):
        return {"result": dump_result(value)}
    if isinstance(value, PromptResult):
        return {"prompt": msgspec.to_builtins(value)}
    if isinstance(value, ReadResult):
        return {"read": msgspec.to_builtins(value)}
    raise TypeError(f"no outcome of a function: {type(value).__name__}")


def load_outcome(data: Mapping[str, Any]) -> Outcome:
    """Return the outcome that `dump_outcome` wrote. Blocks stay plain mappings."""
    ((kind, fields),) = data.items()
    if kind == "asked":
        questions, next_round = fields
        return Asked(load_questions(questions), next_round)
    if kind == "result":
        return Returned(load_result(fields))
    if kind == "prompt":
        messages = [
            PromptMessage(cast(Role, each["role"]), cast(Block, each["content"]))
            for each in fields["messages"]
        ]
        return Returned(PromptResult(tuple(messages), fields["description"]))
    if kind == "read":
        contents: list[Contents] = [
            msgspec.convert(each, TextContents) if "text" in each else msgspec.convert(each, BlobContents)
            for each in fields["contents"]
        ]
        return Returned(ReadResult(tuple(contents), fields["ttl_ms"], fields["shared"]))
    return Returned(error=_load_error(kind, fields))


def _dump_error(error: BaseException, request_id: RequestId) -> Any:
    if isinstance(error, Failure):
        action = error.action if isinstance(error, Declined) else None
        return {
            "failure": {
                "message": error.message,
                "details": error.details,
                "data": error.data,
                "action": action,
            }
        }
    for name, kind in _PLAIN_ERRORS.items():
        if isinstance(error, kind):
            return {name: {"message": error.message, "data": error.data}}
    if not isinstance(error, RequestError):
        logger.error("Request %r failed.", request_id, exc_info=error)
        error = InternalError(
            "The server failed to serve this request. The log of another process has the details, under "
            f"request {request_id!r}."
        )
    needs = error.needs if isinstance(error, MissingCapability) else None
    return {"error": {"code": error.code, "message": error.message, "data": error.data, "needs": needs}}


def _load_error(kind: str, fields: Mapping[str, Any]) -> Exception:
    message, data = fields["message"], fields["data"]
    if kind == "failure":
        if fields["action"] is not None:
            return Declined(message, action=fields["action"])
        return Failure(message, details=fields["details"], data=data)
    if kind in _PLAIN_ERRORS:
        return _PLAIN_ERRORS[kind](message, data=data)
    if fields["needs"] is not None:
        return MissingCapability(message, needs=fields["needs"], data=data, code=fields["code"])
    return RequestError(message, code=fields["code"], data=data)
