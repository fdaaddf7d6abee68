"""What a client reads out of answers: strict where it has to rely on them, generous where it can be."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest

from antiphon.errors import BadAnswer, InvalidParams, RequestError
from antiphon.model.catalog import PromptMessage
from antiphon.model.content import Annotations, BlobContents, EmbeddedResource, Text, TextContents
from antiphon.model.identity import Implementation
from antiphon.model.notification import Log, Progress
from antiphon.model.outcome import PromptResult
from antiphon.model.question import Elicit, ListRoots, OpenUrl, Sample
from antiphon.model.request import Cancel
from antiphon.wire import jsonrpc
from antiphon.wire.client import results, tasks
from antiphon.wire.client.v2026_07_28 import ClientV2026
from antiphon.wire.questions import read_question

FORM = {"type": "object", "properties": {}}
RELATED = "io.modelcontextprotocol/related-task"
DIALECT = ClientV2026("2026-07-28", Implementation("tests", "1"), {})
INPUT_REQUIRED = partial(results.input_required, DIALECT)


@pytest.mark.parametrize("value", [None, "No.", [], {}, {"message": "No."}, {"code": "1"}, {"code": True}])
def test_an_error_without_a_code_is_a_bad_answer(value: Any) -> None:
    with pytest.raises(BadAnswer, match="an error without a code"):
        results.error(value)


def test_an_error_is_of_the_class_that_has_its_code() -> None:
    known, unknown = results.error({"code": -32602, "message": "m", "data": 1}), results.error({"code": -7})
    assert (type(known), known.message, known.data) == (InvalidParams, "m", 1)
    assert (type(unknown), unknown.message, unknown.code) == (RequestError, "Error -7", -7)


@pytest.mark.parametrize(
    ("read", "fields", "says"),
    [
        (INPUT_REQUIRED, {"inputRequests": []}, "does not say which"),
        (INPUT_REQUIRED, {"inputRequests": {}, "requestState": 1}, "does not say which"),
        (INPUT_REQUIRED, {"inputRequests": {"k": "Name?"}}, "asks 'k' without a method and params"),
        (INPUT_REQUIRED, {"inputRequests": {"k": {"params": []}}}, "asks 'k' without a method and params"),
        (results.resource, {}, "a resource without contents"),
        (results.resource, {"contents": {"uri": "u:", "text": "t"}}, "a resource without contents"),
        (results.resource, {"contents": [{"uri": "u:", "blob": 1}]}, "contents that cannot be read"),
        (results.resource, {"contents": ["t"]}, "contents that cannot be read"),
        (results.prompt, {}, "a prompt without messages"),
        (results.prompt, {"messages": ["Hello."]}, "message without a role: Hello."),
        (results.prompt, {"messages": [{"role": "system", "content": {}}]}, "message without a role"),
        (
            results.prompt,
            {"messages": [{"role": "user", "content": "Hello."}]},
            "block that is not an object",
        ),
        (results.listing("templates"), {"templates": []}, "page of templates without 'resourceTemplates'"),
        (results.listing("tools"), {"tools": None}, "page of tools without 'tools'"),
        (results.result, {"content": "Done."}, "content that is not a list: Done."),
        (results.discovery, {}, "supportedVersions that cannot be read"),
        (results.initialization, {"protocolVersion": 1}, "protocolVersion that cannot be read"),
        (results.completion, {}, "completion that cannot be read"),
    ],
)
def test_what_a_bad_answer_lacks_is_named(
    read: Callable[[Mapping[str, Any]], Any], fields: dict[str, Any], says: str
) -> None:
    with pytest.raises(BadAnswer, match=says):
        read(fields)


@pytest.mark.parametrize("fields", [{}, {"inputRequests": {}}, {"inputRequests": None, "requestState": None}])
def test_a_server_may_want_the_request_again_without_a_question_and_without_a_state(
    fields: dict[str, Any],
) -> None:
    asked = INPUT_REQUIRED(fields)
    assert (asked.questions, asked.sealed) == ({}, None)


@pytest.mark.parametrize(
    ("method", "params", "expected"),
    [
        ("elicitation/create", {"message": "Name?", "requestedSchema": FORM}, Elicit("Name?", FORM)),
        ("elicitation/create", {"mode": "url", "message": "Pay.", "url": "u:"}, OpenUrl("Pay.", "u:")),
        ("sampling/createMessage", {"maxTokens": 1}, Sample({"maxTokens": 1})),
        ("roots/list", {}, ListRoots()),
    ],
)
def test_every_kind_of_question_is_read(method: str, params: dict[str, Any], expected: Any) -> None:
    assert read_question("k", {"method": method, "params": params}) == expected


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("elicitation/create", {"message": "Name?"}),
        ("elicitation/create", {"message": "Name?", "mode": "voice", "requestedSchema": FORM}),
        ("elicitation/create", {"message": "Pay.", "mode": "url"}),
        ("elicitation/create", {"message": 1, "requestedSchema": FORM}),
        ("another/question", {}),
    ],
)
def test_a_question_that_nobody_could_answer_is_a_bad_answer(method: str, params: dict[str, Any]) -> None:
    with pytest.raises(BadAnswer, match="asks 'k' in a way that this client does not know"):
        read_question("k", {"method": method, "params": params})


def test_contents_are_text_or_a_blob_in_resources_and_in_blocks() -> None:
    text, blob = {"uri": "u:1", "text": "t"}, {"uri": "u:2", "blob": "YQ=="}
    expected = (TextContents("u:1", "t"), BlobContents("u:2", "YQ=="))
    assert results.resource({"contents": [text, blob]}).contents == expected
    embedded = [
        {"type": "resource", "resource": text, "annotations": {"priority": 1.0}},
        {"type": "resource", "resource": blob, "_meta": {"k": 1}},
    ]
    assert results.blocks(embedded) == (
        EmbeddedResource(expected[0], Annotations(priority=1.0)),
        EmbeddedResource(expected[1], meta={"k": 1}),
    )


def test_a_block_of_an_unknown_type_stays_as_it_came() -> None:
    assert results.blocks([{"type": "smell", "of": "roses"}]) == ({"type": "smell", "of": "roses"},)


def test_a_prompt_is_read_with_its_roles() -> None:
    said = {"messages": [{"role": "assistant", "content": {"type": "text", "text": "a"}}], "description": 1}
    assert results.prompt(said) == PromptResult((PromptMessage("assistant", Text("a")),), None)


@pytest.mark.parametrize("stated", [None, "me", {"name": "me"}, {"name": 1, "version": "1"}])
def test_a_server_need_not_say_who_it_is(stated: Any) -> None:
    said = {"protocolVersion": "2025-11-25", "serverInfo": stated, "capabilities": []}
    assert results.initialization(said) == results.Welcome(("2025-11-25",), {}, None, None)


def test_a_server_that_says_who_it_is_is_believed() -> None:
    said = {"protocolVersion": "2025-11-25", "serverInfo": {"name": "me", "version": "1"}}
    assert results.initialization(said).server == Implementation("me", "1")


def heard(method: str, params: Any = None) -> Any:
    return results.notification(
        jsonrpc.decode(json.dumps({"jsonrpc": "2.0", "method": method, "params": params or {}}))
    )


def test_notifications_are_read() -> None:
    assert heard("notifications/progress", {"progressToken": "p", "progress": 1}) == Progress("p", 1)
    assert heard("notifications/cancelled", {"requestId": 7}) == Cancel(7)
    assert heard("notifications/message", {"level": "info", "data": 1, "logger": 2}) == Log("info", 1)


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("notifications/of/the/future", {}),
        ("notifications/progress", {}),
        ("notifications/progress", {"progressToken": "p", "progress": "half"}),
        ("notifications/cancelled", {}),
        ("notifications/resources/updated", {"uri": 1}),
        ("notifications/subscriptions/acknowledged", {}),
        ("notifications/message", {"data": 1}),
        ("notifications/message", {"level": "loud", "data": 1}),
        ("notifications/message", {"level": ["info"], "data": 1}),
    ],
)
def test_a_notification_that_is_unknown_or_cannot_be_read_is_passed_over(
    method: str, params: dict[str, Any]
) -> None:
    assert heard(method, params) is None


@pytest.mark.parametrize("moment", [None, 7, "yesterday", [], "2026-99-99T00:00:00Z"])
def test_a_moment_that_is_none_does_not_spoil_the_status_of_a_task(moment: Any) -> None:
    status = tasks.status(DIALECT, {"taskId": "t1", "status": "working", "createdAt": moment})
    assert (status.id, status.created_at) == ("t1", None)


@pytest.mark.parametrize("meta", [None, 7, "x", [RELATED], {RELATED: {"taskId": "t1"}}])
def test_metadata_that_says_nothing_of_a_result_is_left_out(meta: Any) -> None:
    content = [{"type": "text", "text": "done"}]
    result = tasks.task_result({"content": content, "_meta": meta})
    assert (result.text, result.meta) == ("done", None)


@pytest.mark.parametrize(
    ("spelled", "meant"),
    [
        ("Working", "working"),
        ("input_require", "input_required"),
        ("InputRequired", "input_required"),
        ("Completed", "completed"),
    ],
)
def test_a_status_is_read_as_early_proposals_spelled_it(spelled: str, meant: str) -> None:
    assert tasks.status(DIALECT, {"taskId": "t1", "status": spelled}).status == meant
