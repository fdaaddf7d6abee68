"""Reads `WWW-Authenticate` headers. Pure.

https://datatracker.ietf.org/doc/html/rfc9110#section-11.6.1
"""

from __future__ import annotations

import re

__all__ = ["bearer_parameters", "schemes", "split_scopes"]

_MAX_CHARACTERS = 16 * 1024
_MAX_SCOPES = 200
# A parameter, or the scheme of the next challenge.
_PART = re.compile(
    r"[\s,]*(?:(?P<name>[A-Za-z0-9!#$%&'*+.^_`|~-]+)\s*=\s*"
    r'(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>[^\s,"]*))'
    r"|(?P<scheme>[A-Za-z0-9!#$%&'*+.^_`|~-]+))"
)
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,200}")


def bearer_parameters(header: str) -> dict[str, str]:
    """Return the parameters of the first Bearer or DPoP challenge in a header; empty without one."""
    parameters: dict[str, str] = {}
    is_bearer = False
    for part in _PART.finditer(header[:_MAX_CHARACTERS]):
        if part["scheme"] is not None:
            if is_bearer and parameters:
                break
            is_bearer = part["scheme"].lower() in ("bearer", "dpop")
        elif is_bearer:
            quoted = part["quoted"]
            value = part["plain"] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
            parameters.setdefault(part["name"].lower(), value)
    return parameters


def schemes(header: str) -> frozenset[str]:
    """Return the schemes of the challenges in a header, in lower case."""
    found = (part["scheme"] for part in _PART.finditer(header[:_MAX_CHARACTERS]))
    return frozenset(scheme.lower() for scheme in found if scheme is not None)


def split_scopes(text: object) -> tuple[str, ...]:
    """Return the scopes in a text, each once; those that no scope can look like are left out."""
    if not isinstance(text, str):
        return ()
    found = (scope for scope in text.split(" ") if _SCOPE.fullmatch(scope))
    return tuple(dict.fromkeys(found))[:_MAX_SCOPES]
