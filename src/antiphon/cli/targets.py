"""The server that a command talks to: a URL, or a Python file that the command starts over stdio."""

from __future__ import annotations

import re
import sys
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from antiphon.cli.exit_codes import FAILED, UNREACHABLE, USAGE, CommandError
from antiphon.errors import AntiphonError, ProcessEnded, RequestError, TimedOut

if TYPE_CHECKING:
    from antiphon.client import Client

__all__ = ["Target", "is_python_file", "is_url", "run_async", "split_call_words", "split_target"]

T = TypeVar("T")

# The path has at least two characters, so that the drive letter of C:\ is not taken for one.
_TARGET = re.compile(r"(?P<place>.{2,}):(?P<name>[A-Za-z_]\w*)\Z")
# The client's hint for programs. The command line replaces it with the name of its option.
_TIMEOUT_HINT = re.compile(r" [^.]*\btimeout=[^ ]*\Z")


@dataclass(frozen=True, slots=True)
class Target:
    """A server and how to connect to it."""

    name: str
    """The URL or the file, as the user wrote it."""
    endpoint: str | list[str]
    """The URL, or the command that starts the file."""
    headers: Mapping[str, str]
    timeout: float
    protocol: str | None = None
    """The only protocol version to use; `None` for the newest one that the server speaks."""

    @classmethod
    def parse(
        cls,
        text: str,
        *,
        headers: Sequence[str],
        token: str | None,
        timeout: float,
        protocol: str | None = None,
    ) -> Target:
        """Parse a target and its options. Raises `CommandError`."""
        parsed = dict(_parse_header(header) for header in headers)
        if token:
            parsed["Authorization"] = f"Bearer {token}"
        if is_python_file(text):
            file = split_target(text)[0]
            if not Path(file).is_file():
                raise CommandError(f"There is no file {file}.")
            if headers:
                raise CommandError(f"{file} is served over stdio, which has no headers: remove --header.")
            command = [sys.executable, "-m", "antiphon", "run", text, "--stdio", "--log-level", "error"]
            # A token may come from the environment, so it is not refused.
            return cls(text, command, {}, timeout, protocol)
        if not is_url(text):
            from antiphon.store import hide_password

            raise CommandError(
                f"{hide_password(text)!r} is neither a URL (http://…) nor a Python file (….py)."
            )
        return cls(text, text, parsed, timeout, protocol)

    @property
    def is_remote(self) -> bool:
        """Whether the target is a URL: its server keeps running when the command ends."""
        return isinstance(self.endpoint, str)

    def client(self, **options: Any) -> Client:
        """Create a client for the target. The client is not connected yet. Raises `CommandError`."""
        from antiphon.client import Client

        given = {"protocol": self.protocol, **options}
        try:
            return Client(self.endpoint, headers=self.headers, timeout=self.timeout, **given)
        except ValueError as error:  # an unknown protocol version
            raise CommandError(str(error)) from None


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine, and raise errors of the connection or the server as `CommandError`."""
    import asyncio

    try:
        return asyncio.run(work)
    except TimedOut as error:
        message = _TIMEOUT_HINT.sub("", str(error))
        raise CommandError(f"{message} To wait longer, use --timeout.", UNREACHABLE) from error
    except RequestError as error:
        raise CommandError(
            f"The server returned an error: {error.message} (code {error.code})", UNREACHABLE
        ) from error
    except ProcessEnded as error:
        # The process of a file has already printed the reason.
        code = error.code if error.code in (FAILED, USAGE) else UNREACHABLE
        raise CommandError("The server's process exited. Its output is above.", code) from error
    except AntiphonError as error:
        raise CommandError(str(error), UNREACHABLE) from error


def is_url(text: str) -> bool:
    """Return whether a word is an HTTP URL."""
    return text.startswith(("http://", "https://"))


def split_target(target: str) -> tuple[str, str | None]:
    """Split a target into its file or module, and the name of the server if it has one."""
    match = _TARGET.match(target)
    return (match["place"], match["name"]) if match else (target, None)


def is_python_file(target: str) -> bool:
    """Return whether a target names a Python file. The file need not exist."""
    return "://" not in target and split_target(target)[0].endswith(".py")


def split_call_words(words: Sequence[str], url: str | None) -> tuple[str, str, Sequence[str]]:
    """Split the words of `antiphon call` into the target, the tool and the arguments.

    `url` is the target if the words name none. Raises `CommandError`.
    """
    first, *rest = words
    names_target = is_url(first) or is_python_file(first)
    if not names_target and url:
        return url, first, rest
    if rest:
        return first, rest[0], rest[1:]
    raise CommandError(
        f"Missing tool: antiphon call {first} TOOL. To list the tools: antiphon tools {first}"
        if names_target
        else f"Missing target: antiphon call URL {first}. Or set ANTIPHON_URL."
    )


def _parse_header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise CommandError(f"{text!r} is not a header. Write --header 'Name: value'.")
    return name.strip(), value.strip()
