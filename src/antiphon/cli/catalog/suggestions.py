"""`antiphon complete`: prints the values that a server suggests for an argument."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import msgspec

from antiphon.cli import render
from antiphon.cli.exit_codes import CommandError
from antiphon.cli.targets import Target, run_async
from antiphon.model.outcome import Completion
from antiphon.printable import printable

__all__ = ["list_suggestions"]


def list_suggestions(target: Target, reference: str, words: Sequence[str], *, as_json: bool) -> None:
    """Print the suggested values, one on a line. Raises `CommandError`.

    `words` are the argument, the start of its value, and `key=value` for other arguments.
    """
    if not words:
        raise CommandError(f"Missing argument: antiphon complete … {printable(reference)} ARGUMENT [VALUE].")
    value = words[1] if len(words) > 1 else ""
    context = dict(_parse_pair(pair) for pair in words[2:])
    found = run_async(_complete(target, reference, words[0], value, context), target)
    if as_json:
        print(render.pretty(_as_json(found)))
        return
    for suggestion in found.values:
        print(printable(suggestion))
    if found.has_more:
        total = "" if found.total is None else f" of {found.total}"
        print(f"The server sent the first {len(found.values)}{total} values only.", file=sys.stderr)


def _parse_pair(pair: str) -> tuple[str, str]:
    key, equals, value = pair.partition("=")
    if not equals or not key:
        raise CommandError(f"{pair!r} is not the value of another argument. Write key=value.")
    return key, value


def _as_json(found: Completion) -> dict[str, object]:
    """Return suggestions with the keys of the protocol."""
    value = {"values": found.values, "total": found.total, "hasMore": found.has_more}
    return {key: each for key, each in msgspec.to_builtins(value).items() if each is not None}


async def _complete(
    target: Target, reference: str, argument: str, value: str, context: dict[str, str]
) -> Completion:
    async with target.client() as client:
        return await client.complete(reference, argument, value, context)
