"""Servers and issuers that mean harm, or make mistakes: nothing is sent to them, opened or stored."""

from __future__ import annotations

import asyncio
import socket
import time

import msgspec
import pytest

from antiphon import (
    AuthorizationFailed,
    Client,
    Forbidden,
    IdTokenExchange,
    MemoryLogins,
    OAuth,
    Unauthorized,
)
from antiphon.client.oauth.browser import open_browser
from antiphon.client.oauth.issuer_requests import IssuerRequests
from antiphon.client.oauth.logins import Login, RegisteredClient
from antiphon.client.oauth.session import OAuthSession
from antiphon.client.oauth.token_requests import read_seconds
from antiphon.transport.client.authorization import Refused
from antiphon.transport.client.challenges import bearer_parameters, schemes, split_scopes
from antiphon.transport.client.http_client import http_client
from tests.oauth.hostile import Hostile
from tests.support.polling import turns, until


async def test_a_server_that_refuses_every_token_asks_a_person_once(hostile: Hostile) -> None:
    with pytest.raises(Unauthorized):
        await hostile.connect()
    assert len(hostile.pages) == 1


async def test_an_issuer_that_does_not_advertise_pkce_is_refused(hostile: Hostile) -> None:
    del hostile.issuer["code_challenge_methods_supported"]
    with pytest.raises(AuthorizationFailed, match="PKCE"):
        await hostile.connect()
    assert not hostile.pages
    assert "/register" not in hostile.requests


@pytest.mark.parametrize("name", ["authorization_endpoint", "token_endpoint", "registration_endpoint"])
@pytest.mark.parametrize(
    "url", ["http://id.example.com/x", "file:///etc/passwd", "javascript:alert(1)", "https://a@b.example/x"]
)
async def test_an_endpoint_that_is_not_https_is_refused(hostile: Hostile, name: str, url: str) -> None:
    hostile.issuer[name] = url
    with pytest.raises(AuthorizationFailed, match=name):
        await hostile.connect()
    assert not hostile.pages


async def test_the_client_of_one_issuer_does_not_go_to_another(hostile: Hostile) -> None:
    store = MemoryLogins()
    mine = {"client_id": "mine", "client_secret": "s3cret", "issuer": OAuth.ANY_ISSUER}
    with pytest.raises(Unauthorized):
        await hostile.connect(store=store, **mine)
    hostile.issuer["issuer"] = f"{hostile.url}/"
    hostile.resource["authorization_servers"] = [f"{hostile.url}/"]
    hostile.requests.clear()
    with pytest.raises(AuthorizationFailed, match="now names"):
        await hostile.connect(store=store, relogin=True, **mine)
    assert "/token" not in hostile.requests
    with pytest.raises(AuthorizationFailed, match="no authorization server"):
        await hostile.connect(issuer="https://id.example.com")


def test_a_secret_without_its_issuer_is_refused() -> None:
    """Otherwise the first server that is asked could name the issuer that gets the secret."""
    for make in (
        lambda: OAuth(client_id="mine", client_secret="s3cret"),
        lambda: OAuth(client_id="mine", client_secret="s3cret", show_code=lambda page, code: None),
        lambda: OAuth.service("mine", "s3cret"),
        lambda: OAuth.assertion("a.b.c"),
        lambda: OAuth.assertion(lambda request: "a.b.c", client_id="mine", client_secret="s3cret"),
    ):
        with pytest.raises(ValueError, match="needs issuer=") as raised:
            make()
        assert "s3cret" not in str(raised.value)
    OAuth.service("mine", private_key="a key, which signs for one issuer")
    OAuth.assertion(lambda request: f"an assertion for {request.issuer}")


@pytest.mark.parametrize("kind", ["service", "assertion"])
async def test_the_secret_of_a_program_does_not_go_to_an_issuer_that_the_server_names(
    hostile: Hostile, kind: str
) -> None:
    issuer = "https://id.example.com"
    auth = (
        OAuth.service("mine", "s3cret", issuer=issuer)
        if kind == "service"
        else OAuth.assertion("a.b.c", issuer=issuer)
    )
    with pytest.raises(AuthorizationFailed, match=r"names no authorization server https://id\.example\.com"):
        async with Client(f"{hostile.url}/mcp", auth=auth):
            pass
    assert "/token" not in hostile.requests


@pytest.mark.parametrize(
    ("error", "kept"),
    [("temporarily_unavailable", "r"), ("invalid_grant", None), ("invalid_client", None)],
)
async def test_only_the_issuer_ends_a_login(hostile: Hostile, error: str, kept: str | None) -> None:
    store = MemoryLogins()
    hostile.token["refresh_token"] = "r"
    with pytest.raises(Unauthorized):
        await hostile.connect(store=store)
    hostile.token = {"error": error, "error_description": "\x1b[2Jno"}
    with pytest.raises(AuthorizationFailed, match=error) as raised:
        await hostile.connect(store=store)
    assert "\x1b" not in str(raised.value)
    found = store.find(f"{hostile.url}/mcp")
    assert (found.refresh_token if found else None) == kept
    assert hostile.requests.count("/register") == (2 if error == "invalid_client" else 1)


async def test_the_metadata_of_another_server_is_refused(hostile: Hostile) -> None:
    for resource in ("https://bank.example/mcp", f"{hostile.url}/mcp/deeper", f"{hostile.url}/mc", 7):
        hostile.resource["resource"] = resource
        with pytest.raises(AuthorizationFailed, match="and not of"):
            await hostile.connect()
    assert not hostile.pages


async def test_a_resource_that_is_not_a_plain_url_is_refused(hostile: Hostile) -> None:
    port = hostile.url.rpartition(":")[2]
    for resource in (
        f"http://victim.example\\@127.0.0.1:{port}/mcp",
        f"http://ada@127.0.0.1:{port}/mcp",
        f"{hostile.url}/mcp#part",
        f"{hostile.url}/mcp\t",
        f"{hostile.url}/mcp\r\nx: y",
    ):
        hostile.resource["resource"] = resource
        with pytest.raises(AuthorizationFailed, match="and not of"):
            await hostile.connect()
    assert not hostile.pages


async def test_only_a_well_known_document_may_name_a_resource_above(hostile: Hostile) -> None:
    """One of several tenants of a host could publish any other document."""
    hostile.resource["resource"] = hostile.url
    for place in ("mcp/metadata", ".well-known/oauth-protected-resource/other/../../../mcp/metadata"):
        hostile.challenge = f'Bearer resource_metadata="{hostile.url}/{place}"'
        with pytest.raises(AuthorizationFailed, match="and not of"):
            await hostile.connect()
    assert not hostile.pages
    for challenge in (
        "Bearer",
        f'Bearer resource_metadata="{hostile.url}/.well-known/oauth-protected-resource"',
    ):
        hostile.challenge = challenge
        with pytest.raises(Unauthorized):
            await hostile.connect()
    assert len(hostile.pages) == 2


@pytest.mark.parametrize(
    ("url", "allow_private", "is_sent"),
    [
        ("http://mcp.example.com/mcp", False, False),
        ("http://mcp.example.com/mcp", True, False),
        ("http://10.0.0.7/mcp", False, False),
        ("http://10.0.0.7/mcp", True, True),
        ("http://127.0.0.1:1/mcp", False, True),
        ("https://ada:pw@mcp.example.com/mcp?tenant=7", False, True),
    ],
)
async def test_no_token_is_sent_to_another_machine_over_plain_http(
    url: str, allow_private: bool, is_sent: bool
) -> None:
    store = MemoryLogins()
    client = RegisteredClient("client")
    store.save(Login(url, url, "https://id.example.com", client, "https://id.example.com/token", "t"))
    settings = OAuth(store=store, allow_private=allow_private)
    session = settings.authorization(url, http_client)
    assert ("authorization" in await session.headers("POST")) is is_sent
    if not is_sent:
        with pytest.raises(AuthorizationFailed, match="must use https"):
            await session.refused(Refused(None, 401, "Bearer", None, Unauthorized(), 0))


async def test_a_token_that_no_header_can_carry_is_refused(hostile: Hostile) -> None:
    for token in (
        {"access_token": "a\r\nX: y"},
        {"access_token": 7},
        {"token_type": "MAC"},
        {"token_type": "DPoP"},
    ):
        before = dict(hostile.token)
        hostile.token.update(token)
        with pytest.raises(AuthorizationFailed, match="responded with"):
            await hostile.connect()
        hostile.token = before


async def test_the_state_of_another_login_is_refused(hostile: Hostile) -> None:
    async def confused(page: str) -> str:
        return (await hostile.approve(page)).replace("state=", "state=x")

    with pytest.raises(AuthorizationFailed, match="its state differs"):
        await hostile.connect(open_browser=confused)
    assert "/token" not in hostile.requests


async def test_an_error_of_another_issuer_is_not_shown(hostile: Hostile) -> None:
    async def mixed_up(page: str) -> str:
        return (await hostile.approve(page)).replace("code=c", "error=evil&iss=https://evil.example")

    with pytest.raises(AuthorizationFailed, match="not from the issuer") as raised:
        await hostile.connect(open_browser=mixed_up)
    assert "evil" not in str(raised.value)


async def test_large_documents_redirects_and_private_networks_are_refused(hostile: Hostile) -> None:
    requests = IssuerRequests(hostile.url, http_client, timeout=60, allow_private=False)
    with pytest.raises(AuthorizationFailed, match="more than"):
        await requests.get(f"{hostile.url}/large")
    assert (await requests.get(f"{hostile.url}/elsewhere")).status == 302
    assert hostile.requests == ["/large", "/elsewhere"]
    public = IssuerRequests("https://mcp.example.com/mcp", http_client, timeout=60, allow_private=False)
    addresses = ("10.0.0.8", "[::1]", "169.254.169.254", "127.1", "2130706433", "0x7f000001", "localhost.")
    for url in (f"{hostile.url}/x", *(f"https://{address}/x" for address in addresses)):
        with pytest.raises(AuthorizationFailed, match="private network"):
            await public.get(url)
    assert hostile.requests == ["/large", "/elsewhere"]
    private = IssuerRequests("https://mcp.example.com/mcp", http_client, timeout=60, allow_private=True)
    assert (await private.get(f"{hostile.url}/nothing")).status == 404


PRIVATE = [
    *("0.0.0.0", "10.0.0.1", "100.64.0.1", "127.0.0.1", "169.254.169.254", "172.16.0.1", "192.168.0.1"),
    *("192.0.0.8", "192.0.0.170", "192.0.2.1", "192.88.99.1", "198.18.0.1", "198.51.100.1", "203.0.113.1"),
    *("224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255"),
    *("::", "::1", "::127.0.0.1", "::8.8.8.8", "::ffff:127.0.0.1", "::ffff:224.0.0.1"),
    *("64:ff9b::7f00:1", "64:ff9b::a00:1", "64:ff9b:1::7f00:1", "100::1", "2001::1", "2001:20::1"),
    *("2001:db8::1", "2002:7f00:1::", "3fff::1", "5f00::1", "fc00::1", "fe80::1", "fec0::1"),
    *("ff02::1", "ff0e::1", "fe80::5efe:7f00:1", "2a00::5efe:a00:1", "2a00::200:5efe:a00:1"),
]
PUBLIC = ["8.8.8.8", "::ffff:8.8.8.8", "64:ff9b::808:808", "2606:4700::1111", "2a00::5efe:808:808"]


@pytest.mark.parametrize("address", [*PRIVATE, *PUBLIC])
def test_a_server_on_the_internet_names_no_address_that_is_not_there(address: str) -> None:
    requests = IssuerRequests("https://mcp.example.com/mcp", http_client, timeout=1, allow_private=False)
    host = f"[{address}]" if ":" in address else address
    refusal = "is in a private network, and the server is not"
    assert requests.problem_of(f"https://{host}/token") == (refusal if address in PRIVATE else None)


async def test_an_issuer_that_does_not_respond_has_a_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        requests = IssuerRequests(url, http_client, timeout=0.2, allow_private=False)
        with pytest.raises(AuthorizationFailed, match="has not responded within"):
            await requests.get(f"{url}/slow?secret=1")


async def test_only_web_pages_are_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    for url in ("file:///etc/passwd", "javascript:alert(1)", "https://id.example/ & calc", "--help"):
        with pytest.raises(AuthorizationFailed, match="was not opened"):
            await open_browser(url)
    await open_browser("https://id.example/authorize?state=1")
    assert opened == ["https://id.example/authorize?state=1"]


@pytest.mark.parametrize(
    ("header", "parameters"),
    [
        ("", {}),
        ("Basic realm=x", {}),
        ('Bearer realm="a, b", scope="x y"', {"realm": "a, b", "scope": "x y"}),
        ('Basic realm="q", Bearer error=invalid_token', {"error": "invalid_token"}),
        ('Bearer error="e", Basic realm="q"', {"error": "e"}),
        ('bearer Scope = "say \\"x\\""', {"scope": 'say "x"'}),
        ("Bearer scope=a, scope=b", {"scope": "a"}),
    ],
)
def test_a_challenge_is_read(header: str, parameters: dict[str, str]) -> None:
    assert bearer_parameters(header) == parameters


def test_a_challenge_of_any_size_is_read_quickly() -> None:
    assert bearer_parameters('Bearer a="' + "\\" * 1_000_000) == {"a": ""}


@pytest.mark.parametrize("junk", ["," * 15_800 + "@", "," * 15_800, "a" * 15_800, "a " * 7_900 + "@"])
def test_a_challenge_of_separators_is_read_in_linear_time(junk: str) -> None:
    """The time is measured against the same number of characters that end each part at once."""
    ratios = []
    for _ in range(5):
        times = []
        for text in (f"Bearer {junk}", "Bearer " + "a=b," * (len(junk) // 4)):
            begun = time.process_time()
            assert "bearer" in schemes(text)
            bearer_parameters(text)
            times.append(time.process_time() - begun)
        ratios.append(times[0] / times[1])
    assert min(ratios) < 20  # it was 10,000 and more
    assert len(split_scopes(" ".join(map(str, range(10_000))))) == 200
    assert split_scopes('a "b" c\x00 a') == ("a",)


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        (3600, 3600.0),
        ("3600", 3600.0),
        (-5, 0.0),
        (True, None),
        ("9" * 5000, None),
        (10**400, None),
        (1e15, None),
        (float("nan"), None),
        (None, None),
    ],
)
def test_a_time_that_no_issuer_means_is_unknown(given: object, seconds: float | None) -> None:
    assert read_seconds(given) == seconds


async def test_discovery_has_a_deadline_of_its_own(hostile: Hostile) -> None:
    """Each document comes in time, and all of them together do not."""
    slow = [f"{hostile.url}/slow/{number}" for number in range(10)]
    hostile.resource["authorization_servers"] = slow
    with pytest.raises(AuthorizationFailed, match="were not there within 900 s"):
        await hostile.connect(request_timeout=300)
    assert len([path for path in hostile.requests if "slow" in path]) < 3 * len(slow)


async def test_the_scopes_of_silent_step_ups_are_bounded(hostile: Hostile) -> None:
    settings = OAuth.service("robot", "s3cret", issuer=hostile.url)
    session = settings.authorization(f"{hostile.url}/mcp", http_client)
    count = 0
    while True:
        names = " ".join(f"scope-{count}-{number}" for number in range(20))
        challenge = f'Bearer error="insufficient_scope", scope="{names}"'
        header = (await session.headers("POST")).get("authorization")
        hostile.token["access_token"] = f"t{count}"
        if not await session.refused(Refused(header, 403, challenge, None, Forbidden("no"), 0)):
            break
        count += 1
    assert count == 20
    assert session.login is not None
    assert len(session.login.scopes) <= 200


@pytest.mark.parametrize("kind", [None, "urn:ietf:params:oauth:token-type:access_token"])
async def test_a_token_of_another_type_is_no_assertion(hostile: Hostile, kind: str | None) -> None:
    hostile.token["issued_token_type"] = kind
    exchange = IdTokenExchange("an ID token", f"{hostile.url}/idp", "client")
    with pytest.raises(AuthorizationFailed, match="without an assertion"):
        async with Client(f"{hostile.url}/mcp", auth=OAuth.assertion(exchange)):
            pass
    assert "/idp" in hostile.requests
    assert "/token" not in hostile.requests


async def test_a_refresh_does_not_undo_a_logout(hostile: Hostile) -> None:
    session, store = await stale_session(hostile)
    (login,) = store.all()
    store.remove(login)
    assert await session.headers("POST") == {}
    assert store.all() == []
    assert "/token" not in hostile.requests


async def test_a_refresh_does_not_replace_a_newer_login(hostile: Hostile) -> None:
    session, store = await stale_session(hostile)
    hostile.token = {"access_token": "refreshed", "token_type": "Bearer", "expires_in": 600}
    async with store.locked(f"{hostile.url}/mcp"):
        refreshing = asyncio.ensure_future(session.headers("POST"))
        await until(lambda: session.renewing is not None)
        newer = msgspec.structs.replace(store.all()[0], access_token="newer", expires_at=None)
        logging_in = asyncio.ensure_future(session.keep_new(newer))
        await turns()
    await asyncio.gather(refreshing, logging_in)
    assert [login.access_token for login in store.all()] == ["newer"]
    assert (await session.headers("POST"))["authorization"] == "Bearer newer"


async def stale_session(hostile: Hostile) -> tuple[OAuthSession, MemoryLogins]:
    """Return the session of a login that has expired and can be refreshed, and its store."""
    store, url = MemoryLogins(), f"{hostile.url}/mcp"
    login = Login(
        url, url, hostile.url, RegisteredClient("client"), f"{hostile.url}/token", "old", "r", expires_at=1.0
    )
    store.save(msgspec.structs.replace(login, expires_at=None))
    session = OAuth(store=store).authorization(url, http_client)
    await session.headers("POST")
    session.login = login
    store.save(login)
    return session, store
