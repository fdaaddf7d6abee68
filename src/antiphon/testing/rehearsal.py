"""Rehearses a tool: calls the tool, and answers its questions until it returns."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from antiphon.model.capabilities import ANSWERS_EVERYTHING
from antiphon.model.identity import ANONYMOUS, Principal
from antiphon.model.outcome import InputRequired, Result
from antiphon.model.request import CallTool
from antiphon.model.task import load_questions
from antiphon.server import Server
from antiphon.testing.calls import (
    Answers,
    AskedQuestion,
    Rehearsal,
    SimulatedCaller,
    make_call,
    responses_to,
    server_and_tool,
)
from antiphon.testing.rehearsed_carrier import RehearsedCarrier

__all__ = ["rehearse"]

_MAX_ROUNDS = 100


async def rehearse(
    target: Server | Callable[..., Any],
    name: str | None = None,
    arguments: Mapping[str, Any] | None = None,
    *,
    answers: Answers | None = None,
    events: Mapping[tuple[str, str], Sequence[Any]] | None = None,
    principal: Principal = ANONYMOUS,
    capabilities: Mapping[str, Any] = ANSWERS_EVERYTHING,
) -> Rehearsal:
    """Call a tool, and answer its questions until it returns a result or asks one without an answer.

    `target` is a function, or a server together with the `name` of a tool. `answers` are the answers by key,
    or a function that takes an `AskedQuestion` and returns its answer. `principal` and `capabilities` are
    those of the simulated client; by default it is anonymous, and answers every kind of question.

    A tool that can run as a task is rehearsed as one, without middleware. Its sleeps end at once, and so does
    the time for a question or an event that does not come. `events` are the data of events by name and key.

    Each round encrypts and decrypts the request state, as a real call does. Raises `RequestError` if the call
    ends with a JSON-RPC error, `ReplayMismatch` if a round does something else than the rounds before, and
    `AssertionError` if the tool still asks after 100 rounds.
    """
    server, tool = server_and_tool(target, name)
    rehearsal = Rehearsal()
    request = CallTool(name=tool, arguments=dict(arguments or {}))
    async with server.running():
        engine = server.engine
        waiting = None
        if tool in engine.registry.task_tools:
            waiting = RehearsedCarrier(engine.client_carrier, events or {})
        while rehearsal.rounds < _MAX_ROUNDS:
            rehearsal.rounds += 1
            caller, carrier = SimulatedCaller(rehearsal), waiting or engine.client_carrier
            call = make_call(request, caller, carrier, rehearsal.rounds, principal, capabilities)
            if waiting is None:
                outcome = await engine.handle(call)
            else:
                outcome = await engine.registry.tool(tool).run(call, engine.environment)
            if not isinstance(outcome, InputRequired):
                assert isinstance(outcome, Result)
                rehearsal.result = outcome
                return rehearsal
            asked = [AskedQuestion(key, question) for key, question in outcome.questions.items()]
            responses = responses_to(asked, answers)
            others = [] if waiting is None else _asked_of_others(outcome)
            rehearsal.questions += [*asked, *others]
            is_answered = len(responses) == len(asked) and (bool(asked) or not outcome.waits)
            if waiting is not None and not is_answered:
                answered = [_answer_for(waiting, each, answers) for each in others]
                is_answered = any(answered) or waiting.wake(outcome)
                rehearsal.slept = timedelta(milliseconds=waiting.passed)
            if not is_answered:
                rehearsal.open = [each for each in (*asked, *others) if each.key not in responses]
                return rehearsal
            request = CallTool(
                name=tool,
                arguments=request.arguments,
                input_responses=responses,
                request_state=outcome.sealed,
            )
    raise AssertionError(
        f"The tool {tool!r} still asks after {_MAX_ROUNDS} rounds. "
        f"Its last questions: {[q.key for q in rehearsal.questions[-3:]]}."
    )


def _asked_of_others(stopped: InputRequired) -> list[AskedQuestion]:
    """Return the questions of a task to others than its caller, one for each answer that is missing."""
    return [
        AskedQuestion(key, load_questions({key: wait.question})[key], wait.asked_names)
        for key, wait in stopped.waits.items()
        if wait.question is not None
        for _ in range(wait.approvals - len(wait.answered_by))
    ]


def _answer_for(waiting: RehearsedCarrier, asked: AskedQuestion, answers: Answers | None) -> bool:
    """Answer a question to others on behalf of one of them; return false if the test has no answer."""
    given = responses_to([asked], answers)
    if asked.key in given:
        waiting.answer(asked.key, f"{asked.to[0]}-{uuid.uuid4().hex[:4]}", given[asked.key])
    return asked.key in given
