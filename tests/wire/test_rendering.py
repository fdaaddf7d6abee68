"""Every outcome, notification and error, as each of the three dialects writes it down."""

from __future__ import annotations

import json
from typing import Any

import pytest

from antiphon.errors import (
    Busy,
    Failure,
    HeaderMismatch,
    InternalError,
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    MissingCapability,
    NotFound,
    ParseError,
    RequestError,
    ResourceNotFound,
    UnsupportedVersion,
)
from antiphon.model.capabilities import ServerCapabilities
from antiphon.model.catalog import (
    PromptArgument,
    PromptDefinition,
    PromptMessage,
    ResourceDefinition,
    TemplateDefinition,
    ToolAnnotations,
    ToolDefinition,
)
from antiphon.model.content import (
    Annotations,
    Audio,
    BlobContents,
    EmbeddedResource,
    Icon,
    Image,
    ResourceLink,
    Text,
    TextContents,
)
from antiphon.model.identity import Implementation
from antiphon.model.notification import Acknowledged, ListChanged, Log, Progress, ResourceUpdated
from antiphon.model.outcome import (
    DONE,
    Completion,
    Discovery,
    Listened,
    Page,
    PromptResult,
    ReadResult,
    Result,
)
from antiphon.model.request import Ping, SubscriptionFilter
from antiphon.runtime.authoring.tool import failure_result
from antiphon.wire.versions import VERSIONS, Dialects

SERVER = Implementation("tests", "1", title="Tests")
SERVER_JSON = {"name": "tests", "version": "1", "title": "Tests"}
dialects = Dialects(SERVER)
BY_NAME = {
    "legacy": dialects.negotiate("2025-11-25"),
    "draft": dialects["DRAFT-2026-v1"],
    "modern": dialects["2026-07-28"],
}
META = {"io.modelcontextprotocol/serverInfo": SERVER_JSON}
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"


def result(name: str, outcome: Any) -> dict[str, Any]:
    frame = json.loads(BY_NAME[name].response(Ping(), 7, outcome))
    assert (frame["jsonrpc"], frame["id"]) == ("2.0", 7)
    return dict(frame["result"])


STRING_TOOL = ToolDefinition("t", {"type": "object"}, output_schema={"type": "string", "$defs": {"X": {}}})
OBJECT_TOOL = ToolDefinition("o", {"type": "object"}, output_schema={"type": "object"})
FULL_TOOL = ToolDefinition(
    "f",
    {"type": "object", "properties": {}},
    title="Full",
    description="All there is.",
    annotations=ToolAnnotations(title="F", read_only_hint=True, destructive_hint=False),
    icons=(Icon("https://x/i.png", mime_type="image/png", sizes=("48x48",), theme="dark"),),
    meta={"k": 1},
)
FULL_TOOL_JSON = {
    "name": "f",
    "inputSchema": {"type": "object", "properties": {}},
    "title": "Full",
    "description": "All there is.",
    "annotations": {"title": "F", "readOnlyHint": True, "destructiveHint": False},
    "icons": [{"src": "https://x/i.png", "mimeType": "image/png", "sizes": ["48x48"], "theme": "dark"}],
    "_meta": {"k": 1},
}
BOXED = {
    "type": "object",
    "properties": {"result": {"type": "string"}},
    "required": ["result"],
    "$defs": {"X": {}},
}

# Each outcome with what all dialects say, what sets of fields some add, and where one says it otherwise.
CACHED, PRIVATE = {"ttlMs": 0, "cacheScope": "public"}, {"ttlMs": 0, "cacheScope": "private"}
OUTCOMES: list[tuple[str, Any, dict[str, Any], dict[str, Any]]] = [
    ("nothing", DONE, {}, {}),
    ("a text", Result("hi"), {"content": [{"type": "text", "text": "hi"}], "isError": False}, {}),
    ("no content", Result(), {"content": [], "isError": False}, {}),
    (
        "an object",
        Result("x", data={"a": 1}),
        {"content": [{"type": "text", "text": "x"}], "structuredContent": {"a": 1}, "isError": False},
        {},
    ),
    (
        "a failure with data",
        failure_result(Failure("no", data={"why": 1})),
        {"content": [{"type": "text", "text": "no"}], "structuredContent": {"why": 1}, "isError": True},
        {},
    ),
    (
        "a failure with content",
        failure_result(Failure("no", content=(Text("a"), Text("b")))),
        {"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "isError": True},
        {},
    ),
    (
        "a prompt",
        PromptResult((PromptMessage("user", Text("q")), PromptMessage("assistant", Text("a"))), "what"),
        {
            "description": "what",
            "messages": [
                {"role": "user", "content": {"type": "text", "text": "q"}},
                {"role": "assistant", "content": {"type": "text", "text": "a"}},
            ],
        },
        {},
    ),
    ("a prompt without a description", PromptResult(()), {"messages": []}, {}),
    (
        "a completion",
        Completion(("a",), 7, True),
        {"completion": {"values": ["a"], "total": 7, "hasMore": True}},
        {},
    ),
    ("values alone", Completion(("a",)), {"completion": {"values": ["a"]}}, {}),
    (
        "what was read",
        ReadResult((TextContents("u:1", "t", "text/plain"), BlobContents("u:2", "YQ=="))),
        {"contents": [{"uri": "u:1", "text": "t", "mimeType": "text/plain"}, {"uri": "u:2", "blob": "YQ=="}]},
        PRIVATE,
    ),
    (
        "what was read for everyone",
        ReadResult((), ttl_ms=5000, shared=True),
        {"contents": []},
        {"ttlMs": 5000, "cacheScope": "public"},
    ),
    ("tools", Page("tools", (FULL_TOOL,), "next"), {"tools": [FULL_TOOL_JSON], "nextCursor": "next"}, CACHED),
    (
        "resources",
        Page(
            "resources",
            (
                ResourceDefinition(
                    "u:", "r", size=3, annotations=Annotations(audience=("user",), priority=0.5)
                ),
            ),
        ),
        {
            "resources": [
                {"uri": "u:", "name": "r", "size": 3, "annotations": {"audience": ["user"], "priority": 0.5}}
            ]
        },
        CACHED,
    ),
    (
        "templates",
        Page("templates", (TemplateDefinition("u:{a}", "r", mime_type="x/y"),)),
        {"resourceTemplates": [{"uriTemplate": "u:{a}", "name": "r", "mimeType": "x/y"}]},
        CACHED,
    ),
    (
        "prompts",
        Page(
            "prompts",
            (PromptDefinition("p", arguments=(PromptArgument("a", required=True),)),),
            ttl_ms=9,
            shared=False,
        ),
        {"prompts": [{"name": "p", "arguments": [{"name": "a", "required": True}]}]},
        {"ttlMs": 9, "cacheScope": "private"},
    ),
]


@pytest.mark.parametrize(
    ("outcome", "common", "modern"), [pytest.param(*row[1:], id=row[0]) for row in OUTCOMES]
)
def test_outcomes(outcome: Any, common: dict[str, Any], modern: dict[str, Any]) -> None:
    assert result("legacy", outcome) == common
    assert result("draft", outcome) == {**common, "resultType": "complete"}
    assert result("modern", outcome) == {**common, **modern, "resultType": "complete", "_meta": META}


def test_the_meta_of_a_result_is_kept_beside_that_of_the_server() -> None:
    outcome = Result("x", meta={"mine": 1})
    assert result("legacy", outcome)["_meta"] == {"mine": 1}
    assert result("draft", outcome)["_meta"] == {"mine": 1}
    assert result("modern", outcome)["_meta"] == {**META, "mine": 1}


@pytest.mark.parametrize("value", ["text", 1, None, [1], True])
def test_values_that_are_no_objects_are_boxed_before_2026(value: Any) -> None:
    outcome: Result = Result("x", data=value)
    outcome.boxed = True
    assert result("legacy", outcome)["structuredContent"] == {"result": value}
    assert result("draft", outcome)["structuredContent"] == {"result": value}
    assert result("modern", outcome)["structuredContent"] == value


def test_schemas_of_values_that_are_no_objects_are_boxed_before_2026() -> None:
    page = Page("tools", (STRING_TOOL, OBJECT_TOOL))
    for name in ("legacy", "draft"):
        assert [tool["outputSchema"] for tool in result(name, page)["tools"]] == [BOXED, {"type": "object"}]
    schemas = [tool["outputSchema"] for tool in result("modern", page)["tools"]]
    assert schemas == [STRING_TOOL.output_schema, OBJECT_TOOL.output_schema]


def test_versions_without_structure_leave_out_the_schemas_of_results_and_nothing_else() -> None:
    older = dialects.negotiate("2025-03-26")
    for page in (Page("tools", (OBJECT_TOOL,), "next"), Page("prompts", (PromptDefinition("p"),), "next")):
        said = json.loads(older.response(Ping(), 7, page))["result"]
        expected = result("legacy", page)
        expected.get("tools", [{}])[0].pop("outputSchema", None)
        assert said == expected


@pytest.mark.parametrize(
    ("content", "data", "boxed"),
    [
        ('{"a":1,"b":[true]}', {"a": 1, "b": [True]}, False),
        ('{\n  "b": [true],\n  "a": 1.0\n}', {"a": 1.0, "b": [True]}, False),
        ("3", 3, True),
        ("3", {"result": 3}, False),
        ("Ada", "Ada", True),
        ("Ada", {"result": "Ada"}, False),
        ('"Ada"', {"result": "Ada"}, False),
        (["1", "2"], {"result": [1, 2]}, False),
        (['{"n": 1}', "two"], [{"n": 1}, "two"], True),
        (["Look:", '{"a": 1}'], {"a": 1}, False),
    ],
)
def test_versions_without_structure_do_not_repeat_data_that_the_text_says(
    content: Any, data: Any, boxed: bool
) -> None:
    outcome: Result = Result(content, data=data)
    outcome.boxed = boxed
    for version in ("2025-03-26", "2024-11-05"):
        said = json.loads(dialects.negotiate(version).response(Ping(), 7, outcome))["result"]
        texts = content if isinstance(content, list) else [content]
        assert said == {"content": [{"type": "text", "text": text} for text in texts], "isError": False}


@pytest.mark.parametrize(
    ("content", "data", "added"),
    [
        ("It is 20 degrees.", {"degrees": 20}, '{"degrees":20}'),
        ("20", {"degrees": 20}, '{"degrees":20}'),
        ("1", {"result": True}, '{"result":true}'),
        (["1", "2"], {"result": [1, 2, 3]}, '{"result":[1,2,3]}'),
        ([], {"result": []}, '{"result":[]}'),
        ("[" * 100_000, {"a": 1}, '{"a":1}'),
        ("\ud800", {"a": 1}, '{"a":1}'),
    ],
)
def test_versions_without_structure_get_data_that_the_text_does_not_say(
    content: Any, data: Any, added: str
) -> None:
    dialect = dialects.negotiate("2024-11-05")
    said = dialect.result(Ping(), Result(content, data=data))
    assert "structuredContent" not in said
    assert said["content"][-1].text == added


def test_who_the_server_is() -> None:
    outcome = Discovery(SERVER, ServerCapabilities(tools=True), "Use it.", ttl_ms=3)
    common = {"capabilities": {"tools": {}}, "instructions": "Use it."}
    for name, version in (("legacy", "2025-11-25"), ("draft", "DRAFT-2026-v1")):
        said = result(name, outcome)
        said.pop("resultType", None)
        assert said == {**common, "protocolVersion": version, "serverInfo": SERVER_JSON}
    assert result("modern", outcome) == {
        **common,
        "supportedVersions": list(VERSIONS.advertised),
        "ttlMs": 3,
        "cacheScope": "public",
        "resultType": "complete",
        "_meta": META,
    }


def test_the_end_of_a_subscription_names_it() -> None:
    assert result("modern", Listened("s")) == {"resultType": "complete", "_meta": {**META, SUBSCRIPTION: "s"}}


BLOCKS: list[tuple[Any, dict[str, Any]]] = [
    (Text("a", meta={"k": 1}), {"type": "text", "text": "a", "_meta": {"k": 1}}),
    (Image.of(b"a", "image/png"), {"type": "image", "data": "YQ==", "mimeType": "image/png"}),
    (Audio.of(b"a", "audio/wav"), {"type": "audio", "data": "YQ==", "mimeType": "audio/wav"}),
    (ResourceLink("u:", "n", size=1), {"type": "resource_link", "uri": "u:", "name": "n", "size": 1}),
    (EmbeddedResource(TextContents("u:", "t")), {"type": "resource", "resource": {"uri": "u:", "text": "t"}}),
]


@pytest.mark.parametrize(("block", "expected"), BLOCKS, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("name", BY_NAME)
def test_blocks_are_the_same_everywhere(name: str, block: Any, expected: dict[str, Any]) -> None:
    assert result(name, Result(block))["content"] == [expected]


NOTIFICATIONS: list[tuple[Any, str, dict[str, Any], bool]] = [
    (Progress("tok", 0.5), "progress", {"progressToken": "tok", "progress": 0.5}, False),
    (
        Progress(7, 1, 2, "half"),
        "progress",
        {"progressToken": 7, "progress": 1, "total": 2, "message": "half"},
        False,
    ),
    (Log("info", {"a": 1}), "message", {"level": "info", "data": {"a": 1}}, False),
    (Log("error", "x", "db"), "message", {"level": "error", "data": "x", "logger": "db"}, False),
    (ListChanged("tools"), "tools/list_changed", {}, True),
    (ListChanged("prompts"), "prompts/list_changed", {}, True),
    (ListChanged("resources"), "resources/list_changed", {}, True),
    (ResourceUpdated("u:"), "resources/updated", {"uri": "u:"}, True),
]


@pytest.mark.parametrize(("value", "method", "params", "subscribed"), NOTIFICATIONS, ids=repr)
def test_notifications(value: Any, method: str, params: dict[str, Any], subscribed: bool) -> None:
    for name in BY_NAME:
        tagged = {**params, "_meta": {SUBSCRIPTION: 9}} if subscribed and name == "modern" else params
        frame = json.loads(BY_NAME[name].notification(value, 9))
        assert frame == {"jsonrpc": "2.0", "method": f"notifications/{method}", "params": tagged}


def test_an_acknowledgement_repeats_what_is_listened_for() -> None:
    interests = SubscriptionFilter(tools_list_changed=True, resource_subscriptions=("u:",))
    assert json.loads(dialects["2026-07-28"].notification(Acknowledged(interests), 9))["params"] == {
        "notifications": {"toolsListChanged": True, "resourceSubscriptions": ["u:"]},
        "_meta": {SUBSCRIPTION: 9},
    }


# Each error with its code, and its status before and after its request was understood: 2026, then the others.
ERRORS: list[tuple[RequestError, int, tuple[int, int], tuple[int, int]]] = [
    (ParseError("m"), -32700, (400, 400), (400, 400)),
    (InvalidRequest("m"), -32600, (400, 200), (400, 200)),
    (MethodNotFound("m"), -32601, (404, 404), (200, 200)),
    (InvalidParams("m"), -32602, (400, 200), (200, 200)),
    (NotFound("m"), -32602, (400, 200), (200, 200)),
    (InternalError("m"), -32603, (500, 200), (200, 200)),
    (Busy("m"), -32603, (503, 503), (503, 503)),
    (HeaderMismatch("m"), -32020, (400, 400), (400, 400)),
    (MissingCapability("m"), -32021, (400, 400), (200, 200)),
    (UnsupportedVersion("m"), -32022, (400, 400), (400, 400)),
    (RequestError("m", code=-31000), -31000, (400, 200), (200, 200)),
]


@pytest.mark.parametrize(
    ("error", "code", "modern", "others"), ERRORS, ids=lambda value: type(value).__name__
)
def test_errors(error: RequestError, code: int, modern: tuple[int, int], others: tuple[int, int]) -> None:
    for name, dialect in BY_NAME.items():
        assert json.loads(dialect.error(7, error)) == {
            "jsonrpc": "2.0",
            "id": 7,
            "error": {"code": code, "message": "m"},
        }
        statuses = (dialect.status(error, understood=False), dialect.status(error, understood=True))
        assert statuses == (modern if name == "modern" else others)


def test_a_missing_resource_has_a_code_of_its_own_before_2026() -> None:
    error = ResourceNotFound("m", data={"uri": "u:"})
    codes = {name: json.loads(dialect.error(7, error))["error"]["code"] for name, dialect in BY_NAME.items()}
    assert codes == {"legacy": -32002, "draft": -32002, "modern": -32602}


def test_only_versions_that_have_event_ids_take_up_streams_and_survive_a_closed_connection() -> None:
    assert {name: dialect.resumable for name, dialect in BY_NAME.items()} == {
        "legacy": True,
        "draft": False,
        "modern": False,
    }
    assert {name: dialect.closing_cancels for name, dialect in BY_NAME.items()} == {
        "legacy": False,
        "draft": True,
        "modern": True,
    }
