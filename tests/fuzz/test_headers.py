"""The headers that decide: Accept, Host and Origin, and those that repeat the body."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from antiphon.errors import BadOrigin, HeaderMismatch, NotAcceptable
from antiphon.transport.server.http import guard
from antiphon.transport.server.http.cors import Cors
from antiphon.transport.server.http.guard import Guard
from antiphon.wire import mirrored_headers
from tests.fuzz.strategies import ANY_TEXT, header_bytes, near, target

RANGES = near(b"application/json", b"text/event-stream", b"*/*", b"text/*", b"application/*", b"text/html")
ACCEPT = (
    st.lists(RANGES | header_bytes(b"application/json;q=0.5", b"TEXT/Event-Stream ; a=b"), max_size=4).map(
        b",".join
    )
    | header_bytes()
)


@target
@given(ACCEPT)
@example(b"\r\napplication/json;q=0.5")
def test_accept_is_read_as_a_list_of_media_ranges(raw: bytes) -> None:
    ranges = [part.split(";")[0].strip(" \t").lower() for part in raw.decode("latin-1").split(",")]
    json = [place for place, kind in enumerate(ranges) if kind in ("application/json", "application/*")]
    stream = [place for place, kind in enumerate(ranges) if kind in ("text/event-stream", "text/*")]
    either = [place for place, kind in enumerate(ranges) if kind == "*/*"]
    for _ in range(2):  # the second answer is a cached one
        try:
            prefers_json, takes_streams = guard.accepts(raw)
        except NotAcceptable:
            assert not json + stream + either
            return
        assert takes_streams == bool(stream + either)
        assert prefers_json == (min(json + either, default=99) <= min(stream + either, default=98))


HOSTS = header_bytes(
    b"localhost", b"127.0.0.1:8000", b"[::1]:8000", b"LOCALHOST:1", b"evil.example",
    b"localhost.evil.example", b"[::1].evil.example", b"[::1]evil.example:80", b"127.0.0.1.evil.example",
    b"evil.example#localhost",    b"localhost:80@evil.example", b"[::1", b"::1",
)  # fmt: skip
ORIGINS = HOSTS.map(lambda host: b"http://" + host) | header_bytes(
    b"null",
    b"https://evil.example",
    b"file://",
    b"http://localhost/",
    b"http://evil.example://localhost",
    b"https://api.example.evil.example",
    b"https://evil-api.example",
    b"https://app.example.evil.example",
    b"https://api.example@evil.example",
    b"http://api.example:8000",
)
_LOCAL_AUTHORITY = re.compile(r"(localhost|127(\.\d+){3}|\[::1\]|::1)(:\d*)?")
_LOCAL_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://(localhost|127(\.\d+){3}|\[::1\]|::1)(:\d*)?/?")


@target
@given(st.none() | HOSTS, st.none() | ORIGINS)
@example(None, b"http:\x00//evil.example://localhost")
def test_a_local_server_trusts_local_pages_and_local_names_alone(
    host: bytes | None, origin: bytes | None
) -> None:
    if not is_allowed(Guard({"/mcp"}, None, None), host, origin, "127.0.0.1"):
        return
    name, page = read(host), read(origin)
    assert not name or _LOCAL_AUTHORITY.fullmatch(name), (host, origin)
    assert not page or _LOCAL_ORIGIN.fullmatch(page), (host, origin)


@target
@given(st.none() | HOSTS, st.none() | ORIGINS)
def test_a_public_server_trusts_pages_of_its_own_alone(host: bytes | None, origin: bytes | None) -> None:
    strict = Guard({"/mcp"}, ["api.example"], ["https://app.example"])
    for name in (host, b"api.example", b"API.example:443"):
        for page in (origin, b"https://app.example", None):
            if is_allowed(strict, name, page, "203.0.113.7"):
                assert re.fullmatch(r"api\.example(:\d*)?", read(name))
                assert (
                    page in (None, b"")
                    or read(page) in ("", "https://app.example")
                    or (read(page).partition("://")[2] == read(name))
                ), (name, page)


ADDRESSES = st.sampled_from(
    ["127.0.0.1", "::1", "192.168.1.5", "169.254.3.4", "fe80::1%eth0", "203.0.113.7", None]
)


@target
@given(st.none() | HOSTS, st.none() | ORIGINS, ADDRESSES)
@example(b"[::1%25x]", None, "127.0.0.1")
@example(b"evil.example", b"http://evil.example", "192.168.1.5")
@example(b"evil.example", b"http://evil.example", None)
def test_a_name_that_nobody_named_is_never_trusted_whatever_address_the_socket_has(
    host: bytes | None, origin: bytes | None, address: str | None
) -> None:
    if not is_allowed(Guard({"/mcp"}, None, None), host, origin, address):
        return
    name, page = read(host), read(origin)
    assert not name or _names_nobody(name), (host, origin)
    authority = page.partition("://")[2]
    assert not page or (authority and authority == name) or _LOCAL_ORIGIN.fullmatch(page), (host, origin)


def _names_nobody(host: str) -> bool:
    """Return whether a host is `localhost` or an address, as a browser reads it in a URL."""
    name = host.rpartition(":")[0] if re.search(r":\d*$", host) and not host.endswith("]") else host
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return name == "localhost"
    return "%" not in name


APPS = ["https://app.example", "http://localhost:6274"]


@target
@given(st.lists(ORIGINS | header_bytes(*(app.encode() for app in APPS)), max_size=2), st.booleans())
def test_a_page_may_read_a_response_only_if_its_own_origin_is_named(sent: list[bytes], star: bool) -> None:
    lines: list[tuple[bytes, bytes]] = []

    async def note(message: Any) -> None:
        lines.extend(message["headers"])

    scope = {"headers": [(b"origin", value) for value in sent]}
    sending = Cors(["*"] if star else APPS).extending(scope, note)
    with pytest.raises(StopIteration):
        sending({"type": "http.response.start", "status": 200, "headers": []}).send(None)
    allowed = [value for name, value in lines if name == b"access-control-allow-origin"]
    assert not [name for name, _ in lines if name == b"access-control-allow-credentials"]
    if len(sent) != 1:
        assert not allowed
    elif star:
        assert allowed == [b"*"]
    elif allowed:
        assert allowed == [sent[0].strip(b" \t")]
        assert read(sent[0]) in APPS
    else:
        assert sent[0].decode("latin-1") not in APPS
    if sent and not star:
        assert (b"vary", b"Origin") in lines


@target
@given(st.none() | HOSTS, st.none() | ORIGINS)
def test_the_cache_of_the_guard_never_changes_an_answer(host: bytes | None, origin: bytes | None) -> None:
    assert is_allowed(WARM, host, origin, "127.0.0.1") == is_allowed(
        Guard({"/mcp"}, None, None), host, origin, "127.0.0.1"
    )


WARM = Guard({"/mcp"}, None, None)


def is_allowed(checked: Guard, host: bytes | None, origin: bytes | None, address: str | None) -> bool:
    """Return whether a guard lets a request pass."""
    headers = {b"host": host, b"origin": origin}
    given_ = {name: value for name, value in headers.items() if value is not None}
    server = None if address is None else (address, 8000)
    scope = {"path": "/mcp", "server": server, "headers": list(given_.items())}
    try:
        checked.check(scope, given_)
    except BadOrigin:
        return False
    return True


def read(raw: bytes | None) -> str:
    """Return a header value as a browser means it."""
    return "" if raw is None else raw.decode("latin-1").strip().lower()


MIRRORED = {"mcp-param-region": ("region",), "mcp-param-zone": ("where", "zone")}
ARGUMENTS = (
    near(0, 1, 10, -1, "a", "", True)
    | ANY_TEXT
    | st.integers(-(2**60), 2**60)
    | st.booleans()
    | st.none()
    | st.floats()
    | st.just([])
)
VALUES = header_bytes(
    b"a", b"0", b"1", b"-1", b"true", b"false", b"1_0", b"1e1", b"10", b"0x10", b"inf", b"nan", b" 1", b"1.0",
    b"=?base64?YQ==?=", b"=?base64??=", b"=?base64?", b"?=",
)  # fmt: skip
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")
"""A number as JSON writes it."""
SPELLINGS = (
    "{}",
    "{}.0",
    "{}.4",
    "{:_}",
    "+{}",
    "0{}",
    "{}e0",
    " {} ",
    "{}0e-1",
    "{}.",
    "{}\u0660",
    "=?base64?{}?=",
)


@st.composite
def mirrored(draw: Callable[[Any], Any]) -> tuple[Any, bytes]:
    """An argument and a header: unrelated ones, or a number in many spellings."""
    if draw(st.booleans()):
        return draw(ARGUMENTS), draw(VALUES)
    number = draw(st.integers(-20, 20) | st.integers(1000, 2**54))
    return number, draw(st.sampled_from(SPELLINGS)).format(number).encode("latin-1", "replace")


@target
@given(mirrored())
def test_a_mirrored_header_is_accepted_only_if_a_gateway_reads_the_same_value(
    pair: tuple[Any, bytes],
) -> None:
    value, raw = pair
    if not agrees({"region": value}, {b"mcp-param-region": raw}):
        return
    given_ = mirrored_headers.decode_value(raw.decode("latin-1"))
    if isinstance(value, bool):
        assert given_ == str(value).lower()
    elif isinstance(value, int):
        assert _NUMBER.fullmatch(given_), (value, raw)
        assert Decimal(given_) == value
    else:
        assert value is not None, "the argument is not there"
        assert given_ == value


METHODS_AND_NAMES = near("tools/call", "tools/list", "a", "=?base64?YQ==?=", "é", "") | ANY_TEXT
HEADER_TEXT = VALUES | header_bytes(b"tools/call", b"tools/list", b" a", b"a\t", b"=?base64?w6k=?=")


@target
@given(st.none() | METHODS_AND_NAMES, HEADER_TEXT)
def test_a_header_with_a_method_or_a_name_is_accepted_only_if_a_gateway_reads_the_same(
    value: str | None, raw: bytes
) -> None:
    text = raw.decode("latin-1").strip(" \t")
    if passes(mirrored_headers.check_method, value, {b"mcp-method": raw}):
        assert text == value
    if passes(mirrored_headers.check_name, value, {b"mcp-name": raw}):
        as_it_is = raw.strip() == raw and raw == str(value).encode()
        assert as_it_is or mirrored_headers.decode_value(text) == value
    if value is not None:
        encoded = mirrored_headers.encode_value(value).encode()
        assert passes(mirrored_headers.check_name, value, {b"mcp-name": encoded})
    assert passes(mirrored_headers.check_method, value, {})
    assert passes(mirrored_headers.check_name, value, {})


def passes(check: Callable[[Any, Any], None], value: str | None, headers: Mapping[bytes, bytes]) -> bool:
    """Return whether headers agree with a method or a name."""
    try:
        check(value, headers)
    except HeaderMismatch:
        return False
    return True


@target
@given(st.dictionaries(near("region", "where"), ARGUMENTS | st.dictionaries(near("zone"), ARGUMENTS)))
def test_the_headers_that_our_client_sends_are_accepted(arguments: dict[str, Any]) -> None:
    headers = mirrored_headers.mirror(MIRRORED, arguments)
    assert all(value.isascii() and value.isprintable() for value in headers.values())
    sent = {name.encode(): value.encode() for name, value in headers.items()}
    beyond = [
        value
        for value in (arguments.get("region"), _zone(arguments))
        if (type(value) is int and abs(value) >= 2**53) or isinstance(value, float | list | dict)
    ]
    assert agrees(arguments, sent) or beyond


def _zone(arguments: Mapping[str, Any]) -> Any:
    where = arguments.get("where")
    return where.get("zone") if isinstance(where, dict) else None


def agrees(arguments: Mapping[str, Any], headers: Mapping[bytes, bytes]) -> bool:
    """Return whether the headers repeat the arguments."""
    try:
        mirrored_headers.check(MIRRORED, arguments, headers)
    except HeaderMismatch:
        return False
    return True
