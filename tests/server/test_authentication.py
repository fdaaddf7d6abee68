"""Authentication of callers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from antiphon import BearerTokens, Context, DefinitionError, Forbidden, Principal, Server, Unauthorized
from antiphon.model.identity import problem_of
from tests.support import http
from tests.support.polling import turns
from tests.support.serving import serving
from tests.support.speakers import DIALECTS, JSON, Bare, Modern, Session, Speaker, speaker

PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'


def build(authenticate: Any) -> Server:
    server = Server("tests", authenticate=authenticate)

    @server.tool
    async def who(ctx: Context) -> str:
        return f"{ctx.principal.id} {sorted(ctx.principal.scopes)} {dict(ctx.principal.claims)}"

    return server


def test_any_other_text_is_an_id() -> None:
    for id in ("ada", "ä", "\U0001f600", "a b", "7"):
        assert problem_of(Principal(id)) is None


def of_header(headers: Mapping[str, str]) -> Principal | None:
    name = headers.get("x-user")
    return None if name is None else Principal(name, frozenset({"read"}), {"age": 7})


async def of_header_later(headers: Mapping[str, str]) -> Principal | None:
    await turns()
    return of_header(headers)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("authenticate", [of_header, of_header_later])
async def test_the_principal_reaches_the_tool(dialect: str, authenticate: Callable[..., Any]) -> None:
    async with serving(build(authenticate)) as where:
        asker = await speaker(dialect, where.port, headers={"X-User": "ada"})
        assert (await asker.call("who")).text == "ada ['read'] {'age': 7}"


@pytest.mark.parametrize("authenticate", [of_header, of_header_later])
@pytest.mark.parametrize("asker", [Modern, Bare])
async def test_a_request_without_credentials_is_refused(
    asker: type[Any], authenticate: Callable[..., Any]
) -> None:
    async with serving(build(authenticate)) as where:
        response = await asker(where.port).call("who")
        assert (response.status, response.error["code"]) == (401, -32600)
        assert response.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
async def test_every_http_method_is_authenticated(method: str) -> None:
    async with serving(build(of_header)) as where:
        session = Session(where.port, headers={"x-user": "ada"})
        await session.open()
        del session.headers["x-user"]
        response = await http.request(where.port, method, session.headers, PING if method == "POST" else b"")
        assert response.status == 401


@pytest.mark.parametrize(
    ("refusal", "status", "challenge"),
    [
        (Unauthorized("say who you are", challenge='Bearer realm="x"'), 401, 'Bearer realm="x"'),
        (Forbidden("not you"), 403, None),
    ],
)
async def test_a_refusal_can_have_a_reason(refusal: Exception, status: int, challenge: str | None) -> None:
    def refuse(headers: Mapping[str, str]) -> Principal:
        raise refusal

    async with serving(build(refuse)) as where:
        response = await Modern(where.port).call("who")
        assert (response.status, response.error["message"]) == (status, str(refusal))
        assert response.headers.get("www-authenticate") == challenge


@pytest.mark.parametrize("dialect", [Bare, Modern])
async def test_what_a_function_forbids_is_shown_to_the_caller(dialect: type[Speaker]) -> None:
    server = build(None)

    @server.tool
    async def purge() -> str:
        raise Forbidden("This needs the scope admin.")

    @server.resource("u://secret")
    async def secret() -> str:
        raise Forbidden("This needs the scope admin.")

    async with serving(server) as where:
        client = dialect(where.port)
        failed = await client.call("purge")
        assert (failed.status, failed.result["isError"]) == (200, True)
        assert failed.text == "This needs the scope admin."
        refused = await client.ask("resources/read", {"uri": "u://secret"})
        assert (refused.status, refused.error["message"]) == (200, "This needs the scope admin.")


@pytest.mark.parametrize(
    "raised",
    [ValueError("s3cret"), SystemExit("s3cret"), KeyboardInterrupt("s3cret"), GeneratorExit("s3cret")],
)
async def test_an_exception_in_authenticate_refuses_the_request_and_leaks_nothing(
    raised: BaseException,
) -> None:
    def broken(headers: Mapping[str, str]) -> Principal:
        raise raised

    async with serving(build(broken)) as where:
        response = await http.request(where.port, "POST", JSON, PING)
        assert response.status == 500
        assert b"s3cret" not in response.body
        assert response.error["code"] == -32603


TOKENS = {"a-token": "alice", "b-token": Principal("bob", frozenset({"admin"}))}


@pytest.mark.parametrize(
    ("authorization", "expected"),
    [
        ("Bearer a-token", "alice [] {}"),
        ("bearer a-token", "alice [] {}"),
        ("Bearer   b-token ", "bob ['admin'] {}"),
    ],
)
async def test_known_bearer_tokens_are_accepted(authorization: str, expected: str) -> None:
    async with serving(build(BearerTokens(TOKENS))) as where:
        assert (
            await Modern(where.port, headers={"authorization": authorization}).call("who")
        ).text == expected


@pytest.mark.parametrize(
    ("authorization", "challenge"),
    [
        (None, 'Bearer realm="mcp"'),
        ("", 'Bearer realm="mcp"'),
        ("Bearer", 'Bearer realm="mcp"'),
        ("Bearer ", 'Bearer realm="mcp"'),
        ("Basic a-token", 'Bearer realm="mcp"'),
        ("Bearer wrong", 'Bearer realm="mcp", error="invalid_token"'),
        ("Bearer a-toke", 'Bearer realm="mcp", error="invalid_token"'),
        ("Bearer a-token2", 'Bearer realm="mcp", error="invalid_token"'),
        ("Bearer é", 'Bearer realm="mcp", error="invalid_token"'),
    ],
)
async def test_unknown_bearer_tokens_are_refused(authorization: str | None, challenge: str) -> None:
    async with serving(build(BearerTokens(TOKENS))) as where:
        headers = {} if authorization is None else {"authorization": authorization}
        response = await Modern(where.port, headers=headers).call("who")
        assert (response.status, response.headers["www-authenticate"]) == (401, challenge)


async def test_a_request_is_authenticated_before_its_body_is_read() -> None:
    async with serving(build(of_header)) as where, http.connect(where.port) as connection:
        await connection.write(http.head("POST", "/mcp", JSON, 1000) + b"{")
        assert (await connection.receive()).status == 401


async def test_without_authentication_callers_are_anonymous() -> None:
    async with serving(build(None)) as where:
        assert (await Modern(where.port).call("who")).text == " [] {}"


async def test_the_engine_of_a_server_without_authentication_returns_anonymous() -> None:
    server = build(None)
    assert not server.engine.authenticates
    assert await server.engine.identify({"x-user": "ada"}) == Principal("")


MISTAKES: dict[str, Any] = {
    "false": False,
    "true": True,
    "zero": 0,
    "an empty string": "",
    "a name": "ada",
    "bytes": b"ada",
    "an empty dict": {},
    "claims": {"sub": "ada"},
    "the class": Principal,
    "no id": Principal(None),  # type: ignore[arg-type]
    "an empty id": Principal(""),
    "a number as id": Principal(7),  # type: ignore[arg-type]
    "a NUL in the id": Principal("ada\0bob"),
    "a lone surrogate in the id": Principal("ada\ud800"),
    "both in the id": Principal("é\0"),
    "bytes as id": Principal(b"ada"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("asynchronous", [False, True], ids=["plain", "async"])
@pytest.mark.parametrize("given", MISTAKES.values(), ids=MISTAKES)
async def test_anything_but_a_principal_with_an_id_is_refused_and_logged_once(
    given: Any, asynchronous: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def later(headers: Mapping[str, str]) -> Any:
        return given

    async with serving(build(later if asynchronous else lambda headers: given)) as where:
        for asker in (Modern(where.port), Bare(where.port), Modern(where.port)):
            response = await asker.call("who")
            assert (response.status, response.error["code"]) == (401, -32600)
            assert response.headers["www-authenticate"] == "Bearer"
        assert (await http.request(where.port, "GET", {**JSON, "mcp-session-id": "x"})).status == 401
    logged = [record for record in caplog.records if "authenticate function" in record.message]
    assert [record.levelname for record in logged] == ["ERROR"]
    assert "Return a Principal whose id is a non-empty string" in logged[0].message


async def test_a_function_that_returns_none_refuses_without_a_line_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving(build(lambda headers: None)) as where:
        assert (await Modern(where.port).call("who")).status == 401
    assert not [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]


@pytest.mark.parametrize("caller", ["", None, Principal("")])
def test_a_bearer_token_needs_a_caller_with_an_id(caller: Any) -> None:
    with pytest.raises(DefinitionError, match=r"Token 2 of BearerTokens .* Give the caller an id\."):
        BearerTokens({"a-token": "alice", "s3cret": caller})
