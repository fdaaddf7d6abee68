"""The metadata of a protected resource, and the challenges that refer to it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from antiphon import DefinitionError, IssuedTokens, Issuer, Server
from tests.support import http
from tests.support.issuer import RESOURCE, issuing
from tests.support.serving import WAYS, serving
from tests.support.speakers import DIALECTS, Modern, speaker

ISSUER = "https://id.example.com/"
WELL_KNOWN = "/.well-known/oauth-protected-resource"


def protected(resource: str = RESOURCE, **options: Any) -> Server:
    server = Server("notes", authenticate=IssuedTokens(ISSUER, resource=resource, **options))

    @server.tool
    async def greet() -> str:
        return "Hello!"

    return server


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("path", [WELL_KNOWN, f"{WELL_KNOWN}/mcp"])
async def test_everybody_may_read_the_metadata_at_both_addresses(way: str, path: str) -> None:
    async with WAYS[way](protected(scopes=["notes:read"])) as where:
        foreign = {"origin": "https://elsewhere.example.com", "host": "notes.example.com"}
        response = await http.request(where.port, "GET", foreign, path=path)
        assert response.status == 200
        assert response.headers["content-type"] == "application/json"
        assert response.headers["access-control-allow-origin"] == "*"
        assert json.loads(response.body) == {
            "resource": RESOURCE,
            "authorization_servers": [ISSUER],
            "bearer_methods_supported": ["header"],
            "scopes_supported": ["notes:read"],
        }
        preflight = {**foreign, "access-control-request-method": "GET"}
        allowed = await http.request(where.port, "OPTIONS", preflight, path=path)
        assert (allowed.status, allowed.body) == (204, b"")
        assert allowed.headers["access-control-allow-methods"] == "GET, OPTIONS"
        assert (await http.request(where.port, "POST", {}, b"{}", path)).status == 405


async def test_a_server_without_issued_tokens_has_no_metadata() -> None:
    async with serving(Server("plain")) as where:
        assert (await http.request(where.port, "GET", {}, path=WELL_KNOWN)).status == 404


@pytest.mark.parametrize("way", WAYS)
async def test_a_request_without_a_token_is_told_where_to_get_one(way: str) -> None:
    async with WAYS[way](protected(scopes=["notes:read", "notes:list"], scope_prefix="api://x/")) as where:
        for method in ("POST", "GET", "DELETE"):
            response = await http.request(where.port, method, {"content-type": "application/json"})
            assert response.status == 401
            assert response.headers["www-authenticate"] == (
                'Bearer scope="api://x/notes:read api://x/notes:list", '
                f'resource_metadata="https://notes.example.com{WELL_KNOWN}/mcp"'
            )
        assert (await Modern(where.port, headers={"authorization": "Bearer"}).call("greet")).status == 400


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("way", WAYS)
async def test_a_call_with_a_valid_token_is_served(dialect: str, way: str) -> None:
    async with issuing() as issuer:
        server = Server("notes", authenticate=IssuedTokens(issuer.url, resource=RESOURCE))

        @server.tool
        async def greet() -> str:
            return "Hello!"

        async with WAYS[way](server) as where:
            asker = await speaker(dialect, where.port, headers={"authorization": f"Bearer {issuer.token()}"})
            for _ in range(2):
                assert (await asker.call("greet")).text == "Hello!"
            foreign = issuer.token(aud="https://other.example.com")
            asker.headers["authorization"] = f"Bearer {foreign}"
            refused = await asker.call("greet")
            assert refused.status == 401
            assert 'error="invalid_token"' in refused.headers["www-authenticate"]


@pytest.mark.parametrize(
    ("mount", "resource", "found"),
    [
        ("/tools", "https://notes.example.com/tools/mcp", f"/tools{WELL_KNOWN}"),
        ("/mcp", "https://notes.example.com/mcp", f"/mcp{WELL_KNOWN}"),
        # The public URL does not have the path of the mount: a proxy rewrites it.
        ("/inner", "https://notes.example.com/mcp", f"{WELL_KNOWN}/mcp"),
    ],
)
async def test_a_mounted_app_refers_to_the_document_inside_the_mount(
    mount: str, resource: str, found: str
) -> None:
    app = Starlette(routes=[Mount(mount, app=protected(resource).asgi())])
    async with serving(app, lifespan="off") as where:
        headers = {"content-type": "application/json"}
        response = await http.request(where.port, "POST", headers, b"{}", f"{mount}/mcp")
        assert response.status == 401
        assert response.headers["www-authenticate"] == (
            f'Bearer resource_metadata="https://notes.example.com{found}"'
        )
        inside = await http.request(where.port, "GET", {}, path=f"{mount}{WELL_KNOWN}")
        assert json.loads(inside.body)["resource"] == resource


def test_the_address_of_the_document_can_be_configured() -> None:
    tokens = IssuedTokens(ISSUER, resource=RESOURCE, metadata_url="https://notes.example.com/about/oauth")
    tokens.protected_resource.note_mount("/mcp")
    assert tokens.protected_resource.challenge() == (
        'Bearer resource_metadata="https://notes.example.com/about/oauth"'
    )
    assert tokens.metadata()["resource"] == RESOURCE


def test_a_resource_at_the_root_has_no_suffix() -> None:
    for resource in ("https://notes.example.com", "https://notes.example.com/"):
        found = IssuedTokens(ISSUER, resource=resource).protected_resource
        assert found.metadata_url == f"https://notes.example.com{WELL_KNOWN}"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"resource": "http://notes.example.com/mcp"}, "must use https"),
        ({"resource": "https://notes.example.com/mcp#x"}, "has a fragment"),
        ({"resource": "https://notes.example.com/mcp?x=1"}, "has a query"),
        ({"resource": "https://ada:s3@notes.example.com"}, "has a user name"),
        ({"resource": "notes.example.com"}, "is not an https URL"),
        ({"resource": 'https://notes.example.com/"'}, "has characters"),
        ({"issuer": "http://id.example.com"}, "must use https"),
        ({"issuer": []}, "at least one issuer"),
        ({"issuer": [ISSUER, ISSUER]}, "the same URL"),
        ({"issuer": Issuer(ISSUER), "algorithms": ["HS256"]}, "algorithms"),
        ({"algorithms": ["none"]}, "algorithms"),
        ({"algorithms": []}, "algorithms"),
        ({"audience": ""}, "audience"),
        ({"audience": []}, "audience"),
        ({"leeway": -1}, "leeway"),
        ({"leeway": float("inf")}, "leeway"),
        ({"max_cached_tokens": 0}, "max_cached_tokens"),
        ({"scopes": "notes:read"}, "is not a list of scopes"),
        ({"scopes": ["notes read"]}, "is not a scope"),
        ({"scopes": ["offline_access"]}, "offline_access"),
        ({"implies": {"admin": "notes:read"}}, "is not a list of scopes"),
    ],
)
def test_a_setting_that_cannot_work_is_refused(options: dict[str, Any], problem: str) -> None:
    issuer = options.pop("issuer", ISSUER)
    with pytest.raises(DefinitionError, match=problem):
        IssuedTokens(issuer, **{"resource": RESOURCE, **options})


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"client_id": "x"}, "together"),
        ({"introspection_endpoint": "https://id.example.com/i"}, "needs client_id"),
        ({"jwks_uri": "http://id.example.com/jwks"}, "must use https"),
    ],
)
def test_an_issuer_that_cannot_work_is_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(DefinitionError, match=problem):
        Issuer(ISSUER, **options)
