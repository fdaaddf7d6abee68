"""What the earlier drafts share, as a client speaks them: questions have no keys.

Each question gets the key that the server put in its metadata, or one of its own. A call's keys travel in the
request state of the client, because the next round writes the answers in the order of the questions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import msgspec

from antiphon.errors import BadAnswer, ClientError
from antiphon.model.outcome import InputRequired
from antiphon.model.question import Question, Sample, question_key
from antiphon.model.request import (
    AnswerTask,
    CallTool,
    GetPrompt,
    ReadResource,
    RedeemTask,
    Request,
    RequestId,
)
from antiphon.model.segment import StreamPart
from antiphon.model.task_status import TaskStatus
from antiphon.wire import jsonrpc
from antiphon.wire.client import tasks
from antiphon.wire.client.dialect import Message
from antiphon.wire.client.draft import ClientDraft
from antiphon.wire.jsonrpc import Frame
from antiphon.wire.mirrored_headers import Mirrored
from antiphon.wire.questions import read_question
from antiphon.wire.server.draft import QUESTION, KeylessDraft
from antiphon.wire.server.tasks import RELATED

__all__ = ["Asked", "ClientKeyless", "Round"]

_OWN = re.compile(r"#([0-9]+) ")
"""How the key of a question begins that the server gave none: with its number among those of its kind."""


class Asked(msgspec.Struct, frozen=True):
    """What a server asks in place of a result: methods with params, and metadata beside them."""

    questions: list[tuple[str, Any]]
    meta: Mapping[str, Any] = {}
    state: Any = None
    """The request state of the server, if it sent one."""


class Round(msgspec.Struct, frozen=True):
    """What the next round of a call has to know about this one."""

    keys: tuple[str, ...]
    """The keys of the questions, in the order in which the server asked."""
    state: str | None = None
    """The request state of the server."""


_rounds = msgspec.json.Decoder(Round)


class ClientKeyless(ClientDraft):
    """An earlier draft, in which no question has a key and the answer to a task is a response."""

    methods = {
        **{kind: method for method, kind in KeylessDraft.methods.items()},
        AnswerTask: "the answer to a task",
    }
    answers_one_by_one = True
    skips_answers = False
    """Whether a call says which of its answers the caller does not have."""
    asks_by: ClassVar[frozenset[str]] = frozenset()
    """The methods of messages that ask in place of a response."""
    meta_is_within = False
    """Whether the metadata of a response stands in its result, and not beside it."""

    def names_question(self, key: str) -> bool:
        """Return whether the key of a question is the server's."""
        return _OWN.match(key) is None

    def in_order(self, responses: Mapping[str, Any]) -> list[str]:
        """Return the keys of responses in the order of their questions.

        Raises `ClientError` for a gap: the response would answer the question before its own.
        """
        numbers = {key: int(own[1]) for key in responses if (own := _OWN.match(key))}
        for kind in (True, False):
            of_kind = sorted(
                (number, key) for key, number in numbers.items() if ("role" in responses[key]) is kind
            )
            for expected, (number, key) in enumerate(of_kind, start=1):
                if number != expected:
                    raise ClientError(
                        f"In protocol version {self.version}, the question {key!r} is answered by its place: "
                        "answer the questions before it too."
                    )
        return sorted(responses, key=lambda key: numbers.get(key, 0))

    # Reading

    def read(self, request: Request, frame: Frame) -> Any:
        """Return the value in a response, or the questions in its place; raises the error, or `BadAnswer`."""
        asked = self._asked(frame)
        if asked is None:
            return super().read(request, frame)
        if not self._can_answer(request):
            raise BadAnswer(f"The server answered {self.methods[type(request)]} with a question.")
        questions = self._with_keys(asked.questions, asked.meta)
        if isinstance(request, RedeemTask):
            if request.stream is None and not request.last_seq_nr:
                return InputRequired(questions)
            return StreamPart((), task_id=request.task_id, stopped=InputRequired(questions))
        if (task_id := tasks.related(asked.meta)) is not None:  # the call has become a task, which asks
            status = TaskStatus(task_id, "input_required", questions=questions)
            return StreamPart((), task_id=task_id, task=status, stopped=InputRequired(questions))
        if not isinstance(asked.state, str | None):
            raise BadAnswer("The server asks with a request state that is no text.")
        return InputRequired(questions, sealed=jsonrpc.encode(Round(tuple(questions), asked.state)).decode())

    def _asked(self, frame: Frame) -> Asked | None:
        """Return what a server asks in place of a result; `None` if it does not ask."""
        raise NotImplementedError

    def _with_keys(self, asked: Iterable[tuple[str, Any]], meta: Mapping[str, Any]) -> dict[str, Question]:
        questions: dict[str, Question] = {}
        own = {True: 0, False: 0}
        for method, params in asked:
            number = len(questions) + 1
            question = read_question(f"question {number}", {"method": method, "params": params})
            within = params.get("_meta")
            key = meta.get(QUESTION) or (within.get(QUESTION) if isinstance(within, Mapping) else None)
            if not isinstance(key, str) or key in questions:
                kind = isinstance(question, Sample)
                own[kind] += 1
                key = f"#{own[kind]} {question_key(question)}"
            questions[key] = question
        return questions

    # Writing

    def _message(
        self,
        request_id: RequestId,
        method: str,
        params: dict[str, Any],
        request: Request,
        mirrored: Mirrored | None,
    ) -> Message:
        if isinstance(request, AnswerTask):
            return self._posted(request_id, request)
        beside: dict[str, Any] = {}
        if isinstance(request, CallTool | GetPrompt | ReadResource):
            given: Mapping[str, Any] = params.pop("inputResponses", {})
            state = params.pop("requestState", None)
            last = Round(tuple(given)) if state is None else _read_round(state)
            if not self.skips_answers:
                self.in_order(given)
            beside = self._answer(params, [given.get(key) for key in last.keys], last.state)
        message = super()._message(request_id, method, params, request, mirrored)
        if beside:
            body = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params, **beside}
            message = msgspec.structs.replace(message, body=jsonrpc.encode(body))
        if self.asks_by and self._can_answer(request):
            message = msgspec.structs.replace(message, answered_by=self.asks_by)
        return message

    def _answer(self, params: dict[str, Any], answers: list[Any], state: str | None) -> dict[str, Any]:
        """Write answers, in the order of the questions, into the params of a call; return what stands beside.

        An answer is `None` if the caller has none.
        """
        raise NotImplementedError

    def _posted(self, request_id: RequestId, request: AnswerTask) -> Message:
        """Return the response that answers a question of a task."""
        ((key, response),) = request.input_responses.items()
        meta: dict[str, Any] = {RELATED: {"taskId": request.task_id}}
        if self.names_question(key):
            meta[QUESTION] = key
        frame: dict[str, Any] = {"jsonrpc": "2.0", "id": request_id, "result": dict(response)}
        if self.meta_is_within:
            frame["result"]["_meta"] = meta
        else:
            frame["_meta"] = meta
        return Message(jsonrpc.encode(frame), self.methods[AnswerTask], headers=self.headers)


def _read_round(state: str) -> Round:
    try:
        return _rounds.decode(state)
    except msgspec.DecodeError:
        raise ValueError("The request state is not one that this client got from a server.") from None
