"""Opaque tokens: the issuer says what they are."""

from __future__ import annotations

import asyncio
import base64
import time
from typing import Any

import pytest

from antiphon import DefinitionError, IssuedTokens, Issuer, Principal, Unauthorized
from antiphon.authorization import introspection
from antiphon.errors import Busy
from tests.support.issuer import RESOURCE, TestIssuer, identify


def introspecting(issuer: TestIssuer, **options: Any) -> IssuedTokens:
    asked = Issuer(issuer.url, client_id="notes server", client_secret="a:b%c")
    return IssuedTokens(asked, resource=RESOURCE, **options)


def active(**changes: Any) -> dict[str, Any]:
    claims = {"active": True, "sub": "ada", "aud": RESOURCE, "exp": int(time.time()) + 600, "scope": "a b"}
    return {name: value for name, value in {**claims, **changes}.items() if value is not None}


async def test_an_active_token_is_accepted_and_asked_about_once(issuer: TestIssuer) -> None:
    issuer.active["opaque"] = active()
    tokens = introspecting(issuer)
    found = await asyncio.gather(*(identify(tokens, "opaque") for _ in range(20)))
    assert {principal.id for principal in found} == {f"{issuer.url}#ada"}
    assert found[0].scopes == {"a", "b"}
    assert issuer.requests["/introspect"] == 1
    expected = base64.b64encode(b"notes%20server:a%3Ab%25c").decode()
    assert issuer.credentials == [f"Basic {expected}"]


@pytest.mark.parametrize(
    "changes",
    [
        {"active": False},
        {"active": "true"},
        {"aud": None},
        {"aud": "https://other.example.com"},
        {"exp": None},
        {"exp": 1},
        {"nbf": 1e11},
        {"iss": "https://other.example.com"},
        {"sub": None},
    ],
)
async def test_the_claims_of_an_opaque_token_are_required_too(
    issuer: TestIssuer, changes: dict[str, Any]
) -> None:
    issuer.active["opaque"] = active(**changes)
    with pytest.raises(Unauthorized):
        await identify(introspecting(issuer), "opaque")


async def test_an_inactive_token_is_not_asked_about_again_at_once(issuer: TestIssuer) -> None:
    tokens = introspecting(issuer)
    for _ in range(5):
        with pytest.raises(Unauthorized):
            await identify(tokens, "unknown")
    assert issuer.requests["/introspect"] == 1


async def test_so_many_inactive_tokens_are_remembered(
    issuer: TestIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(introspection, "MAX_INACTIVE", 2)
    tokens = introspecting(issuer)
    for token in ("first", "second", "third", "third", "second", "first"):
        with pytest.raises(Unauthorized):
            await identify(tokens, token)
    assert issuer.requests["/introspect"] == 4, "the first one was forgotten, and is asked about again"


async def test_a_revoked_token_is_noticed_after_the_cache(issuer: TestIssuer) -> None:
    issuer.active["opaque"] = active()
    tokens = introspecting(issuer, cache_seconds=0)
    await identify(tokens, "opaque")
    del issuer.active["opaque"]
    with pytest.raises(Unauthorized):
        await identify(tokens, "opaque")


async def test_an_issuer_that_is_away_is_not_the_fault_of_the_token(
    issuer: TestIssuer, caplog: pytest.LogCaptureFixture
) -> None:
    issuer.is_away = True
    tokens = introspecting(issuer)
    for _ in range(3):
        with pytest.raises(Busy):
            await identify(tokens, "opaque-s3cret")
    assert caplog.text.count("Cannot introspect tokens") == 1
    assert "s3cret" not in caplog.text
    assert "a:b" not in caplog.text


async def test_jwts_are_verified_without_introspection(issuer: TestIssuer) -> None:
    await identify(introspecting(issuer), issuer.token())
    assert issuer.requests["/introspect"] == 0


def test_a_token_is_not_sent_to_several_issuers() -> None:
    asked = [Issuer(f"https://{name}.example.com", client_id="x", client_secret="y") for name in "ab"]
    with pytest.raises(DefinitionError, match="only one issuer can introspect"):
        IssuedTokens(asked, resource=RESOURCE)


def test_the_secret_is_not_shown() -> None:
    assert "s3cret" not in repr(Issuer("https://id.example.com", client_id="x", client_secret="s3cret"))


async def test_invented_tokens_delay_a_valid_one_and_do_not_stop_it(
    issuer: TestIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(introspection, "MAX_REQUESTS", 2)
    monkeypatch.setattr(introspection, "MAX_WAITING", 20)
    tokens = introspecting(issuer)
    issuer.active["valid"] = active()
    invented = [identify(tokens, f"invented-{number}") for number in range(20)]
    found = await asyncio.gather(*invented, identify(tokens, "valid"), return_exceptions=True)
    assert all(isinstance(each, Unauthorized) for each in found[:-1])
    assert isinstance(found[-1], Principal)
    many = [identify(tokens, f"other-{number}") for number in range(23)]
    refused = await asyncio.gather(*many, return_exceptions=True)
    assert [type(each) for each in refused] == [*[Unauthorized] * 22, Busy]
