"""Text from the other side, cleaned for lines, texts, JSON and links."""

from __future__ import annotations

import json
import sys
import unicodedata

import pytest

from antiphon.printable import (
    MAX_LINE_CHARACTERS,
    is_visible,
    is_web_url,
    printable,
    printable_json,
    printable_text,
    printable_title,
    printable_url,
    redacted_url,
)

BIDIRECTIONAL = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
CONTROL = "".join(chr(code) for code in (*range(0x20), *range(0x7F, 0xA0)))
FORBIDDEN = f"{CONTROL}{BIDIRECTIONAL}\u2028\u2029\ud800\udbff\udc00\udfff"


def test_a_line_has_no_forbidden_character() -> None:
    for character in FORBIDDEN:
        assert not set(printable(f"a{character}b")) & set(FORBIDDEN), hex(ord(character))
    assert printable("a\r\nb\tc\u2028d") == "a b c d"
    assert printable("\x1b[31mred\x1b[0m") == "[31mred[0m"


def test_a_text_keeps_line_feeds_and_tabs() -> None:
    assert printable_text(f"a{FORBIDDEN}b\n\tc") == "a\t\nb\n\tc"
    assert printable_text("a\r\nb") == "a\nb"


def test_every_other_character_stays() -> None:
    ours = set(FORBIDDEN) | set(map(chr, range(0xD800, 0xE000)))
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        if character not in ours:
            assert printable(character) == character, unicodedata.name(character, hex(code))


def test_a_title_has_nothing_that_shows_nothing_and_keeps_what_letters_are_made_with() -> None:
    assert printable_title("p\u200bay\u2060\ufeff \u3164me\U000e0061\u00ad") == "pay me"
    for text in ("نمی\u200cدانم", "👩\u200d💻", "☁\ufe0f", "größe"):
        assert printable_title(text) == text


def test_a_name_is_visible_if_no_character_of_it_can_be_left_out_unseen() -> None:
    assert all(map(is_visible, ("delete", "größe", "a b", "☁", "删除", "notes://{day}")))
    for character in (*FORBIDDEN, *"\u00ad\u200b\u200c\u200d\u2060\ufe0f\ufeff\u3164\U000e0061\U000e0101"):
        assert not is_visible(f"de{character}lete"), hex(ord(character))


def test_a_long_line_is_shortened() -> None:
    assert len(printable("x" * 10**6)) == MAX_LINE_CHARACTERS
    assert printable("abcdef", 4) == "abc…"
    assert printable("abcd", 4) == "abcd"


def test_json_means_the_same_and_has_no_forbidden_character() -> None:
    value = {"a": FORBIDDEN[:-4], "\u202e": ["\x7f"]}
    text = printable_json(json.dumps(value, ensure_ascii=False))
    assert json.loads(text) == value
    assert not set(text) & set(FORBIDDEN)


@pytest.mark.parametrize(
    ("url", "shown", "is_web"),
    [
        ("https://example.com/a?b=c#d", "https://example.com/a?b=c#d", True),
        ("HTTPS://Example.COM/A", "https://example.com/A", True),
        ("https://www.bank.example@evil.example/a", "https://***@evil.example/a", True),
        ("https://bank.example:x@evil.example", "https://***@evil.example", True),
        ("https://evil.example\\@bank.example/", "https://evil.example\\@bank.example/", True),
        ("https://аррӏе.com:81/x", "https://xn--80ak6aa92e.com:81/x", True),
        ("https://faß.de/", "https://xn--fa-hia.de/", True),
        ("https://e.com/\u202egpj.exe\n", "https://e.com/%E2%80%AEgpj.exe%0A", True),
        ("https://\u202emoc.knab/", "https://%e2%80%aemoc.knab/", True),
        ("http://[::1]:8000/", "http://[::1]:8000/", True),
        ("file:///etc/passwd", "file:///etc/passwd", False),
        ("javascript:alert(1)", "javascript:alert(1)", False),
        ("https:evil.example", "https:evil.example", False),
        ("https:///path", "https:///path", False),
        (" https://e.com", "%20https://e.com", False),
        ("", "", False),
    ],
)
def test_a_link_shows_where_it_leads(url: str, shown: str, is_web: bool) -> None:
    assert printable_url(url) == shown
    assert is_web_url(url) is is_web


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://localhost:8000/mcp", "http://localhost:8000/mcp"),
        ("http://ada:s3cret@host/mcp", "http://***@host/mcp"),
        ("http://s3cret@host/mcp", "http://***@host/mcp"),
        ("http://ada:s3@cret@host/mcp", "http://***@host/mcp"),
        ("http://ada:s3/cret@host/mcp", "http://***"),
        ("http://host/mcp?token=s3cret&a=s3cret#s3cret", "http://host/mcp?token=***&a=***"),
        ("http://host/mcp?s3cret", "http://host/mcp?***"),
        ("postgresql://ada:s3cret@host/db", "postgresql://***@host/db"),
        ("htps://ada:s3cret@host", "htps://***@host"),
        ("server.py:name", "server.py:name"),
    ],
)
def test_a_url_of_the_user_is_shown_without_its_secrets(url: str, shown: str) -> None:
    assert redacted_url(url) == shown
    assert "s3" not in shown
