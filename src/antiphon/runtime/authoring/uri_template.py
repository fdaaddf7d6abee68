"""URI templates: which addresses they match, and what the variables are then.

Understands the part of RFC 6570 that servers use: `{name}` up to a slash, `{+name}` or `{name*}`
over slashes, and `{?a,b}` for query parameters, which may be missing.
"""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, unquote

from antiphon.errors import DefinitionError

__all__ = ["UriTemplate"]

_EXPRESSION = re.compile(r"\{([+?]?)([^{}]*)\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\*?)\Z")


class UriTemplate:
    """A family of addresses."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.names: tuple[str, ...] = ()
        self.optional: frozenset[str] = frozenset()
        pattern, position = "", 0
        for match in _EXPRESSION.finditer(text):
            pattern += re.escape(text[position : match.start()])
            pattern += self._expression(match[1], match[2])
            position = match.end()
        pattern += re.escape(text[position:])
        if "{" in re.sub(_EXPRESSION, "", text):
            raise DefinitionError(
                f"The URI template {text!r} has a brace that is not closed: write {{name}}."
            )
        self._pattern = re.compile(pattern + r"\Z")

    @staticmethod
    def is_template(text: str) -> bool:
        """Whether an address has variables in it."""
        return "{" in text

    def match(self, uri: str) -> dict[str, str] | None:
        """The variables of an address, or `None` if it is not of this family."""
        path, _, query = uri.partition("?") if self.optional else (uri, "", "")
        match = self._pattern.match(path)
        if match is None:
            return None
        found = {name: unquote(value) for name, value in match.groupdict().items()}
        if query:
            found.update((name, value) for name, value in parse_qsl(query) if name in self.optional)
        return found

    def _expression(self, operator: str, body: str) -> str:
        if operator == "?":
            names = [self._name(name.strip())[0] for name in body.split(",")]
            self.optional |= frozenset(names)
            return ""
        name, star = self._name(body.strip())
        return f"(?P<{name}>.+)" if operator == "+" or star else f"(?P<{name}>[^/?#]+)"

    def _name(self, text: str) -> tuple[str, bool]:
        match = _NAME.match(text)
        name = text.removesuffix("*")
        if match is None or name in self.names:
            raise DefinitionError(
                f"The URI template {self.text!r} has {text!r}, which is no variable's name or is there twice."
            )
        self.names = (*self.names, name)
        return name, bool(match[1])
