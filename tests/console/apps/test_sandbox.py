"""The second origin: one page, for the console alone."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.console.apps.sandbox import Sandbox
from antiphon.console.guard import ConsoleGuard
from antiphon.errors import DefinitionError

CONSOLE = "http://127.0.0.1:8000"
HOST = b"127.0.0.1:8001"
SANDBOX = Sandbox("http://127.0.0.1:8001", ConsoleGuard(["127.0.0.1:8000"]))


async def ask(
    query: str = f"console={CONSOLE}", *, method: str = "GET", hosts: tuple[bytes, ...] = (HOST,)
) -> tuple[int, dict[str, str], bytes] | None:
    """Return the status, the headers and the body of an answer; `None` if the sandbox does not answer."""
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope: dict[str, Any] = {
        "type": "http",
        "method": method,
        "path": "/any",
        "query_string": query.encode(),
        "headers": [(b"host", host) for host in hosts],
    }
    if not await SANDBOX.handle(scope, receive, send):
        return None
    headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], headers, b"".join(message.get("body", b"") for message in sent[1:])


async def test_the_page_is_shown_by_the_console_alone_and_reaches_nothing() -> None:
    found = await ask()
    assert found is not None
    status, headers, body = found
    assert status == 200
    assert headers["content-type"] == "text/html; charset=utf-8"
    policy = headers["content-security-policy"].split("; ")
    assert f"frame-ancestors {CONSOLE}" in policy
    assert {"connect-src 'none'", "frame-src 'none'", "form-action 'none'"} <= set(policy)
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store"
    assert "set-cookie" not in headers
    assert f'data-console="{CONSOLE}"'.encode() in body


async def test_the_address_names_the_domains_of_the_app_but_never_the_console() -> None:
    own = "&".join(f"connect_domains={each}" for each in (CONSOLE, "http://127.0.0.1:8001"))
    found = await ask(f"console={CONSOLE}&connect_domains=https://a.example&{own}")
    assert found is not None
    assert "; connect-src https://a.example; " in found[1]["content-security-policy"]
    assert b"a.example" not in found[2]


@pytest.mark.parametrize(
    "query",
    [
        "",
        "console=https://evil.example",
        "console=http://127.0.0.1:8001",
        "console=javascript://127.0.0.1:8000",
        "console=http://a@127.0.0.1:8000",
        "console=http://[",
        "&".join(["console=http://127.0.0.1:8000", *["connect_domains=https://a.example"] * 300]),
    ],
)
async def test_other_pages_do_not_show_it(query: str) -> None:
    found = await ask(query)
    assert found is not None
    assert found[0] == 403
    assert b"<script>" not in found[2]


async def test_a_console_that_trusts_every_host_writes_no_markup_of_others() -> None:
    sandbox = Sandbox("https://apps.example.com/console", ConsoleGuard(["*"]))
    assert sandbox.respond("GET", "console=https://console.example.com").status == 200
    for host in ("a.example;x", 'a"b', "a%20b", "a,b", "*", "a'b", "\u00e4.example"):
        assert sandbox.respond("GET", f"console=https://{host}").status == 403


async def test_other_methods_and_other_hosts() -> None:
    found = await ask(method="POST")
    assert found is not None
    assert found[0] == 405
    found = await ask(method="HEAD")
    assert found is not None
    assert (found[0], found[2]) == (200, b"")
    assert await ask(hosts=(b"127.0.0.1:8000",)) is None
    assert await ask(hosts=(b"evil.example",)) is None
    assert await ask(hosts=(HOST, HOST)) is None


@pytest.mark.parametrize(
    "url",
    ["apps.example.com", "javascript:alert(1)", "http://127.0.0.1:8000/apps", "https://a.example/?x", "//a"],
)
def test_an_address_that_cannot_be_a_second_origin_is_refused(url: str) -> None:
    with pytest.raises(DefinitionError, match="The sandbox needs"):
        Sandbox(url, ConsoleGuard(["127.0.0.1:8000"]))
