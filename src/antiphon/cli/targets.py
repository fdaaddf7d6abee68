"""Which server a command is about, and how to reach it."""

from __future__ import annotations

import sys
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from antiphon.cli.exit_codes import FAILED, UNREACHABLE, USAGE, CommandError
from antiphon.cli.run.load import is_file, split
from antiphon.errors import AntiphonError, ProcessEnded, RequestError, TimedOut

if TYPE_CHECKING:
    from antiphon.client import Client

__all__ = ["Target", "is_url", "run", "split_words"]

T = TypeVar("T")

_HINT = " Give it more time with timeout=."
"""What a client says to a program, for which a person at a terminal has an option."""


@dataclass(frozen=True, slots=True)
class Target:
    """A server at a URL, or one that is started from a file for the one command."""

    place: str | list[str]
    headers: Mapping[str, str]
    timeout: float

    @classmethod
    def of(cls, place: str, *, headers: Sequence[str], token: str | None, timeout: float) -> Target:
        """From what was written; raises `CommandError`."""
        found = dict(_header(text) for text in headers)
        if token:
            found["Authorization"] = f"Bearer {token}"
        if is_file(place):
            if not Path(split(place)[0]).is_file():
                raise CommandError(f"There is no file {split(place)[0]}.")
            command = [sys.executable, "-m", "antiphon", "run", place, "--stdio", "--log-level", "error"]
            return cls(command, found, timeout)
        if not is_url(place):
            raise CommandError(f"{place!r} is neither a URL (http://…) nor a Python file (….py).")
        return cls(place, found, timeout)

    def client(self, **options: Any) -> Client:
        """A client for it, not yet connected."""
        from antiphon.client import Client

        return Client(self.place, headers=self.headers, timeout=self.timeout, **options)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Do it, and turn what goes wrong between us and the server into a `CommandError`."""
    import asyncio

    try:
        return asyncio.run(work)
    except TimedOut as error:
        raise CommandError(
            f"{str(error).removesuffix(_HINT)} To wait longer: --timeout.", UNREACHABLE
        ) from error
    except RequestError as error:
        raise CommandError(f"The server refused: {error.message} ({error.code})", UNREACHABLE) from error
    except ProcessEnded as error:
        # A file that was started for the command: it has said itself what is wrong with it.
        raise CommandError(
            "The server that was started from the file has ended: what it said stands above.",
            _code(error.code),
        ) from error
    except AntiphonError as error:
        raise CommandError(str(error), UNREACHABLE) from error


def _code(code: int | None) -> int:
    return code if code in (FAILED, USAGE) else UNREACHABLE


def is_url(text: str) -> bool:
    """Whether a word is a URL that we can call."""
    return text.startswith(("http://", "https://"))


def split_words(words: Sequence[str], url: str | None) -> tuple[str, str, Sequence[str]]:
    """The target, the tool and its arguments; `url` is the target where none is written.

    Raises `CommandError`.
    """
    first, *rest = words
    if is_url(first) or is_file(first) or not url:
        if not rest:
            raise CommandError(
                f"Say which tool: antiphon call {first} TOOL. To see them: antiphon tools {first}"
                if is_url(first) or is_file(first)
                else f"Say which server: antiphon call URL {first}. Or set ANTIPHON_URL."
            )
        return first, rest[0], rest[1:]
    return url, first, rest


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise CommandError(f"{text!r} is not a header: write --header 'Name: value'.")
    return name.strip(), value.strip()
