"""JSON as people write it into configuration files: with comments, and with a comma after the last item.

Owns that difference only. It must not know what is in a file.
"""

from __future__ import annotations

import re

__all__ = ["plain_json"]

_STRING = r'"(?:[^"\\]|\\.)*"'
_COMMENT = re.compile(rf"{_STRING}|//[^\n]*|/\*.*?\*/", re.DOTALL)
_LAST_COMMA = re.compile(rf"{_STRING}|,(?=\s*[\]}}])", re.DOTALL)


def plain_json(text: str) -> str:
    """Return a text without comments and without commas after last items. Other mistakes stay."""
    return _LAST_COMMA.sub(_kept, _COMMENT.sub(_kept, text))


def _kept(part: re.Match[str]) -> str:
    """Return a string as it is, because it may contain anything, and a space for the rest."""
    return part[0] if part[0].startswith('"') else " "
