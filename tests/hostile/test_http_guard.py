"""Web pages that reach a server through a visitor's browser, and headers that say two things."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import httpx2
import pytest
import pytest_asyncio

from antiphon import BearerTokens, Server
from antiphon.errors import BadOrigin
from antiphon.transport.server.http.guard import Guard
from tests.hostile.raw import MARKER, PING, post, send_raw
from tests.support import http
from tests.support.process import SERVERS, environment, free_port
from tests.support.serving import WAYS, Address

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROBES = ("/healthz", "/readyz", "/metrics")
LOOPBACK = ["127.0.0.1", "127.0.0.53", "::1", "::ffff:127.0.0.1", "::FFFF:7f00:1", "localhost"]
"""The addresses of a server that only this machine reaches, as sockets and ASGI servers give them."""


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=list(WAYS))
async def served(request: pytest.FixtureRequest) -> AsyncIterator[Address]:
    async with WAYS[request.param](Server("tests"), probes=True) as address:
        yield address


def check(
    server: str | None, headers: Mapping[bytes, bytes], *, authenticates: bool = False, **options: Any
) -> bool:
    """Return whether a guard lets a request to a server at this address pass."""
    guard = Guard({"/mcp"}, options.get("hosts"), options.get("origins"), authenticates=authenticates)
    scope = {"path": "/mcp", "root_path": "", "server": None if server is None else (server, 80)}
    try:
        guard.check(scope, headers)
    except BadOrigin:
        return False
    return True


@pytest.mark.parametrize("server", LOOPBACK)
async def test_every_loopback_address_is_guarded(server: str) -> None:
    assert not check(server, {b"host": b"evil.example"})
    assert not check(server, {b"host": b"localhost", b"origin": b"http://evil.example"})
    for host in (b"localhost", b"127.0.0.1:80", b"[::1]:80", b"[::ffff:127.0.0.1]", b"127.0.0.53"):
        assert check(server, {b"host": host, b"origin": b"http://" + host})


@pytest.mark.parametrize(
    "host",
    [
        b"[::1].evil.example",
        b"[::1]evil.example",
        b"[::1]:80.evil.example",
        b"[::1",
        b"::1]",
        b"127.0.0.1.evil.example",
        b"127.0.0.1:80@evil.example",
        b"localhost:evil.example",
        b"localhost.evil.example:80",
        b"localhost@evil.example",
        b"evil.example:80:80",
        b"0x7f.1.evil.example",
    ],
)
async def test_hosts_that_only_look_local_are_refused(host: bytes) -> None:
    assert not check("127.0.0.1", {b"host": host})
    assert not check("127.0.0.1", {b"host": b"localhost", b"origin": b"http://" + host})
    assert not check("127.0.0.1", {b"host": host}, hosts=["localhost", "[::1]"])


@pytest.mark.parametrize("path", PROBES)
async def test_probes_are_guarded(served: Address, path: str) -> None:
    async def status(headers: Mapping[str, str]) -> int:
        return (await http.request(served.port, "GET", headers, path=path)).status

    assert await status({"host": "evil.example"}) == 403
    assert await status({"origin": "http://evil.example"}) == 403
    assert await status({"origin": "http://[::1].evil.example"}) == 403
    assert await status({}) == 200


async def test_health_checks_name_a_server_by_its_address() -> None:
    """Whatever names its clients use: kubelets and load balancers send an address."""
    async with WAYS["run"](Server("tests"), probes=True, hosts=["mcp.example.com"]) as address:
        for host in ("10.1.2.3:8000", "[fd00::1]:8000", "localhost:8000", "mcp.example.com"):
            response = await http.request(address.port, "GET", {"host": host}, path="/readyz")
            assert (host, response.status) == (host, 200)
        for host in ("evil.example", "10.1.2.3.evil.example"):
            response = await http.request(address.port, "GET", {"host": host}, path="/readyz")
            assert (host, response.status) == (host, 403)


# Headers that occur twice


@pytest.mark.parametrize(
    "name",
    [
        "Host",
        "Origin",
        "Authorization",
        "Mcp-Session-Id",
        "Mcp-Protocol-Version",
        "Mcp-Method",
        "Mcp-Param-City",
    ],
)
async def test_a_header_that_must_occur_once_is_refused_twice(served: Address, name: str) -> None:
    value = "http://127.0.0.1" if name == "Origin" else "127.0.0.1"
    lines = (
        [f"{name.upper()}: {value}"] if name == "Host" else [f"{name}: {value}", f"{name.upper()}: {value}"]
    )
    request = post(PING, *lines)
    answers = await send_raw(served.port, request, MARKER)
    assert answers.statuses == [400, 404]
    assert f"2 headers '{name.lower()}'".encode() in answers.raw


@pytest.mark.parametrize("name", ["Content-Type", "Content-Length"])
async def test_a_body_that_is_described_twice_is_refused(served: Address, name: str) -> None:
    value = "application/json" if name == "Content-Type" else "40"
    answers = await send_raw(served.port, post(PING, f"{name}: {value}", f"{name}: {value}"), MARKER)
    assert answers.statuses[0] == 400


@pytest.mark.parametrize("path", ["/mcp", "/healthz"])
async def test_pages_and_probes_refuse_them_too(served: Address, path: str) -> None:
    request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
    assert (await send_raw(served.port, request, MARKER)).statuses == [400, 404]


async def test_other_headers_may_occur_twice_and_are_joined(served: Address) -> None:
    request = post(PING, "Accept: application/json", "Accept: text/event-stream", "X-A: 1", "X-A: 2")
    assert (await send_raw(served.port, request, MARKER)).statuses == [200, 404]


# All interfaces


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="needs IPv6")
async def test_a_server_on_all_interfaces_is_guarded_on_loopback(tmp_path: Path) -> None:
    port = free_port()
    arguments = ["run", str(SERVERS / "load.py"), "--host", "::", "--port", str(port)]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "antiphon", *arguments),
        env=environment(),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdout is not None
    try:
        line = await asyncio.wait_for(process.stdout.readline(), 60)
        assert b"is served at" in line
        for address in ("127.0.0.1", "::1"):
            for headers, status in [
                ("Host: localhost", 200),
                ("Host: evil.example", 403),
                ("Host: localhost\r\nOrigin: http://evil.example", 403),
                ("Host: localhost\r\nOrigin: http://[::1].evil.example", 403),
            ]:
                for path in ("/mcp", "/healthz"):
                    request = f"{'POST' if path == '/mcp' else 'GET'} {path} HTTP/1.1\r\n{headers}\r\n"
                    assert (address, path, headers, await _status(address, port, request)) == (
                        address,
                        path,
                        headers,
                        status,
                    )
    finally:
        process.terminate()
        await asyncio.wait_for(process.communicate(), 30)


async def _status(address: str, port: int, request: str) -> int:
    reader, writer = await asyncio.open_connection(address, port)
    try:
        length = len(PING) if request.startswith("POST") else 0
        writer.write(
            f"{request}Content-Length: {length}\r\nConnection: close\r\n\r\n".encode() + PING[:length]
        )
        raw = await asyncio.wait_for(reader.read(), 30)
    finally:
        writer.close()
    return int(raw.split(b" ")[1])


# Names that nobody has named


EVERYWHERE = [
    *LOOPBACK,
    "192.168.1.5",
    "10.0.0.7",
    "169.254.3.4",
    "fe80::1%eth0",
    "fd00::1",
    "203.0.113.7",
    None,
]


@pytest.mark.parametrize("server", EVERYWHERE)
async def test_no_page_can_name_a_server_whatever_address_its_socket_has(server: str | None) -> None:
    for host in (
        b"evil.example",
        b"weather:8000",
        b"localhost.evil.example",
        b"[::1%25x]",
        b"[fe80::1%eth0]:80",
    ):
        assert not check(server, {b"host": host}), host
        assert not check(server, {b"host": host, b"origin": b"http://" + host}), host
    addresses = (b"192.168.1.5:8000", b"[fd00::1]:8000", b"[fe80::1]") if server not in LOOPBACK else ()
    for host in (b"localhost:8000", b"127.0.0.1", *addresses):
        assert check(server, {b"host": host}), host
        assert check(server, {b"host": host, b"origin": b"http://" + host}), host
        assert not check(server, {b"host": host, b"origin": b"http://evil.example"}), host
    assert check(server, {b"host": b"weather:8000"}, hosts=["weather"])


@pytest.mark.parametrize("server", EVERYWHERE)
async def test_callers_that_authenticate_may_use_any_name_that_leads_to_the_server(
    server: str | None,
) -> None:
    reached_by_name = server not in LOOPBACK
    assert check(server, {b"host": b"weather:8000"}, authenticates=True) == reached_by_name
    assert not check(server, {b"host": b"weather", b"origin": b"http://evil.example"}, authenticates=True)
    assert not check(server, {b"host": b"weather"}, authenticates=True, hosts=["api.example"])


@pytest.mark.parametrize("server", ["192.168.1.5", None])
async def test_pages_and_probes_authenticate_nobody_so_no_page_can_name_them(server: str | None) -> None:
    guard = Guard({"/mcp"}, None, None, authenticates=True)
    scope = {"path": "/page", "root_path": "", "server": None if server is None else (server, 80)}
    for check_it in (guard.check_page, guard.check_probe):
        with pytest.raises(BadOrigin):
            check_it(scope, {b"host": b"evil.example"})
        check_it(scope, {b"host": b"192.168.1.5:8000"})
        check_it(scope, {b"host": b"localhost"})


@pytest.mark.parametrize(
    ("headers", "options"),
    [
        ({"host": "weather:8000"}, ["--hosts weather ", 'server.asgi(hosts=["weather"])']),
        ({"host": "testserver"}, ["--hosts testserver ", 'server.asgi(hosts=["testserver"])']),
        ({"host": "api.example.com"}, ["--hosts api.example.com ", 'hosts=["api.example.com"]']),
        ({"host": "a$(reboot)"}, ["--hosts NAME ", 'hosts=["NAME"]']),
        (
            {"origin": "https://app.example"},
            ["--origins https://app.example ", 'origins=["https://app.example"]'],
        ),
        ({"origin": "null"}, ["--origins null ", 'origins=["null"]']),
        ({"origin": "https://a';b"}, ["--origins ORIGIN ", 'origins=["ORIGIN"]']),
    ],
)
async def test_a_refusal_names_the_option_and_so_does_the_log(
    headers: Mapping[str, str], options: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    async with WAYS["run"](Server("tests")) as address:
        response = await http.request(
            address.port, "POST", {"content-type": "application/json", **headers}, PING
        )
    assert response.status == 403
    for option in options:
        assert option in response.error["message"]
        assert option in caplog.text


async def test_the_name_of_a_service_leads_to_a_server_that_names_it_or_authenticates() -> None:
    """In a network of containers, the server does not know the address of its socket by that name."""

    async def status(host: str, **options: Any) -> int:
        served = Server("tests", authenticate=options.pop("authenticate", None)).asgi(probes=True, **options)
        transport = httpx2.ASGITransport(served)
        async with httpx2.AsyncClient(transport=transport, base_url=f"http://{host}:8000") as client:
            headers = {"content-type": "application/json", "authorization": "Bearer t"}
            return (await client.post("/mcp", content=PING, headers=headers)).status_code

    assert await status("weather") == 403
    assert await status("weather", hosts=["weather"]) == 200
    assert await status("weather", authenticate=BearerTokens({"t": "ann"})) == 200
    assert await status("10.1.2.3") == 200
