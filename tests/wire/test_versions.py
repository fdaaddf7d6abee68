"""Which dialect a request gets, and which methods that has: in tables."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import UNSET

from antiphon.errors import InvalidParams, MethodNotFound, UnsupportedVersion
from antiphon.model.identity import Implementation
from antiphon.model.request import AnswerQuestion
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


@pytest.mark.parametrize(
    ("given", "header", "negotiated", "expected"),
    [pytest.param(*choice[1:], id=choice[0]) for choice in CHOICES],
)
def test_the_choice_of_a_dialect(
    given: Frame, header: str | None, negotiated: Negotiated | None, expected: str
) -> None:
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


EVERYWHERE = {
    "tools/call": {"name": "t"},
    "tools/list": {},
    "resources/list": {},
    "resources/templates/list": {},
    "resources/read": {"uri": "u:"},
    "prompts/list": {},
    "prompts/get": {"name": "p"},
    "completion/complete": {
        "ref": {"type": "ref/prompt", "name": "p"},
        "argument": {"name": "a", "value": ""},
    },
}
SESSIONS_ONLY = {
    "initialize": {
        "protocolVersion": LEGACY,
        "capabilities": {},
        "clientInfo": {"name": "c", "version": "1"},
    },
    "ping": {},
    "logging/setLevel": {"level": "info"},
    "resources/subscribe": {"uri": "u:"},
    "resources/unsubscribe": {"uri": "u:"},
}
MODERN_ONLY = {"server/discover": {}, "subscriptions/listen": {"notifications": {}}}
NOWHERE = ["", "unknown/method", "notifications/initialized", "tools/none", "roots/list", "TOOLS/LIST"]

LEGACY_DIALECTS: list[Dialect] = [dialects.negotiate(version) for version in (LEGACY, *OLDER, DRAFT)]
EVERY_DIALECT = [dialects["2026-07-28"], *LEGACY_DIALECTS]
GATE = [
    *((dialect, method, params, True) for dialect in EVERY_DIALECT for method, params in EVERYWHERE.items()),
    *(
        (dialect, method, params, True)
        for dialect in LEGACY_DIALECTS
        for method, params in SESSIONS_ONLY.items()
    ),
    *((dialects["2026-07-28"], method, params, False) for method, params in SESSIONS_ONLY.items()),
    *((dialects["2026-07-28"], method, params, True) for method, params in MODERN_ONLY.items()),
    *(
        (dialect, method, params, False)
        for dialect in LEGACY_DIALECTS
        for method, params in MODERN_ONLY.items()
    ),
    *((dialect, method, {}, False) for dialect in EVERY_DIALECT for method in NOWHERE),
]


@pytest.mark.parametrize(
    ("dialect", "method", "params", "exists"),
    [pytest.param(*row, id=f"{row[0].version}-{row[1]}") for row in GATE],
)
def test_which_version_has_which_method(
    dialect: Dialect, method: str, params: dict[str, Any], exists: bool
) -> None:
    if exists:
        assert type(dialect.parse(frame(method, **params))) is dialect.methods[method]
    else:
        with pytest.raises(MethodNotFound) as caught:
            dialect.parse(frame(method, **params))
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
@pytest.mark.parametrize("dialect", EVERY_DIALECT, ids=lambda dialect: dialect.version)
def test_params_of_the_wrong_shape_are_invalid(dialect: Dialect, method: str, params: Any) -> None:
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
