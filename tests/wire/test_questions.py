"""Questions and answers as MCP writes them: the server's table and the client's are one."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.errors import BadAnswer
from antiphon.model.capabilities import ANSWERS_EVERYTHING, can_answer, capabilities_for
from antiphon.model.question import Elicit, ListRoots, OpenUrl, Question, Sample
from antiphon.wire.questions import (
    accept,
    accepted_content,
    read_question,
    read_questions,
    refuse,
    write_answer,
    write_question,
)

FORM = {"type": "object", "properties": {"name": {"type": "string"}}}
SAID = {"role": "assistant", "content": {"type": "text", "text": "Hello."}, "model": "m"}
ROOTS = [{"uri": "file:///a"}, {"uri": "file:///b"}]
QUESTIONS = [Elicit("Name?", FORM), OpenUrl("Pay.", "https://pay"), Sample({"maxTokens": 1}), ListRoots()]


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: type(question).__name__)
def test_a_client_reads_what_a_server_writes(question: Question) -> None:
    method, params = write_question(question)
    assert read_question("key", {"method": method, "params": params}) == question
    assert read_questions({"key": {"method": method, "params": params}}) == {"key": question}


@pytest.mark.parametrize(
    "request_",
    [
        {"method": "elicitation/create", "params": {"message": 1, "requestedSchema": FORM}},
        {"method": "elicitation/create", "params": {"message": "Pay.", "mode": "url"}},
        {"method": "elicitation/create", "params": {"message": "Name?", "mode": "voice"}},
        {"method": "elicitation/create", "params": {"message": "Name?"}},
        {"method": "dance", "params": {}},
        {"method": ["roots/list"], "params": {}},
    ],
)
def test_a_question_that_a_client_does_not_know_is_a_bad_answer(request_: Any) -> None:
    with pytest.raises(BadAnswer, match="asks 'key' in a way that this client does not know"):
        read_question("key", request_)


@pytest.mark.parametrize(
    ("question", "answer", "response"),
    [
        (QUESTIONS[0], {"name": "Ada"}, accept({"name": "Ada"})),
        (QUESTIONS[0], "decline", refuse("decline")),
        (QUESTIONS[0], {"action": "cancel"}, {"action": "cancel"}),
        (None, {"name": "Ada"}, accept({"name": "Ada"})),
        (QUESTIONS[1], True, accept()),
        (QUESTIONS[1], "cancel", refuse("cancel")),
        (QUESTIONS[2], "Hello.", SAID),
        (QUESTIONS[2], {"role": "assistant"}, {"role": "assistant"}),
        (QUESTIONS[3], ["file:///a", {"uri": "file:///b"}], {"roots": ROOTS}),
        (QUESTIONS[3], {"roots": []}, {"roots": []}),
    ],
)
def test_answers_are_written_as_responses(question: Question | None, answer: Any, response: Any) -> None:
    assert write_answer(question, answer, model="m") == response


@pytest.mark.parametrize(
    ("response", "content"),
    [
        (accept({"name": "Ada"}), {"name": "Ada"}),
        (accept(), {}),
        ({"action": "accept", "content": 7}, {}),
        (refuse("decline"), None),
        ({}, None),
    ],
)
def test_only_an_accepted_form_has_content(response: Any, content: Any) -> None:
    assert accepted_content(response) == content


def test_the_capabilities_that_questions_need() -> None:
    assert capabilities_for(Elicit, OpenUrl) == {"elicitation": {"form": {}, "url": {}}}
    assert capabilities_for(Sample, ListRoots) == {"sampling": {}, "roots": {}}
    assert all(can_answer(ANSWERS_EVERYTHING, question) for question in QUESTIONS)
    assert not any(can_answer({}, question) for question in QUESTIONS)
    assert can_answer({"elicitation": {}}, QUESTIONS[0])
    assert not can_answer({"elicitation": {"url": {}}}, QUESTIONS[0])
    assert not can_answer({"elicitation": {}}, QUESTIONS[1])
