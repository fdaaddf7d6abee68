"""The server that a command talks to: a URL, or a Python file or a program that it starts over stdio."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from antiphon.cli.command_words import is_command, split_command
from antiphon.cli.exit_codes import FAILED, UNREACHABLE, USAGE, CommandError
from antiphon.errors import AntiphonError, ProcessEnded, RequestError, TimedOut, Unauthorized
from antiphon.printable import printable, redacted_url
from antiphon.server_target import ServerTarget

if TYPE_CHECKING:
    from antiphon.client import Client

__all__ = [
    "Target",
    "is_python_file",
    "is_url",
    "names_target",
    "parse_environment",
    "parse_header",
    "run_async",
    "split_call_words",
    "split_read_words",
    "split_target",
]

T = TypeVar("T")

RESPONSE_TIMEOUT_SECONDS = 60.0
MAX_NAME_CHARACTERS = 200

# The path has at least two characters, so that the drive letter of C:\ is not taken for one.
_TARGET = re.compile(r"(?P<place>.{2,}):(?P<name>[A-Za-z_]\w*)\Z")
# The client's hint for programs. The command line replaces it with the name of its option.
_TIMEOUT_HINT = re.compile(r" [^.]*\b(?:connect_)?timeout=[^ ]*\Z")


@dataclass(frozen=True, slots=True)
class Target(ServerTarget):
    """A server that a word of the command line names."""

    is_command: bool = False
    """Whether the user named the command that starts the server."""

    @classmethod
    def parse(
        cls,
        text: str,
        *,
        headers: Sequence[str] | None,
        token: str | None,
        timeout: float | None,
        protocol: str | None = None,
        env: Sequence[str] | None = None,
        stderr: bool = False,
    ) -> Target:
        """Parse a target and its options. Raises `CommandError`."""
        parsed = dict(parse_header(header) for header in headers or ())
        response_timeout = RESPONSE_TIMEOUT_SECONDS if timeout is None else timeout
        if token:
            parsed["Authorization"] = f"Bearer {token}"
        if is_command(text):
            if headers:
                raise CommandError("A command is served over stdio, which has no headers: remove --header.")
            words = split_command(text)
            return cls(
                printable(shlex.join(map(redacted_url, words)), MAX_NAME_CHARACTERS),
                words,
                {},
                response_timeout,
                protocol,
                parse_environment(env, {}),
                timeout,
                is_command=True,
                keeps_errors=not stderr,
            )
        if is_python_file(text):
            file = split_target(text)[0]
            if not Path(file).is_file():
                raise CommandError(f"There is no file {file}.")
            if headers:
                raise CommandError(f"{file} is served over stdio, which has no headers: remove --header.")
            command = [sys.executable, "-m", "antiphon.cli.run", text]
            # A token may come from the environment, so it is not refused.
            variables = parse_environment(env, _own_variables())
            return cls(text, command, {}, response_timeout, protocol, variables, timeout)
        if not is_url(text):
            from antiphon.store import hide_password

            shown = redacted_url(hide_password(text))
            raise CommandError(
                f"{shown!r} is neither a URL (http://…) nor a Python file (….py). "
                "To start a command, write it at the end after two dashes: -- COMMAND."
            )
        if env or stderr:
            option = "--env" if env else "--stderr"
            raise CommandError(f"A URL starts no process: remove {option}. It is for a command.")
        return cls(redacted_url(text), text, parsed, response_timeout, protocol, None, timeout)

    def client(self, **options: Any) -> Client:
        """Create a client for the target. The client is not connected yet. Raises `CommandError`."""
        try:
            # The decorator makes another class of this one, so `super()` without arguments fails.
            return ServerTarget.client(self, **options)
        except ValueError as error:  # an unknown protocol version
            raise CommandError(str(error)) from None


def run_async(work: Coroutine[Any, Any, T], target: Target | None = None) -> T:
    """Run a coroutine, and raise errors of the connection or the server as `CommandError`.

    The error of a target that asks for a login says how to log in.
    """
    import asyncio

    from antiphon.cli.signals import cancelled_by_signals, woken_by_signals

    if target is not None and not target.is_remote:
        work = cancelled_by_signals(work)
    try:
        return asyncio.run(woken_by_signals(work))
    except AntiphonError as error:
        raise _command_error(error, target) from error


def _command_error(error: AntiphonError, target: Target | None) -> CommandError:
    """Return the error that ends a command, for an error of the connection or the server."""
    message, code = str(error), UNREACHABLE
    if isinstance(error, TimedOut):
        message = f"{_TIMEOUT_HINT.sub('', message)} To wait longer, use --timeout."
    elif isinstance(error, RequestError):
        message = f"The server returned an error: {error.message} (code {error.code})"
        message += _login_hint(error, target)
    if target is not None and target.is_command:
        return _error_of_command(error, message, target)
    if isinstance(error, ProcessEnded):
        # The process of a file has already printed the reason.
        code = error.code if error.code in (FAILED, USAGE) else UNREACHABLE
        message = "The server's process exited. Its output is above."
    return CommandError(message, code)


def _error_of_command(error: AntiphonError, message: str, target: Target) -> CommandError:
    """Return the error of a command that the user named, with the last lines that the command printed."""
    printed = target.last_errors
    if isinstance(error, ProcessEnded):
        if target.keeps_errors and not printed:
            message += " It printed nothing to standard error."
        if error.code:
            message += " If it needs variables of your environment, pass them with --env NAME."
    details = f"The last lines that the command printed to standard error:\n{printed}" if printed else ""
    return CommandError(message, UNREACHABLE, details=details)


def _login_hint(error: RequestError, target: Target | None) -> str:
    """Return what to run if the server says where its callers get tokens; otherwise an empty text."""
    challenge = dict(error.headers).get("www-authenticate", "") if isinstance(error, Unauthorized) else ""
    if "resource_metadata" not in challenge:
        return ""
    return f". Log in: antiphon login {'URL' if target is None else shlex.quote(target.name)}"


def is_url(text: str) -> bool:
    """Return whether a word is an HTTP URL."""
    return text.startswith(("http://", "https://"))


def split_target(target: str) -> tuple[str, str | None]:
    """Split a target into its file or module, and the name of the server if it has one."""
    match = _TARGET.match(target)
    return (match["place"], match["name"]) if match else (target, None)


def is_python_file(target: str) -> bool:
    """Return whether a target names a Python file. The file need not exist."""
    return "://" not in target and not is_command(target) and split_target(target)[0].endswith(".py")


def split_call_words(
    words: Sequence[str], url: str | None, *, command: str = "call", noun: str = "tool"
) -> tuple[str, str, Sequence[str]]:
    """Split the words of `antiphon call` into the target, the tool and the arguments.

    `url` is the target if the words name none. `command` and `noun` are for the messages of other commands,
    which name a prompt or a resource in place of the tool. Raises `CommandError`.
    """
    first, *rest = words
    is_target = names_target(first)
    if is_command(first) and rest and names_target(rest[0]):
        raise CommandError(f"There are two targets: {redacted_url(rest[0])} and a command. Remove one.")
    if not is_target and url:
        return url, first, rest
    if rest:
        return first, rest[0], rest[1:]
    lists = f"To list the {noun}s: antiphon {noun}s"
    if is_command(first):
        shown = shlex.join(map(redacted_url, split_command(first)))
        raise CommandError(
            f"Missing {noun}: antiphon {command} {noun.upper()} -- {shown}. {lists} -- {shown}"
        )
    shown = redacted_url(first)
    raise CommandError(
        f"Missing {noun}: antiphon {command} {shown} {noun.upper()}. {lists} {shown}"
        if is_target
        else f"Missing target: antiphon {command} URL {shown}. Or set ANTIPHON_URL."
    )


def split_read_words(words: Sequence[str], url: str | None) -> tuple[str, str]:
    """Split the words of `antiphon read` into the target and the URI of the resource. Raises `CommandError`.

    A URI can look like a target, so the number of words decides which of them is one.
    """
    if len(words) == 1 and url and not is_command(words[0]):
        return url, words[0]
    if len(words) == 2 and is_command(words[0]):
        return words[0], words[1]
    place, uri, others = split_call_words(words, url, command="read", noun="resource")
    if others:
        raise CommandError(f"Unexpected argument: {printable(others[0])!r}. antiphon read takes one URI.")
    return place, uri


def names_target(word: str) -> bool:
    """Return whether the first word of a command names a target, and not a tool or a prompt."""
    # A URL with braces is a resource template.
    return (is_url(word) and "{" not in word) or is_python_file(word) or is_command(word)


def parse_header(text: str) -> tuple[str, str]:
    """Return the name and the value of an HTTP header. Raises `CommandError`."""
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        # The text may be a token, so it is not repeated.
        raise CommandError("An option --header has no name and value. Write --header 'Name: value'.")
    return name.strip(), value.strip()


def _own_variables() -> dict[str, str]:
    """Return the variables that a file of the user has under `antiphon run`, such as its secrets.

    The token and the URL of another server, and functions of the shell, are left out.
    """
    return {
        name: value
        for name, value in os.environ.items()
        if name not in ("ANTIPHON_TOKEN", "ANTIPHON_URL") and not value.startswith("()")
    }


def parse_environment(options: Sequence[str] | None, others: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of `--env NAME=VALUE` and `--env NAME`, and the others. Raises `CommandError`."""
    found = dict(others)
    for option in options or ():
        name, equals, value = option.partition("=")
        if not name:
            raise CommandError("An option --env has no name. Write --env NAME=VALUE, or --env NAME.")
        if not equals and name not in os.environ:
            raise CommandError(f"--env {name}: there is no such variable in the environment.")
        found[name] = value if equals else os.environ[name]
    return found
