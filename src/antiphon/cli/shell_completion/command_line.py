"""Reads a line that is being typed in a shell, and writes candidates for it. Pure.

This module knows quotes and the word breaks of bash, and nothing of commands and servers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from antiphon.printable import printable

__all__ = ["BASH_WORD_BREAKS", "Candidate", "Line", "format_candidates", "parse_line"]

BASH_WORD_BREAKS = " \t\n\"'@><=;|&(:"
"""The value that `COMP_WORDBREAKS` has if the user does not change it."""
MAX_CANDIDATES = 500
MAX_CANDIDATE_CHARACTERS = 300
MAX_HELP_CHARACTERS = 80

_PLAIN = frozenset("_@%+=:,./-")
"""Characters beside letters and digits that mean themselves in every shell."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line up to the cursor."""

    words: list[str]
    """The words before the one that is being typed, without quotes."""
    incomplete: str
    """The word that is being typed, without quotes."""
    typed: str
    """The word that is being typed, as it is on the line."""

    @property
    def is_quoted(self) -> bool:
        """Whether the user has typed a quote or a backslash in the word."""
        return self.typed != self.incomplete


@dataclass(frozen=True, slots=True)
class Candidate:
    """A word that could be meant, and a description that some shells show."""

    value: str
    help: str = ""


def parse_line(text: str) -> Line:
    """Split a line as a shell does. A quote that is still open ends at the cursor."""
    words: list[str] = []
    value, start, quote = "", None, ""
    position = 0
    while position < len(text):
        character = text[position]
        if not quote and character.isspace():
            if start is not None:
                words.append(value)
            value, start = "", None
            position += 1
            continue
        start = position if start is None else start
        if character == "\\" and quote != "'":
            position += 1
            value += text[position : position + 1]
        elif character in "'\"" and quote in ("", character):
            quote = "" if quote else character
        else:
            value += character
        position += 1
    return Line(words, value, "" if start is None else text[start:])


def format_candidates(
    candidates: Iterable[Candidate], line: Line, shell: str, word_breaks: str = BASH_WORD_BREAKS
) -> list[str]:
    """Return the lines that the script of a shell reads. Unsafe candidates are left out.

    A candidate that the shell would take for an option, or that contains characters that no terminal shows,
    is not offered: it comes from a server. zsh and fish quote candidates themselves.
    """
    lines: dict[str, None] = {}
    for candidate in candidates:
        value = candidate.value
        if not value.startswith(line.incomplete) or not _is_safe(value, line):
            continue
        if shell == "bash":
            lines[_in_bash(value, line, word_breaks)] = None
        else:
            text = " ".join(printable(candidate.help, MAX_HELP_CHARACTERS).split())
            lines[f"{value}\t{text}" if text else value] = None
        if len(lines) == MAX_CANDIDATES:
            break
    return list(lines)


def _is_safe(value: str, line: Line) -> bool:
    if not value or len(value) > MAX_CANDIDATE_CHARACTERS or not value.isprintable():
        return False
    if value.startswith("-") and not line.incomplete.startswith("-"):
        return False
    # Inside of quotes, the rest of a word would need other escapes.
    return not line.is_quoted or (line.typed[1:] == line.incomplete and all(map(_is_plain, value)))


def _in_bash(value: str, line: Line, word_breaks: str) -> str:
    """Return a candidate as bash inserts it: escaped, and without the part that bash does not replace."""
    kept = 0 if line.is_quoted else max(line.typed.rfind(each) for each in word_breaks or " ") + 1
    if line.typed[:kept].endswith("@"):
        kept -= 1  # bash breaks before this character, and after the others
    rest = value[kept:]
    return "".join(character if _is_plain(character) else f"\\{character}" for character in rest)


def _is_plain(character: str) -> bool:
    return character.isalnum() or character in _PLAIN
