"""Which dialect a request gets, and which methods that has: in tables."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import UNSET

from antiphon.errors import InvalidParams, MethodNotFound, UnsupportedVersion
from antiphon.model.identity import Implementation
from antiphon.model.request import (
    AnswerQuestion,
    CallTool,
    Complete,
    Discover,
    GetPrompt,
    Initialize,
    Listen,
    ListPrompts,
    ListResources,
    ListTemplates,
    ListTools,
    Ping,
    ReadResource,
    SetLogLevel,
    Subscribe,
    Unsubscribe,
)
from antiphon.wire import jsonrpc
from antiphon.wire.jsonrpc import Frame
from antiphon.wire.server.dialect import Dialect, Negotiated
from antiphon.wire.server.tasks import RELATED
from antiphon.wire.versions import VERSIONS, Dialects

MODERN, LEGACY, DRAFT = "2026-07-28", "2025-11-25", "DRAFT-2026-v1"
OLDER = ("2025-06-18", "2025-03-26", "2024-11-05")
VERSION = "io.modelcontextprotocol/protocolVersion"

dialects = Dialects(Implementation("tests", "1"))


def _frame(method: str, params: Any = UNSET) -> Frame:
    whole = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return jsonrpc.decode(json.dumps({key: value for key, value in whole.items() if value is not UNSET}))


def frame(method: str = "tools/list", meta: dict[str, Any] | None = None, **params: Any) -> Frame:
    return _frame(method, params if meta is None else {**params, "_meta": meta})


def session(version: str) -> Negotiated:
    return Negotiated(version)


CHOICES: list[tuple[str, Frame, str | None, Negotiated | None, str]] = [
    ("the header alone", frame(), MODERN, None, MODERN),
    ("the meta alone", frame(meta={VERSION: MODERN}), None, None, MODERN),
    ("both", frame(meta={VERSION: MODERN}), MODERN, None, MODERN),
    ("a header beats a session", frame(), MODERN, session(LEGACY), MODERN),
    ("the meta beats a session", frame(meta={VERSION: MODERN}), None, session(LEGACY), MODERN),
    ("a disagreement is for the check of the headers", frame(meta={VERSION: "x"}), MODERN, None, MODERN),
    ("the meta may name a version with sessions", frame(meta={VERSION: LEGACY}), None, None, LEGACY),
    ("nothing at all", frame(), None, None, DRAFT),
    ("no params at all", _frame("tools/list"), None, None, DRAFT),
    ("a session", frame(), None, session(LEGACY), LEGACY),
    ("a session and its header", frame(), LEGACY, session(LEGACY), LEGACY),
    ("a session decides over another header of its kind", frame(), "2025-03-26", session(LEGACY), LEGACY),
    ("a session of the draft", frame(), None, session(DRAFT), DRAFT),
    ("a legacy header without a session", frame(), LEGACY, None, LEGACY),
    ("initialize", frame("initialize", protocolVersion=LEGACY), None, None, LEGACY),
    ("initialize for the draft", frame("initialize", protocolVersion=DRAFT), None, None, DRAFT),
    (
        "initialize with a version nobody knows",
        frame("initialize", protocolVersion="1900"),
        None,
        None,
        LEGACY,
    ),
    (
        "initialize for one that has no sessions",
        frame("initialize", protocolVersion=MODERN),
        None,
        None,
        LEGACY,
    ),
    ("initialize without a version", frame("initialize"), None, None, LEGACY),
    (
        "initialize with a version that is no string",
        frame("initialize", protocolVersion=[1]),
        None,
        None,
        LEGACY,
    ),
    ("initialize under the modern header", frame("initialize", protocolVersion=LEGACY), MODERN, None, MODERN),
    *((f"a session of {older}", frame(), None, session(older), older) for older in OLDER),
    *(
        (f"initialize for {older}", frame("initialize", protocolVersion=older), None, None, older)
        for older in OLDER
    ),
]


def test_the_choice_of_a_dialect(subtests: pytest.Subtests) -> None:
    for name, given, header, negotiated, expected in CHOICES:
        with subtests.test(name):
            assert dialects.choose(given, header, negotiated).version == expected


@pytest.mark.parametrize(
    ("given", "header", "requested"),
    [
        (frame(), "1900-01-01", "1900-01-01"),
        (frame(), "", ""),
        (frame(meta={VERSION: "1900-01-01"}), None, "1900-01-01"),
        (frame(meta={VERSION: "1900-01-01"}), "1900-01-01", "1900-01-01"),
        (frame(meta={VERSION: "1900-01-01"}), LEGACY, "1900-01-01"),
        (frame(meta={VERSION: 7}), None, 7),
        (frame(meta={VERSION: {}}), None, {}),
    ],
)
def test_an_unknown_version_is_refused_with_the_known_ones(
    given: Frame, header: str | None, requested: Any
) -> None:
    with pytest.raises(UnsupportedVersion) as caught:
        dialects.choose(given, header, None)
    assert caught.value.code == -32022
    assert caught.value.status == 400
    assert caught.value.data == {"supported": list(VERSIONS.advertised), "requested": requested}


def test_the_newest_version_is_offered_first() -> None:
    assert (MODERN, LEGACY, *OLDER) == VERSIONS.advertised


EVERYWHERE: dict[str, tuple[type[Any], dict[str, Any]]] = {
    "tools/call": (CallTool, {"name": "t"}),
    "tools/list": (ListTools, {}),
    "resources/list": (ListResources, {}),
    "resources/templates/list": (ListTemplates, {}),
    "resources/read": (ReadResource, {"uri": "u:"}),
    "prompts/list": (ListPrompts, {}),
    "prompts/get": (GetPrompt, {"name": "p"}),
    "completion/complete": (
        Complete,
        {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": ""}},
    ),
}
SESSIONS_ONLY: dict[str, tuple[type[Any], dict[str, Any]]] = {
    "initialize": (
        Initialize,
        {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}},
    ),
    "ping": (Ping, {}),
    "logging/setLevel": (SetLogLevel, {"level": "info"}),
    "resources/subscribe": (Subscribe, {"uri": "u:"}),
    "resources/unsubscribe": (Unsubscribe, {"uri": "u:"}),
}
MODERN_ONLY: dict[str, tuple[type[Any], dict[str, Any]]] = {
    "server/discover": (Discover, {}),
    "subscriptions/listen": (Listen, {"notifications": {}}),
}
NOWHERE = ["", "unknown/method", "notifications/initialized", "tools/none", "roots/list", "TOOLS/LIST"]

LEGACY_DIALECTS: list[Dialect] = [dialects.negotiate(version) for version in (LEGACY, *OLDER, DRAFT)]
EVERY_DIALECT = [dialects["2026-07-28"], *LEGACY_DIALECTS]


def test_which_version_has_which_method(subtests: pytest.Subtests) -> None:
    for dialect in EVERY_DIALECT:
        own, others = SESSIONS_ONLY, MODERN_ONLY
        if dialect.version == MODERN:
            own, others = others, own
        for method, (kind, params) in {**EVERYWHERE, **own}.items():
            with subtests.test(method, version=dialect.version):
                assert type(dialect.parse(frame(method, **params))) is kind
        for method in [*others, *NOWHERE]:
            with subtests.test(method, version=dialect.version):
                with pytest.raises(MethodNotFound) as caught:
                    dialect.parse(frame(method, **others.get(method, (None, {}))[1]))
                assert (caught.value.code, caught.value.status) == (-32601, 404)


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", UNSET),
        ("tools/call", {}),
        ("tools/call", {"name": 1}),
        ("tools/call", {"name": "t", "arguments": []}),
        ("tools/call", {"name": "t", "arguments": None}),
        ("tools/list", {"cursor": 7}),
        ("resources/read", {}),
        ("resources/read", {"uri": {}}),
        ("prompts/get", {"name": "p", "arguments": {"a": 1}}),
        ("completion/complete", {}),
        ("completion/complete", {"ref": {"type": "ref/x"}, "argument": {"name": "a", "value": ""}}),
        ("completion/complete", {"ref": {"type": "ref/prompt", "name": "p"}, "argument": "a"}),
    ],
    ids=repr,
)
def test_params_of_the_wrong_shape_are_invalid(method: str, params: Any, subtests: pytest.Subtests) -> None:
    for dialect in EVERY_DIALECT:
        with subtests.test(version=dialect.version):
            with pytest.raises(InvalidParams) as caught:
                dialect.parse(_frame(method, params))
            assert method in caught.value.message


def test_arguments_may_be_missing() -> None:
    assert dialects["DRAFT-2026-v1"].parse(frame("tools/call", name="t")).arguments == {}


def test_a_response_answers_a_task_only_where_it_names_one() -> None:
    def answered(**fields: Any) -> Any:
        return dialects["DRAFT-2026-v1"].answered(
            jsonrpc.decode(json.dumps({"jsonrpc": "2.0", "id": 1, **fields}))
        )

    named = {RELATED: {"taskId": "t1"}}
    expected = AnswerQuestion("t1", {"action": "accept"})
    assert answered(result={"action": "accept", "_meta": named}) == expected
    assert answered(result={"action": "accept"}, _meta=named) == expected
    for nameless in (None, {}, {RELATED: "t1"}, {RELATED: {"taskId": 1}}):
        assert answered(result={"action": "accept", "_meta": nameless}) is None
    assert answered(result=["accept"], _meta=named) is None
    assert answered(error={"code": 1, "message": "No."}, _meta=named) is None
