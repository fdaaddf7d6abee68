"""Reads docstrings: the description of a function and of its parameters.

Understands the Google, Sphinx and NumPy styles. It must not know signatures or types.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

__all__ = ["read"]

_GOOGLE_SECTIONS = re.compile(
    r"^(args|arguments|parameters|params|returns?|raises|yields?|examples?|notes?|attributes|todo|warns?)\s*:\s*$",
    re.IGNORECASE,
)
_GOOGLE_ITEM = re.compile(r"^(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")
_SPHINX_ITEM = re.compile(r"^:(param|parameter|arg|argument)\s+(?:[^:]*\s)?(\w+)\s*:\s*(.*)$")
_SPHINX_FIELD = re.compile(r"^:\w+[^:]*:")
_NUMPY_SECTION = re.compile(r"^-{3,}\s*$")
_NUMPY_ITEM = re.compile(r"^(\w+)\s*(?::.*)?$")


def read(function: Callable[..., Any]) -> tuple[str | None, dict[str, str]]:
    """Return the description of a function, and those of the parameters that its docstring describes."""
    text = inspect.getdoc(function)
    if not text:
        return None, {}
    lines = text.splitlines()
    description: list[str] = []
    parameters: dict[str, str] = {}
    index = 0
    while index < len(lines):
        line = lines[index]
        if (section := _GOOGLE_SECTIONS.match(line)) and index + 1 < len(lines):
            index = _section(lines, index + 1, section[1], parameters, _GOOGLE_ITEM, indented=True)
        elif index + 1 < len(lines) and _NUMPY_SECTION.match(lines[index + 1]) and line.strip():
            index = _section(lines, index + 2, line, parameters, _NUMPY_ITEM, indented=False)
        elif item := _SPHINX_ITEM.match(line):
            index, more = _continuation(lines, index + 1)
            parameters[item[2]] = " ".join([item[3].strip(), *more]).strip()
        elif _SPHINX_FIELD.match(line):
            index, _ = _continuation(lines, index + 1)
        else:
            description.append(line)
            index += 1
    return "\n".join(description).strip() or None, parameters


def _section(
    lines: list[str], start: int, title: str, found: dict[str, str], item: re.Pattern[str], *, indented: bool
) -> int:
    """Read a section into `found` if it describes parameters; return the index of the line after it."""
    wanted = title.strip().lower() in {"args", "arguments", "parameters", "params"}
    margin: int | None = None
    name: str | None = None
    index = start
    while index < len(lines):
        line = lines[index]
        stripped = line.strip()
        depth = len(line) - len(line.lstrip())
        if stripped and indented and depth == 0:
            break
        if not indented and index + 1 < len(lines) and _NUMPY_SECTION.match(lines[index + 1]):
            break
        index += 1
        if not stripped:
            continue
        margin = depth if margin is None else margin
        if depth <= margin and (match := item.match(stripped)):
            name = match[1]
            if wanted:
                found[name] = match[2].strip() if match.re.groups > 1 else ""
        elif wanted and name is not None:
            found[name] = f"{found[name]} {stripped}".strip()
    return index


def _continuation(lines: list[str], index: int) -> tuple[int, list[str]]:
    """Return the index after the indented lines that follow, and those lines."""
    more: list[str] = []
    while index < len(lines) and lines[index].startswith((" ", "\t")) and lines[index].strip():
        more.append(lines[index].strip())
        index += 1
    return index, more
