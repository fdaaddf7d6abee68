"""Which headers of plain requests are checked again, and which were checked before."""

from __future__ import annotations

from antiphon.transport.server.http.known_heads import KnownHeaders
from antiphon.transport.server.http.plain_scopes import USUAL_ACCEPT, PlainScopes, is_usual, note_allowed

HEADERS = {b"host": b"localhost", b"content-type": b"application/json", b"accept": USUAL_ACCEPT}
HERE = ("127.0.0.1", 8000)


def test_headers_are_usual_once_they_were_allowed() -> None:
    scope = PlainScopes(["/mcp"]).of(HERE)[b"/mcp"]
    assert not is_usual(scope, HEADERS)
    note_allowed(scope, HEADERS)
    assert is_usual(scope, HEADERS)
    for name in (b"host", b"origin", b"content-type", b"accept"):
        assert not is_usual(scope, HEADERS | {name: b"other"})


def test_known_headers_note_where_they_are_usual() -> None:
    scope = PlainScopes(["/mcp"]).of(HERE)[b"/mcp"]
    known = KnownHeaders(HEADERS)
    assert not is_usual(scope, known)
    assert known.usual_in is None
    note_allowed(scope, known)
    assert is_usual(scope, known)
    assert known.usual_in is scope


def test_each_address_and_each_path_is_checked_for_itself() -> None:
    scopes = PlainScopes(["/mcp", "/mcp/"])
    note_allowed(scopes.of(HERE)[b"/mcp"], HEADERS)
    assert is_usual(scopes.of(("127.0.0.1", 8000))[b"/mcp"], HEADERS), "connections share the scope"
    assert not is_usual(scopes.of(HERE)[b"/mcp/"], HEADERS)
    assert not is_usual(scopes.of(("192.0.2.1", 8000))[b"/mcp"], HEADERS)


def test_what_is_kept_is_bounded() -> None:
    scopes = PlainScopes(["/mcp"])
    for number in range(200):
        assert list(scopes.of((f"192.0.2.{number}", 1))) == [b"/mcp"]
    assert len(scopes.by_address) <= 64
    scope = scopes.of(HERE)[b"/mcp"]
    for number in range(5000):
        note_allowed(scope, HEADERS | {b"host": b"%d" % number})
    assert len(scope["allowed"]) <= 256
    assert is_usual(scope, HEADERS | {b"host": b"4999"})
    long = HEADERS | {b"content-type": b"application/json; a=" + b"a" * 60_000}
    note_allowed(scope, long)
    assert not is_usual(scope, long), "it is checked each time"
