"""Access tokens that are JWTs: which are accepted, and which get 401."""

from __future__ import annotations

import base64
import hmac
import time
from collections.abc import Callable
from typing import Any

import pytest
from joserfc.errors import UnsupportedAlgorithmError

from antiphon import Context, InvalidRequest, IssuedTokens, Principal, Server, Unauthorized, wall_clock
from antiphon.authorization.jwt_verifier import Registry
from tests.support.issuer import RESOURCE, TestIssuer, identify, is_cached, issuing, new_key, unsigned
from tests.support.serving import WAYS
from tests.support.speakers import Modern


async def refusal(tokens: IssuedTokens, token: str) -> Unauthorized:
    with pytest.raises(Unauthorized) as raised:
        await identify(tokens, token)
    return raised.value


async def test_a_valid_token_has_the_principal_of_its_issuer_and_subject(issuer: TestIssuer) -> None:
    tokens = IssuedTokens(issuer.url, resource=RESOURCE)
    principal = await identify(tokens, issuer.token(scope="notes:read notes:write", tenant="acme"))
    assert principal.id == f"{issuer.url}#ada"
    assert principal.scopes == {"notes:read", "notes:write"}
    assert principal.claims["tenant"] == "acme"


@pytest.mark.parametrize("kind", ["EC", "RSA"])
@pytest.mark.parametrize("header", [{}, {"typ": "JWT"}, {"typ": None}, {"kid": None}, {"x5t": "unknown"}])
async def test_tokens_of_every_usual_form_are_accepted(
    issuer: TestIssuer, kind: str, header: dict[str, Any]
) -> None:
    issuer.keys = [new_key("only", kind)]
    tokens = IssuedTokens(issuer.url, resource=RESOURCE)
    assert (await identify(tokens, issuer.token(header=header))).id == f"{issuer.url}#ada"


async def test_a_client_without_a_user_is_known_by_its_client_id(issuer: TestIssuer) -> None:
    tokens = IssuedTokens(issuer.url, resource=RESOURCE)
    principal = await identify(tokens, issuer.token(sub=None, client_id="robot"))
    assert principal.id == f"client:{issuer.url}#robot"


async def test_a_client_is_never_the_user_of_the_same_name(issuer: TestIssuer) -> None:
    tokens = IssuedTokens(issuer.url, resource=RESOURCE)
    for name in ("ada", "client:ada", f"client:{issuer.url}#ada", "#ada"):
        user = await identify(tokens, issuer.token(sub=name, client_id="app"))
        for subject in (None, "ada"):  # as issuers write it that have no subject for a client, and others
            client = await identify(tokens, issuer.token(sub=subject, client_id="ada"))
            assert client.id == f"client:{issuer.url}#ada" != user.id


@pytest.mark.parametrize("claim", ["username", "preferred_username", "email", "upn"])
async def test_a_user_without_a_subject_is_not_taken_for_the_client(issuer: TestIssuer, claim: str) -> None:
    token = issuer.token(sub=None, client_id="app", **{claim: "ada"})
    error = await refusal(IssuedTokens(issuer.url, resource=RESOURCE), token)
    assert str(error) == (
        f"The token is of a user (it has {claim}) and has no subject (sub). Get another one."
    )
    # An author who knows the tokens of the issuer says who it is.
    tokens = IssuedTokens(issuer.url, resource=RESOURCE, principal=lambda claims: Principal(claims[claim]))
    assert (await identify(tokens, token)).id == "ada"


INVALID: dict[str, Callable[[TestIssuer], str]] = {
    "foreign audience": lambda issuer: issuer.token(aud="https://other.example.com/mcp"),
    "audience with a slash more": lambda issuer: issuer.token(aud=f"{RESOURCE}/"),
    "no audience": lambda issuer: issuer.token(aud=None),
    "empty audiences": lambda issuer: issuer.token(aud=[]),
    "audience of another type": lambda issuer: issuer.token(aud={RESOURCE: 1}),
    "no expiry": lambda issuer: issuer.token(exp=None),
    "expired": lambda issuer: issuer.token(exp=int(time.time()) - 31),
    "expiry as text": lambda issuer: issuer.token(exp=str(int(time.time()) + 600)),
    "expiry that is no number": lambda issuer: issuer.token(exp=float("nan")),
    "infinite expiry": lambda issuer: issuer.token(exp=float("inf")),
    "expiry that is true": lambda issuer: issuer.token(exp=True),
    "not valid yet": lambda issuer: issuer.token(nbf=int(time.time()) + 60),
    "issued in the future": lambda issuer: issuer.token(iat=int(time.time()) + 60),
    "no subject and no client": lambda issuer: issuer.token(sub=None),
    "a user without a subject": lambda issuer: issuer.token(sub=None, username="ada", client_id="app"),
    "a user without a subject, and an email": lambda issuer: issuer.token(
        sub=None, email="ada@example.com", client_id="app"
    ),
    "empty subject": lambda issuer: issuer.token(sub=""),
    "very long subject": lambda issuer: issuer.token(sub="a" * 2000),
    "subject with a NUL": lambda issuer: issuer.token(sub="a\0da"),
    "subject with a lone surrogate": lambda issuer: issuer.token(sub="a\ud800da"),
    "subject of another type": lambda issuer: issuer.token(sub=7),
    "another issuer": lambda issuer: issuer.token(iss="https://elsewhere.example.com"),
    "issuer with a slash more": lambda issuer: issuer.token(iss=f"{issuer.url}/"),
    "no issuer": lambda issuer: issuer.token(iss=None),
    "algorithm none": lambda issuer: unsigned({"alg": "none", "kid": "first"}, issuer.claims()),
    "algorithm None": lambda issuer: unsigned({"alg": "None", "kid": "first"}, issuer.claims()),
    "no algorithm": lambda issuer: unsigned({"kid": "first"}, issuer.claims()),
    "no signature": lambda issuer: issuer.token().rpartition(".")[0] + ".",
    "signed by somebody else": lambda issuer: issuer.token(key=new_key("first")),
    "key of another type": lambda issuer: issuer.token(key=new_key("first", "RSA")),
    "unknown key id": lambda issuer: issuer.token(key=new_key("unknown")),
    "public key as a secret": lambda issuer: _signed_with_the_public_key(issuer),
    "altered claims": lambda issuer: _altered(issuer.token()),
    "ID token with the hash of a token": lambda issuer: issuer.token(header={"typ": "JWT"}, at_hash="x"),
    "ID token with the hash of a code": lambda issuer: issuer.token(header={"typ": None}, c_hash="x"),
    "ID token with a nonce": lambda issuer: issuer.token(header={"typ": "JWT"}, nonce="x"),
    "ID token of Keycloak": lambda issuer: issuer.token(header={"typ": "JWT"}, typ="ID"),
    "token for a logout": lambda issuer: issuer.token(header={"typ": "logout+jwt"}),
    "unknown critical header": lambda issuer: unsigned(
        {"alg": "ES256", "kid": "first", "crit": ["x"], "x": 1}, issuer.claims(), b"x" * 64
    ),
    "bound to a key": lambda issuer: issuer.token(cnf={"jkt": "x"}),
    "not JSON": lambda issuer: "a.b.c",
    "deeply nested": lambda issuer: unsigned({"alg": "ES256"}, issuer.claims()).replace(
        ".", "." + "W1tb" * 3000 + ".", 1
    ),
    "opaque": lambda issuer: "opaque",
}


def _signed_with_the_public_key(issuer: TestIssuer) -> str:
    signed = unsigned({"alg": "HS256", "kid": "first"}, issuer.claims()).rpartition(".")[0]
    mac = hmac.digest(issuer.keys[0].as_pem(private=False), signed.encode(), "sha256")
    return f"{signed}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"


def _altered(token: str) -> str:
    head, claims, signature = token.split(".")
    return ".".join((head, claims[:-4] + ("AAAA" if claims[-4:] != "AAAA" else "BBBB"), signature))


@pytest.mark.parametrize("case", INVALID)
async def test_an_invalid_token_gets_401_and_is_not_logged(
    issuer: TestIssuer, case: str, caplog: pytest.LogCaptureFixture
) -> None:
    tokens = IssuedTokens(issuer.url, resource=RESOURCE, scopes=["notes:read"])
    token = INVALID[case](issuer)
    caplog.set_level("DEBUG")
    error = await refusal(tokens, token)
    challenge = dict(error.headers)["www-authenticate"]
    assert challenge.startswith('Bearer error="invalid_token", error_description="')
    assert 'scope="notes:read"' in challenge
    said = f"{error} {challenge} {caplog.text}"
    assert not any(part in said for part in token.split(".") if len(part) > 6)


@pytest.mark.parametrize("way", WAYS)
async def test_over_http_every_invalid_token_gets_401_before_the_body_is_read(
    issuer: TestIssuer, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "antiphon")
    ran: list[str] = []
    server = Server("notes", authenticate=IssuedTokens(issuer.url, resource=RESOURCE))

    @server.tool
    async def whoami(ctx: Context) -> str:
        ran.append(ctx.principal.id)
        return ctx.principal.id

    async with WAYS[way](server) as where:
        for case, build in INVALID.items():
            token = build(issuer)
            refused = await Modern(where.port, headers={"authorization": f"Bearer {token}"}).call("whoami")
            assert (case, refused.status) == (case, 401)
            assert token not in caplog.text
        assert ran == []
        valid = Modern(where.port, headers={"authorization": f"Bearer {issuer.token()}"})
        assert (await valid.call("whoami")).text == f"{issuer.url}#ada"


async def test_clocks_may_differ_by_the_leeway(issuer: TestIssuer) -> None:
    now = int(time.time())
    late, early = issuer.token(exp=now - 20), issuer.token(nbf=now + 20)
    patient = IssuedTokens(issuer.url, resource=RESOURCE, leeway=30)
    for token in (late, early):
        assert (await identify(patient, token)).id.endswith("#ada")
        await refusal(IssuedTokens(issuer.url, resource=RESOURCE, leeway=0), token)


async def test_one_of_several_audiences_is_enough(issuer: TestIssuer) -> None:
    tokens = IssuedTokens(issuer.url, resource=RESOURCE, audience=["api://notes", "other"])
    await identify(tokens, issuer.token(aud=["https://x.example.com", "api://notes"]))
    await refusal(tokens, issuer.token(aud=RESOURCE))


async def test_the_same_name_at_two_issuers_is_two_principals() -> None:
    async with issuing() as first, issuing("/tenant") as second:
        tokens = IssuedTokens([first.url, second.url], resource=RESOURCE)
        ids = {(await identify(tokens, each.token())).id for each in (first, second)}
        assert ids == {f"{first.url}#ada", f"{second.url}#ada"}
        # The keys of one issuer do not verify the tokens of another.
        await refusal(tokens, first.token(iss=second.url))
        named = IssuedTokens(
            [first.url, second.url], resource=RESOURCE, principal=lambda claims: Principal(claims["sub"])
        )
        assert {(await identify(named, each.token())).id for each in (first, second)} == ids


async def test_a_function_maps_claims_to_a_principal(issuer: TestIssuer) -> None:
    async def principal_of(claims: Any) -> Principal | None:
        if claims["sub"] == "eve":
            return None
        return Principal(claims["email"], frozenset({"admin"}), {"tenant": claims["tid"]})

    tokens = IssuedTokens(
        issuer.url, resource=RESOURCE, principal=principal_of, implies={"admin": ["notes:write"]}
    )
    principal = await identify(tokens, issuer.token(email="ada@example.com", tid="acme"))
    assert principal == Principal("ada@example.com", frozenset({"admin", "notes:write"}), {"tenant": "acme"})
    await refusal(tokens, issuer.token(sub="eve"))


@pytest.mark.parametrize(
    "claims",
    [
        {"scope": "admin x"},
        {"scope": None, "scp": "admin x"},
        {"scope": None, "scp": ["admin", "x"]},
        {"scope": "x", "scp": ["api://notes/admin"]},
    ],
)
async def test_scopes_are_read_from_every_usual_claim_and_imply_others(
    issuer: TestIssuer, claims: dict[str, Any]
) -> None:
    tokens = IssuedTokens(
        issuer.url,
        resource=RESOURCE,
        scope_prefix="api://notes/",
        implies={"admin": ["notes:write"], "notes:write": ["notes:read", "admin"]},
    )
    principal = await identify(tokens, issuer.token(**claims))
    assert principal.scopes == {"admin", "x", "notes:write", "notes:read"}


@pytest.mark.parametrize("credentials", ["Basic YTpi", "Negotiate abc"])
async def test_other_schemes_get_a_challenge_without_an_error(credentials: str) -> None:
    tokens = IssuedTokens("https://id.example.com", resource=RESOURCE)
    found = tokens({"authorization": credentials})
    with pytest.raises(Unauthorized) as raised:
        await found  # type: ignore[misc]
    expected = 'resource_metadata="https://notes.example.com/.well-known/oauth-protected-resource/mcp"'
    assert dict(raised.value.headers)["www-authenticate"] == f"Bearer {expected}"


@pytest.mark.parametrize(
    "credentials", ["Bearer", "Bearer a b", "Bearer a,b", "Bearer ä", f"Bearer {'a' * 20000}"]
)
async def test_a_malformed_header_gets_400(credentials: str) -> None:
    tokens = IssuedTokens("https://id.example.com", resource=RESOURCE)
    with pytest.raises(InvalidRequest) as raised:
        await tokens({"authorization": credentials})  # type: ignore[misc]
    assert type(raised.value) is InvalidRequest
    assert raised.value.status == 400
    assert 'error="invalid_request"' in dict(raised.value.headers)["www-authenticate"]


async def test_an_earlier_expiry_of_the_principal_counts(
    issuer: TestIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    expires_at = wall_clock.now() - 1
    tokens = IssuedTokens(
        issuer.url,
        resource=RESOURCE,
        cache_seconds=3600,
        principal=lambda claims: Principal(claims["sub"], expires_at=expires_at),
    )
    token = issuer.token()
    assert "has expired" in str(await refusal(tokens, token))
    expires_at = wall_clock.now() + 300
    assert (await identify(tokens, token)).expires_at == expires_at
    for passed, cached in ((200, True), (400, False)):
        monkeypatch.setattr(wall_clock, "ahead", passed)
        assert is_cached(tokens, token) == cached


async def test_no_principal_of_one_issuer_has_the_id_of_another_principal() -> None:
    async with issuing() as first, issuing() as second:
        tokens = IssuedTokens(
            [first.url, second.url], resource=RESOURCE, principal=lambda claims: Principal(claims["sub"])
        )
        names = ["ada", f"{first.url}#ada", f"{second.url}#ada"]
        ids = {
            (await identify(tokens, each.token(sub=name))).id for each in (first, second) for name in names
        }
        assert len(ids) == 6


def test_the_library_that_verifies_signatures_knows_the_accepted_algorithms_alone() -> None:
    registry = Registry(["ES256"])
    assert registry.get_alg("ES256").name == "ES256"
    for name in ("none", "HS256", "RS256", "unknown"):
        with pytest.raises(UnsupportedAlgorithmError):
            registry.get_alg(name)


async def test_an_access_token_of_keycloak_may_have_a_nonce(issuer: TestIssuer) -> None:
    tokens = IssuedTokens(issuer.url, resource=RESOURCE)
    token = issuer.token(header={"typ": "JWT"}, typ="Bearer", nonce="x")
    assert (await identify(tokens, token)).id == f"{issuer.url}#ada"
