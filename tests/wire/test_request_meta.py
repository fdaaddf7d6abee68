"""What a request says besides its parameters, and the headers that must say it too."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import UNSET

from antiphon.errors import HeaderMismatch, InvalidParams
from antiphon.model.identity import Implementation
from antiphon.model.request import RequestMeta
from antiphon.wire import jsonrpc
from antiphon.wire.jsonrpc import Frame
from antiphon.wire.server.dialect import Dialect, Negotiated
from antiphon.wire.versions import Dialects

KEY = "io.modelcontextprotocol/"
META = {KEY + "protocolVersion": "2026-07-28", KEY + "clientCapabilities": {"sampling": {}}}
dialects = Dialects(Implementation("tests", "1"))
modern, draft, legacy = dialects["2026-07-28"], dialects["DRAFT-2026-v1"], dialects.negotiate("2025-11-25")


def frame(method: str = "tools/list", params: Any = UNSET, meta: Any = None) -> Frame:
    if meta is not None:
        params = {**({} if params is UNSET else params), "_meta": meta}
    whole = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return jsonrpc.decode(json.dumps({key: value for key, value in whole.items() if value is not UNSET}))


def check(dialect: Dialect, frame: Frame, headers: dict[bytes, bytes]) -> None:
    request_meta = dialect.request_meta(frame, None)
    dialect.check_headers(frame, request_meta, headers)
    dialect.check_name(frame, dialect.parse(frame), headers)


def test_2026_reads_its_terms_from_every_request() -> None:
    meta = {
        **META,
        KEY + "clientInfo": {"name": "c", "version": "2", "title": "C"},
        KEY + "logLevel": "error",
        "progressToken": "p",
        "mine": 1,
    }
    assert modern.request_meta(frame(meta=meta), None) == RequestMeta(
        client=Implementation("c", "2", title="C"),
        capabilities={"sampling": {}},
        log_level="error",
        progress_token="p",
        inlines_results=True,
        keys_are_unique=True,
        raw=meta,
    )


def test_2026_needs_no_client_info_and_hears_no_log_without_a_level() -> None:
    request_meta = modern.request_meta(frame(meta=META), None)
    assert (request_meta.client, request_meta.log_level, request_meta.progress_token) == (None, None, None)


def test_2026_keeps_the_terms_that_a_client_repeats_but_not_those_of_every_client_there_ever_was() -> None:
    modern = Dialects(Implementation("tests", "1"))["2026-07-28"]
    first = modern.request_meta(frame(meta=META), None)
    assert modern.request_meta(frame(meta=META), None) is first
    for number in range(1000):
        assert modern.request_meta(frame(meta={**META, "number": number}), None).raw["number"] == number
    again = modern.request_meta(frame(meta=META), None)
    assert again is not first
    assert again == first


@pytest.mark.parametrize(
    "meta",
    [
        None,
        {},
        {KEY + "clientCapabilities": {}},
        {KEY + "protocolVersion": "2026-07-28"},
        {**META, KEY + "clientCapabilities": []},
        {**META, KEY + "clientCapabilities": None},
        {**META, KEY + "logLevel": "loud"},
        {**META, KEY + "logLevel": 3},
        {**META, KEY + "logLevel": ["info"]},
        {**META, KEY + "clientInfo": {"name": "c"}},
        {**META, KEY + "clientInfo": "c"},
    ],
    ids=repr,
)
def test_2026_refuses_terms_that_are_missing_or_wrong(meta: Any) -> None:
    with pytest.raises(InvalidParams):
        modern.request_meta(frame(meta=meta), None)


@pytest.mark.parametrize("token", ["a", "", 0, 7])
@pytest.mark.parametrize("dialect", [modern, draft, legacy], ids=lambda dialect: dialect.version)
def test_a_progress_token_keeps_its_type(dialect: Any, token: Any) -> None:
    found = dialect.request_meta(frame(meta={**META, "progressToken": token}), None).progress_token
    assert found == token
    assert type(found) is type(token)


@pytest.mark.parametrize("token", [None, 1.5, [], {}])
@pytest.mark.parametrize("dialect", [modern, draft, legacy], ids=lambda dialect: dialect.version)
def test_a_progress_token_of_another_type_is_none(dialect: Any, token: Any) -> None:
    assert dialect.request_meta(frame(meta={**META, "progressToken": token}), None).progress_token is None


def test_a_session_said_who_it_is_when_it_began() -> None:
    negotiated = Negotiated("2025-11-25", {"roots": {}}, Implementation("c", "2"))
    for dialect in (legacy, draft):
        request_meta = dialect.request_meta(frame(meta={"mine": 1}), negotiated)
        assert (request_meta.client, request_meta.capabilities, request_meta.log_level) == (
            Implementation("c", "2"),
            {"roots": {}},
            "debug",
        )
        assert request_meta.raw == {"mine": 1}


def test_a_bare_request_hears_no_log() -> None:
    assert draft.request_meta(frame(), None).log_level is None


AGREEING = {b"mcp-protocol-version": b"2026-07-28", b"mcp-method": b"tools/call", b"mcp-name": b"t"}
CALL = frame("tools/call", {"name": "t"}, META)


def test_headers_that_agree_pass() -> None:
    check(modern, CALL, AGREEING)


def test_headers_may_be_padded_and_in_base64() -> None:
    check(modern, CALL, {**AGREEING, b"mcp-name": b"  t \t"})
    check(modern, CALL, {**AGREEING, b"mcp-name": b"=?base64?dA==?="})


@pytest.mark.parametrize("name", AGREEING, ids=repr)
@pytest.mark.parametrize("value", [None, b"", b"wrong", b"TOOLS/CALL", b"\xff", b"=?base64?!?="])
def test_headers_that_are_missing_or_differ_are_refused(name: bytes, value: bytes | None) -> None:
    headers = {key: given for key, given in {**AGREEING, name: value}.items() if given is not None}
    with pytest.raises(HeaderMismatch) as caught:
        check(modern, CALL, headers)
    assert caught.value.code == -32020


@pytest.mark.parametrize(
    ("method", "params", "name"),
    [("prompts/get", {"name": "p"}, b"p"), ("resources/read", {"uri": "u:%20x"}, b"u:%20x")],
)
def test_prompts_and_resources_have_their_name_in_a_header_too(method: str, params: Any, name: bytes) -> None:
    headers = {**AGREEING, b"mcp-method": method.encode(), b"mcp-name": name}
    check(modern, frame(method, params, META), headers)
    del headers[b"mcp-name"]
    with pytest.raises(HeaderMismatch):
        check(modern, frame(method, params, META), headers)


def test_lists_need_no_name() -> None:
    headers = {b"mcp-protocol-version": b"2026-07-28", b"mcp-method": b"tools/list"}
    check(modern, frame("tools/list", meta=META), headers)


def test_versions_with_sessions_ask_for_no_such_headers() -> None:
    check(legacy, CALL, {})
    check(draft, CALL, {})
