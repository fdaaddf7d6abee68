"""Cleans text from the other side before it is printed or logged. Pure.

A server, a caller or a stored task can send characters that move the cursor of a terminal, reorder what a
person reads, or begin a forged line in a log. The command line, the client and the log filter clean text here
and nowhere else. This module must not know where the text goes.
"""

from __future__ import annotations

import re
from urllib.parse import quote

__all__ = [
    "MAX_LINE_CHARACTERS",
    "is_visible",
    "is_web_url",
    "printable",
    "printable_json",
    "printable_text",
    "printable_title",
    "printable_url",
    "redacted_url",
]

MAX_LINE_CHARACTERS = 2000
"""How many characters of a text a line shows."""

# C0, DEL and C1; marks that reorder text; separators of lines and paragraphs; halves of surrogate pairs.
_INVISIBLE = r"\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_BREAKS = re.compile(r"[\t-\r\x1c-\x1e\x85\u2028\u2029]+")
_IN_A_LINE = re.compile(rf"[\x00-\x1f{_INVISIBLE}]")
_IN_A_TEXT = re.compile(rf"[\x00-\x08\x0b-\x1f{_INVISIBLE}]")
_IN_JSON = re.compile(rf"[{_INVISIBLE}]")
# What Unicode calls default ignorable: it has no width, or is a filler that shows nothing.
_JOINS = r"\u200c\u200d\ufe00-\ufe0f\U000e0100-\U000e01ef"  # letters and pictures are made with these
_NOTHING = (
    r"\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufff8"
    r"\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e00ff\U000e01f0-\U000e0fff"
)
_UNSEEN, _UNSEEN_IN_A_NAME = re.compile(f"[{_NOTHING}]"), re.compile(f"[{_NOTHING}{_JOINS}]")
# A browser takes a backslash for a slash, so the host ends there.
_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)(?P<authority>[^/?#\\]*)(?P<rest>.*)", re.DOTALL)
_HOST = re.compile(r"(?P<host>\[[^\]]*\]|[^:\[\]]*)(?P<port>:[0-9]*)?")
_QUERY_VALUE = re.compile(r"=[^&;#]*")
_ASCII = "".join(map(chr, range(0x21, 0x7F)))


def printable(text: str, limit: int = MAX_LINE_CHARACTERS) -> str:
    """Return a text as one line that cannot control a terminal, shortened to `limit` characters.

    Line breaks and tabs become spaces. Other control characters, marks that reorder text and halves of
    surrogate pairs are removed.
    """
    text = text if len(text) <= limit else f"{text[: limit - 1]}…"
    return text if text.isprintable() else _IN_A_LINE.sub("", _BREAKS.sub(" ", text))


def printable_title(text: str) -> str:
    """Return a title as one line, like `printable`, and without characters that show nothing."""
    return printable(text if text.isascii() else _UNSEEN.sub("", text))


def is_visible(name: str) -> bool:
    """Return whether a person sees every character of a name, so that two names never look the same for one.

    Different letters may still look alike.
    """
    return printable(name, len(name)) == name and _UNSEEN_IN_A_NAME.search(name) is None


def printable_text(text: str) -> str:
    """Return a text of several lines that cannot control a terminal. Line feeds and tabs stay."""
    return text if text.isprintable() else _IN_A_TEXT.sub("", text)


def printable_json(text: str) -> str:
    r"""Return JSON in which the characters that `printable` removes are escapes such as `\u202e`."""
    # JSON has such characters inside of strings only, where an escape means the same.
    return _IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def printable_url(url: str, limit: int = MAX_LINE_CHARACTERS) -> str:
    """Return the URL of a link so that a person sees where it leads.

    The host is written in ASCII, so that it cannot imitate another host. A user name and a password before
    the host are replaced by `***`, because a user name can look like a host.
    """
    found = _URL.match(url)
    if found is None:
        return printable(_quote(url), limit)
    _, at, place = found["authority"].rpartition("@")
    shown = f"{found['scheme'].lower()}{'***@' if at else ''}{_ascii_host(place)}{_quote(found['rest'])}"
    return printable(shown, limit)


def redacted_url(url: str) -> str:
    """Return a URL of the user without its secrets: without the password, and without values of the query.

    A text that is not a URL is returned as one line.
    """
    found = _URL.match(url)
    if found is None:
        return printable(url)
    _, at, place = found["authority"].rpartition("@")
    if not _HOST.fullmatch(place):  # a password with a slash, for example: no part of the text is safe
        return f"{found['scheme']}***"
    host = place if place.isascii() else _ascii_host(place)
    path, mark, query = found["rest"].partition("#")[0].partition("?")
    return printable(
        f"{found['scheme']}{'***@' if at else ''}{host}{path}{mark}{_redacted_query(query) if query else ''}"
    )


def is_web_url(url: str) -> bool:
    """Return whether a URL can be opened in a browser: its scheme is `http` or `https`, and it has a host."""
    found = _URL.match(url)
    if found is None or found["scheme"].lower() not in ("http://", "https://"):
        return False
    host = _HOST.match(found["authority"].rpartition("@")[2])
    return host is not None and bool(host["host"].strip())


def _redacted_query(query: str) -> str:
    """Return the names of a query, each with `***` in place of its value."""
    return _QUERY_VALUE.sub("=***", query) if "=" in query else "***"


def _ascii_host(place: str) -> str:
    """Return a host and its port, with the host in ASCII."""
    if place.isascii():
        return _quote(place).lower()
    host, colon, port = place.rpartition(":") if re.search(r":[0-9]*\Z", place) else (place, "", "")
    try:
        import idna

        ascii_host = idna.encode(host, uts46=True).decode()
    except UnicodeError:
        ascii_host = _quote(host)
    return f"{ascii_host.lower()}{colon}{port}"


def _quote(text: str) -> str:
    """Return a text with spaces, control characters and everything beyond ASCII percent-encoded."""
    return quote(text, safe=_ASCII, errors="replace")
