"""Writes a command that is a target as one word, so that it can be passed on like a URL.

A zero byte marks such a word: no user can type one. Every command of the command line may import this module,
so it imports no other part of the library.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["is_command", "join_command", "split_command"]

_MARK = "\0"


def join_command(words: Sequence[str]) -> str:
    """Return a program and its arguments as one word."""
    return "".join(f"{_MARK}{word}" for word in words)


def is_command(target: str) -> bool:
    """Return whether a target is a command."""
    return target.startswith(_MARK)


def split_command(target: str) -> list[str]:
    """Return the program and the arguments of a target for which `is_command` is true."""
    return target.split(_MARK)[1:]
