"""Reads `WWW-Authenticate` headers. Pure.

https://datatracker.ietf.org/doc/html/rfc9110#section-11.6.1
"""

from __future__ import annotations

import re
from collections.abc import Iterator

__all__ = ["bearer_parameters", "schemes", "split_scopes"]

_MAX_CHARACTERS = 4096
_MAX_SCOPES = 200
# A parameter, the scheme of the next challenge, or a character that belongs to neither. Repetitions are
# possessive: a server sends the text, and the time to read it must not grow faster than its length.
_PART = re.compile(
    r"[\s,]*+(?:(?P<name>[A-Za-z0-9!#$%&'*+.^_`|~-]++)(?P<value>\s*+=\s*+"
    r'(?:"(?P<quoted>(?:[^"\\]|\\.)*+)"|(?P<plain>[^\s,"]*+)))?+|[^\s,])'
)
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,200}")


def bearer_parameters(header: str) -> dict[str, str]:
    """Return the parameters of the first Bearer or DPoP challenge in a header; empty without one."""
    parameters: dict[str, str] = {}
    is_bearer = False
    for part in _parts(header):
        if part["value"] is None:
            if is_bearer and parameters:
                break
            is_bearer = part["name"].lower() in ("bearer", "dpop")
        elif is_bearer:
            quoted = part["quoted"]
            value = part["plain"] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
            parameters.setdefault(part["name"].lower(), value)
    return parameters


def schemes(header: str) -> frozenset[str]:
    """Return the schemes of the challenges in a header, in lower case."""
    return frozenset(part["name"].lower() for part in _parts(header) if part["value"] is None)


def split_scopes(text: object) -> tuple[str, ...]:
    """Return the scopes in a text, each once; those that no scope can look like are left out."""
    if not isinstance(text, str):
        return ()
    found = (scope for scope in text.split(" ") if _SCOPE.fullmatch(scope))
    return tuple(dict.fromkeys(found))[:_MAX_SCOPES]


def _parts(header: str) -> Iterator[re.Match[str]]:
    """Yield the parameters and the schemes in a header."""
    text, position = header[:_MAX_CHARACTERS], 0
    # `finditer` would try again at each of many commas at the end.
    while (part := _PART.match(text, position)) is not None:
        if part["name"] is not None:
            yield part
        position = part.end()
