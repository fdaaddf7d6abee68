"""URI templates: matches URIs and returns the values of the variables.

Supports the part of RFC 6570 that servers use: `{name}` matches up to a slash, `{+name}` and `{name*}` match
slashes too, and `{?a,b}` matches optional query parameters.
"""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, unquote

from antiphon.errors import DefinitionError

__all__ = ["UriTemplate"]

_EXPRESSION = re.compile(r"\{([+?]?)([^{}]*)\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\*?)\Z")


class UriTemplate:
    """A URI template with its variables."""

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
            raise DefinitionError(f"The URI template {text!r} has an unclosed brace: write {{name}}.")
        self._pattern = re.compile(pattern + r"\Z")

    @staticmethod
    def is_template(text: str) -> bool:
        """Return whether a URI has variables."""
        return "{" in text

    def match(self, uri: str) -> dict[str, str] | None:
        """Return the values of the variables, or `None` if the URI does not match."""
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
                f"The URI template {self.text!r} has an invalid or repeated variable {text!r}."
            )
        self.names = (*self.names, name)
        return name, bool(match[1])
