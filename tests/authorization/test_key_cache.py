"""The keys of an issuer: how often they are fetched, and what happens while the issuer is unavailable."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import pytest

from antiphon import IssuedTokens, Unauthorized
from antiphon.authorization import key_cache, token_cache
from antiphon.errors import Busy
from tests.support.issuer import RESOURCE, TestIssuer, identify, is_cached, issuing, new_key
from tests.support.polling import until


async def refused(tokens: IssuedTokens, token: str) -> None:
    with pytest.raises(Unauthorized):
        await identify(tokens, token)


async def is_refused(tokens: IssuedTokens, token: str) -> bool:
    try:
        await identify(tokens, token)
    except Unauthorized:
        return True
    return False


async def test_a_thousand_invented_key_ids_cost_one_fetch(issuer: TestIssuer) -> None:
    tokens = IssuedTokens(issuer.url, resource=RESOURCE)
    await identify(tokens, issuer.token())
    assert issuer.requests["/jwks"] == 1
    key = new_key("invented")
    invented = [issuer.token(key=key, header={"kid": f"invented-{number}"}) for number in range(1000)]
    # The keys were fetched a moment ago, so the cooldown counts.
    await asyncio.gather(*(refused(tokens, token) for token in invented))
    assert issuer.requests["/jwks"] == 1
    fresh = IssuedTokens(issuer.url, resource=RESOURCE)
    await asyncio.gather(*(refused(fresh, token) for token in invented))
    assert issuer.requests["/jwks"] == 2


async def test_a_new_key_is_fetched_after_the_cooldown(issuer: TestIssuer) -> None:
    tokens = IssuedTokens(issuer.url, resource=RESOURCE, key_cooldown=0)
    await identify(tokens, issuer.token())
    issuer.keys = [new_key("second")]
    await identify(tokens, issuer.token())
    assert issuer.requests["/jwks"] == 2
    assert issuer.requests["/.well-known/openid-configuration"] == 1


async def test_a_key_that_the_issuer_withdrew_is_not_accepted_any_more(
    issuer: TestIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_cache, "REFRESH_AFTER_SECONDS", 0.0)
    tokens = IssuedTokens(issuer.url, resource=RESOURCE, key_cooldown=0, cache_seconds=0)
    withdrawn = issuer.token()
    await identify(tokens, withdrawn)
    issuer.keys = [new_key("second")]
    # Old keys are used while new ones are fetched in the background.
    await identify(tokens, withdrawn)
    await until(lambda: is_refused(tokens, withdrawn))
    assert issuer.requests["/jwks"] >= 2


async def test_keys_that_were_not_checked_for_long_are_fetched_before_a_token_is_accepted(
    issuer: TestIssuer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="antiphon")
    monkeypatch.setattr(key_cache, "REFRESH_AFTER_SECONDS", 0.0)
    monkeypatch.setattr(key_cache, "MAX_UNCHECKED_SECONDS", 0.0)
    tokens = IssuedTokens(issuer.url, resource=RESOURCE, key_cooldown=0, cache_seconds=0)
    withdrawn = issuer.token()
    await identify(tokens, withdrawn)
    issuer.is_away = True
    await identify(tokens, withdrawn)  # the keys at hand are used while the issuer is unavailable
    issuer.is_away = False
    await identify(tokens, withdrawn)
    await until(lambda: "responds again" in caplog.text)
    issuer.keys = [new_key("second")]
    await refused(tokens, withdrawn)


async def test_an_issuer_that_is_away_does_not_stop_the_server(
    issuer: TestIssuer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tokens = IssuedTokens(issuer.url, resource=RESOURCE, key_cooldown=0, cache_seconds=0)
    await identify(tokens, issuer.token())
    monkeypatch.setattr(key_cache, "REFRESH_AFTER_SECONDS", 0.0)
    issuer.is_away = True

    async def asks() -> bool:
        """Verify a token with the keys at hand, while others are fetched in vain."""
        await identify(tokens, issuer.token())
        return issuer.requests.total() > before

    for _ in range(5):
        before = issuer.requests.total()
        await until(asks)
    await refused(tokens, issuer.token(key=new_key("invented")))
    assert caplog.text.count("Cannot fetch the keys of the issuer") == 1
    issuer.is_away = False
    issuer.keys = [new_key("second")]

    async def is_accepted() -> bool:
        return not await is_refused(tokens, issuer.token())

    await until(is_accepted)


async def test_without_any_keys_the_caller_should_try_again(
    issuer: TestIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_cache, "FIRST_RETRY_SECONDS", 0.0)
    tokens = IssuedTokens(issuer.url, resource=RESOURCE)
    issuer.is_away = True
    with pytest.raises(Busy) as raised:
        await identify(tokens, issuer.token())
    assert (raised.value.status, dict(raised.value.headers)) == (503, {"retry-after": "5"})
    issuer.is_away = False
    await identify(tokens, issuer.token())


async def test_keys_that_are_too_old_are_not_used(
    issuer: TestIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = IssuedTokens(issuer.url, resource=RESOURCE, key_cooldown=0, cache_seconds=0)
    await identify(tokens, issuer.token())
    monkeypatch.setattr(key_cache, "MAX_AGE_SECONDS", 0.0)
    issuer.is_away = True
    with pytest.raises(Busy):
        await identify(tokens, issuer.token())


async def test_the_metadata_of_another_issuer_is_not_used(issuer: TestIssuer) -> None:
    issuer.metadata["issuer"] = f"{issuer.url}/"
    tokens = IssuedTokens(issuer.url, resource=RESOURCE)
    with pytest.raises(Busy):
        await identify(tokens, issuer.token())
    assert issuer.requests["/jwks"] == 0


async def test_an_issuer_may_have_a_path() -> None:
    async with issuing("/tenant") as issuer:
        await identify(IssuedTokens(issuer.url, resource=RESOURCE), issuer.token())
        tried = [path for path in issuer.requests if "well-known" in path]
        assert tried == [
            "/.well-known/oauth-authorization-server/tenant",
            "/.well-known/openid-configuration/tenant",
            "/tenant/.well-known/openid-configuration",
        ]


@pytest.mark.parametrize("where", ["http://issuer.example.com/jwks", "file:///etc/passwd", 7, None])
async def test_keys_are_fetched_from_https_or_loopback_addresses_only(
    issuer: TestIssuer, where: object
) -> None:
    issuer.metadata["jwks_uri"] = where
    with pytest.raises(Busy):
        await identify(IssuedTokens(issuer.url, resource=RESOURCE), issuer.token())


async def test_a_verified_token_is_cached_for_a_while_and_never_beyond_its_expiry(
    issuer: TestIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = IssuedTokens(issuer.url, resource=RESOURCE, cache_seconds=60, max_cached_tokens=2, leeway=0)
    claims = issuer.claims()
    token, now = issuer.token(exp=claims["iat"] + 40), float(claims["iat"])
    monkeypatch.setattr("time.time", lambda: now)
    first = await identify(tokens, token)
    assert is_cached(tokens, token)
    assert await identify(tokens, token) is first
    now += 41
    await refused(tokens, token)
    await check_that_two_are_cached(tokens, [issuer.token(sub=f"user-{number}") for number in range(5)])


async def check_that_two_are_cached(tokens: IssuedTokens, several: Sequence[str]) -> None:
    """Verify tokens twice, and check that the last two of them are cached."""
    for token in several:
        for _ in range(2):
            await identify(tokens, token)
    assert [is_cached(tokens, token) for token in several] == [False] * (len(several) - 2) + [True] * 2


async def test_the_cache_of_tokens_is_bounded_by_their_length_too(
    issuer: TestIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_cache, "MAX_CHARACTERS", 20_000)
    tokens = IssuedTokens(issuer.url, resource=RESOURCE)
    long = [issuer.token(sub=f"user-{number}", note="x" * 6000) for number in range(10)]
    await check_that_two_are_cached(tokens, long)
