"""Access tokens: whatever is sent, a caller is who the issuer said it is, or is refused."""

from __future__ import annotations

import asyncio
import inspect
import json
import math
import string
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from joserfc import jws

from antiphon import InvalidRequest, IssuedTokens, Issuer, Principal, Unauthorized
from antiphon.authorization import key_cache
from tests.fuzz.strategies import JSON_VALUES, near, target
from tests.support.issuer import RESOURCE, new_key, unsigned

ISSUER = "https://id.example.com"
KEY = new_key("ours")
NOW = int(time.time())
CLAIMS = {"iss": ISSUER, "sub": "ada", "aud": RESOURCE, "exp": NOW + 10**6, "iat": NOW, "scope": "a b"}
HEADER = {"alg": "ES256", "kid": "ours"}
ALPHABET = string.ascii_letters + string.digits + "-_=+/. \n\0é"


def signed(claims: Any) -> str:
    return jws.serialize_compact(HEADER, json.dumps(claims).encode(), KEY)


VALID = signed(CLAIMS)


def accepts(credentials: str) -> Principal | None:
    """Return the principal of an Authorization header, or `None` if it is refused."""
    tokens = IssuedTokens(Issuer(ISSUER, jwks_uri=f"{ISSUER}/jwks"), resource=RESOURCE, leeway=0)

    async def ask() -> Principal:
        found = tokens({"authorization": credentials})
        return await found if inspect.isawaitable(found) else found

    async def fetch(url: str, **options: Any) -> dict[str, Any]:
        return {"keys": [KEY.as_dict(private=False)]}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_cache, "fetch_document", fetch)
        try:
            return asyncio.run(ask())
        except (Unauthorized, InvalidRequest):
            return None


@st.composite
def altered(draw: Callable[[Any], Any]) -> str:
    """A valid header that is cut or changed."""
    start = draw(st.integers(0, len(VALID)))
    put = draw(st.text(ALPHABET, max_size=4))
    token = VALID[:start] + put + VALID[start + draw(st.integers(0, 4)) :]
    return str(draw(near("Bearer ", "bearer  ", "Bearer", "")) + token)


@target
@given(altered() | st.text(ALPHABET, max_size=60).map("Bearer ".__add__) | st.text(max_size=20))
def test_a_changed_token_is_refused_or_is_the_same(credentials: str) -> None:
    principal = accepts(credentials)
    assert principal is None or principal.claims == CLAIMS


@target
@given(
    st.dictionaries(near(*HEADER, "typ", "crit", "b64", "x5c"), near("none", "HS256", "ours") | JSON_VALUES),
    st.dictionaries(near(*CLAIMS), JSON_VALUES) | JSON_VALUES,
    st.binary(max_size=70),
)
def test_a_token_without_a_signature_of_the_issuer_is_refused(head: Any, claims: Any, mac: bytes) -> None:
    given_claims = {**CLAIMS, **claims} if isinstance(claims, dict) else claims
    assert accepts(f"Bearer {unsigned({**HEADER, **head}, given_claims, mac)}") is None


ODD = near(None, True, "", [], {}, 0, -1, 1e300, NOW - 1, NOW + 10**6, RESOURCE, [RESOURCE], ISSUER, "ada")


@target
@given(st.dictionaries(near(*CLAIMS, "nbf", "client_id", "cnf"), ODD | JSON_VALUES), st.sets(near(*CLAIMS)))
def test_signed_claims_are_accepted_only_if_they_say_all_that_they_must(
    changes: dict[str, Any], missing: set[str]
) -> None:
    claims = {name: value for name, value in {**CLAIMS, **changes}.items() if name not in missing}
    principal = accepts(f"Bearer {signed(claims)}")
    if principal is None:
        assert changes or missing
        return
    assert claims["iss"] == ISSUER
    assert RESOURCE in (claims["aud"] if isinstance(claims["aud"], list) else [claims["aud"]])
    assert not isinstance(claims["exp"], bool)
    assert NOW < claims["exp"] < math.inf
    subject, client = claims.get("sub"), claims.get("client_id")
    if subject is None or subject == client:  # a client that acts for itself is no user
        assert client
        assert principal.id == f"client:{ISSUER}#{client}"
    else:
        assert subject
        assert principal.id == f"{ISSUER}#{subject}"
