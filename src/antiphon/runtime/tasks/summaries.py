"""Describes the arguments of a task in one short line, for lists of tasks. Pure, and bounded in its work.

The line is stored with the task. Whoever reads it can read the arguments in the log of the task too: the
operator of the store, and the principal of the task. It must not go anywhere else, so it is not logged. Only
`antiphon dev` prints it, for the author who calls the tools.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import islice
from typing import Any

from antiphon.printable import printable

__all__ = ["MAX_SUMMARY_CHARACTERS", "summarize"]

MAX_SUMMARY_CHARACTERS = 120
"""The length of the longest summary: about a line of a table."""
_MAX_VALUE_CHARACTERS = 40
"""How many characters of a text are shown."""
_MAX_ARGUMENTS = 8
"""How many arguments are shown: more do not fit into a summary."""
_SECRET = re.compile(r"pass|secret|token|key|credential|auth|pin\b|otp|cookie", re.IGNORECASE)
"""Found in the names of arguments whose values are not shown: a list is often seen over a shoulder."""


def summarize(arguments: Mapping[str, Any] | None) -> str | None:
    """Return the arguments in short, for example `city="Paris", days=3`; `None` without arguments."""
    if not arguments:
        return None
    shown = [_shown(*argument) for argument in islice(arguments.items(), _MAX_ARGUMENTS)]
    if len(arguments) > _MAX_ARGUMENTS:
        shown.append("…")
    return printable(", ".join(shown), MAX_SUMMARY_CHARACTERS)


def _shown(name: str, value: Any) -> str:
    label = printable(name, _MAX_VALUE_CHARACTERS)
    return f"{label}=…" if _SECRET.search(name) else f"{label}={_shown_value(value)}"


def _shown_value(value: Any) -> str:
    if type(value) is int:
        return _shown_integer(value)
    if isinstance(value, str):
        return f'"{printable(value, _MAX_VALUE_CHARACTERS)}"'
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int | float):
        return f"{value:.15g}" if isinstance(value, float) else _shown_integer(value)
    if isinstance(value, Mapping):
        return "{…}" if value else "{}"
    return f"[{len(value)} item{'' if len(value) == 1 else 's'}]" if isinstance(value, list) else "…"


def _shown_integer(value: int) -> str:
    return str(value) if value.bit_length() < 128 else "…"  # a very long number takes long to write
