"""The policy of an App: the domains that it names, and nothing else."""

from __future__ import annotations

import pytest

from antiphon.console.apps.policy import (
    MAX_DOMAINS,
    allowed_csp,
    read_domains,
    sandbox_policy,
    write_domains,
)
from antiphon.model.ui import UiCsp

CONSOLE = "http://127.0.0.1:8000"
FULL = UiCsp(
    connect_domains=("https://api.example.com", "wss://live.example.com"),
    resource_domains=("https://*.example.net",),
    frame_domains=("https://video.example.com",),
    base_uri_domains=("https://base.example.com",),
)


def directives(policy: str) -> dict[str, str]:
    return dict(each.split(" ", 1) for each in policy.split("; "))


def test_an_app_that_names_no_domain_reaches_none() -> None:
    assert directives(sandbox_policy(UiCsp(), CONSOLE)) == {
        "default-src": "'none'",
        "script-src": "'unsafe-inline'",
        "style-src": "'unsafe-inline'",
        "img-src": "data:",
        "font-src": "'none'",
        "media-src": "data:",
        "connect-src": "'none'",
        "frame-src": "'none'",
        "object-src": "'none'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": CONSOLE,
        "sandbox": "allow-scripts allow-same-origin allow-forms",
    }


def test_an_app_reaches_the_domains_that_it_names_each_for_its_use() -> None:
    found = directives(sandbox_policy(FULL, CONSOLE))
    assert found["connect-src"] == "https://api.example.com wss://live.example.com"
    for name in ("script-src", "style-src", "img-src", "font-src", "media-src"):
        assert found[name].endswith("https://*.example.net")
    assert found["frame-src"] == "https://video.example.com"
    assert found["base-uri"] == "https://base.example.com"
    assert found["frame-ancestors"] == CONSOLE


def test_domains_travel_in_an_address() -> None:
    assert read_domains(write_domains(FULL)) == FULL
    assert write_domains(UiCsp()) == []


@pytest.mark.parametrize(
    ("field", "domain"),
    [
        ("connect_domains", "*"),
        ("connect_domains", "https://a.example; script-src *"),
        ("connect_domains", "https://a.example https://b.example"),
        ("connect_domains", "https://a.example\r\nx: y"),
        ("connect_domains", "'self'"),
        ("connect_domains", "http://a.example"),
        ("connect_domains", "https://a.example:99999"),
        ("resource_domains", "data:"),
        ("resource_domains", "wss://a.example"),
        ("unknown", "https://a.example"),
    ],
)
def test_an_address_adds_nothing_but_origins_to_the_policy(field: str, domain: str) -> None:
    csp = allowed_csp(read_domains([(field, domain)]), [CONSOLE])
    assert sandbox_policy(csp, CONSOLE) == sandbox_policy(UiCsp(), CONSOLE)


@pytest.mark.parametrize(
    ("domain", "origin"),
    [
        ("http://127.0.0.1:8000", CONSOLE),
        ("http://LOCALHOST:8000", "http://localhost:8000"),
        ("http://localhost:8000", CONSOLE),
        ("https://console.example.com", "https://console.example.com"),
        ("https://console.example.com:443", "https://console.example.com"),
        ("https://*.example.com", "https://console.example.com"),
    ],
)
def test_an_app_never_reaches_the_console(domain: str, origin: str) -> None:
    assert allowed_csp(UiCsp(connect_domains=(domain,)), [origin]) == UiCsp()


@pytest.mark.parametrize(
    ("domain", "origin"),
    [
        ("http://127.0.0.1:5173", CONSOLE),
        ("https://api.example.com", "https://console.example.com"),
        ("https://*.example.com", "https://example.com"),
        ("https://console.example.com:8443", "https://console.example.com"),
    ],
)
def test_an_app_reaches_neighbours_of_the_console(domain: str, origin: str) -> None:
    wanted = UiCsp(connect_domains=(domain,))
    assert allowed_csp(wanted, [origin]) == wanted


def test_the_number_of_domains_is_bounded() -> None:
    many = tuple(f"https://a{number}.example.com" for number in range(MAX_DOMAINS + 1))
    assert len(allowed_csp(UiCsp(connect_domains=many), []).connect_domains) == MAX_DOMAINS
