"""The server that a command talks to: a URL, or a Python file that the command starts over stdio."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from antiphon.cli.exit_codes import FAILED, UNREACHABLE, USAGE, CommandError
from antiphon.errors import AntiphonError, ProcessEnded, RequestError, TimedOut, Unauthorized
from antiphon.printable import redacted_url

if TYPE_CHECKING:
    from antiphon.client import Client
    from antiphon.client.oauth.oauth import OAuth

__all__ = ["Target", "is_python_file", "is_url", "run_async", "split_call_words", "split_target"]

T = TypeVar("T")

RESPONSE_TIMEOUT_SECONDS = 60.0

# The path has at least two characters, so that the drive letter of C:\ is not taken for one.
_TARGET = re.compile(r"(?P<place>.{2,}):(?P<name>[A-Za-z_]\w*)\Z")
# The client's hint for programs. The command line replaces it with the name of its option.
_TIMEOUT_HINT = re.compile(r" [^.]*\btimeout=[^ ]*\Z")


@dataclass(frozen=True, slots=True)
class Target:
    """A server and how to connect to it."""

    name: str
    """The URL without its secrets, or the file, as messages show it."""
    endpoint: str | list[str] = field(repr=False)
    """The URL, or the command that starts the file."""
    headers: Mapping[str, str] = field(repr=False)
    timeout: float
    """How long each response may take, in seconds."""
    protocol: str | None = None
    """The only protocol version to use; `None` for the newest one that the server speaks."""
    env: Mapping[str, str] | None = field(default=None, repr=False)
    """The environment of the command, beside the variables that every child gets."""
    limit: float | None = None
    """How long connecting may take, and how long a task may take to end; `None` if the user did not say."""

    @classmethod
    def parse(
        cls,
        text: str,
        *,
        headers: Sequence[str],
        token: str | None,
        timeout: float | None,
        protocol: str | None = None,
        env: Sequence[str] = (),
    ) -> Target:
        """Parse a target and its options. Raises `CommandError`."""
        parsed = dict(_parse_header(header) for header in headers)
        response_timeout = RESPONSE_TIMEOUT_SECONDS if timeout is None else timeout
        if token:
            parsed["Authorization"] = f"Bearer {token}"
        if is_python_file(text):
            file = split_target(text)[0]
            if not Path(file).is_file():
                raise CommandError(f"There is no file {file}.")
            if headers:
                raise CommandError(f"{file} is served over stdio, which has no headers: remove --header.")
            command = [sys.executable, "-m", "antiphon.cli.run", text]
            # A token may come from the environment, so it is not refused.
            return cls(text, command, {}, response_timeout, protocol, _parse_environment(env), timeout)
        if not is_url(text):
            from antiphon.store import hide_password

            raise CommandError(
                f"{redacted_url(hide_password(text))!r} is neither a URL (http://…) nor a Python file (….py)."
            )
        if env:
            raise CommandError("A URL has no environment: remove --env. It is for a Python file.")
        return cls(redacted_url(text), text, parsed, response_timeout, protocol, None, timeout)

    @property
    def is_remote(self) -> bool:
        """Whether the target is a URL: its server keeps running when the command ends."""
        return isinstance(self.endpoint, str)

    def client(self, **options: Any) -> Client:
        """Create a client for the target. The client is not connected yet. Raises `CommandError`."""
        from antiphon.client import Client

        given = {"protocol": self.protocol, "auth": self._stored_login(), **options}
        if self.limit is not None:
            given.setdefault("connect_timeout", self.limit)
        try:
            return Client(self.endpoint, headers=self.headers, env=self.env, timeout=self.timeout, **given)
        except ValueError as error:  # an unknown protocol version
            raise CommandError(str(error)) from None

    @property
    def uses_login(self) -> bool:
        """Whether the client sends the token of a login that is stored for the URL."""
        from antiphon.client.oauth.login_folder import default_folder

        names = {name.lower() for name in self.headers}
        if not isinstance(self.endpoint, str) or "authorization" in names or not default_folder().is_dir():
            return False
        from antiphon.client.oauth.logins import FileLogins

        return FileLogins().find(self.endpoint) is not None

    def _stored_login(self) -> OAuth | None:
        """Return the authorization by a stored login; `None` without one."""
        if not self.uses_login:
            return None
        from antiphon.client.oauth.oauth import OAuth

        return OAuth(interactive=False)


def run_async(work: Coroutine[Any, Any, T], target: Target | None = None) -> T:
    """Run a coroutine, and raise errors of the connection or the server as `CommandError`.

    The error of a target that asks for a login says how to log in.
    """
    import asyncio

    from antiphon.cli.signals import woken_by_signals

    try:
        return asyncio.run(woken_by_signals(work))
    except TimedOut as error:
        message = _TIMEOUT_HINT.sub("", str(error))
        raise CommandError(f"{message} To wait longer, use --timeout.", UNREACHABLE) from error
    except RequestError as error:
        message = f"The server returned an error: {error.message} (code {error.code})"
        raise CommandError(message + _login_hint(error, target), UNREACHABLE) from error
    except ProcessEnded as error:
        # The process of a file has already printed the reason.
        code = error.code if error.code in (FAILED, USAGE) else UNREACHABLE
        raise CommandError("The server's process exited. Its output is above.", code) from error
    except AntiphonError as error:
        raise CommandError(str(error), UNREACHABLE) from error


def _login_hint(error: RequestError, target: Target | None) -> str:
    """Return what to run if the server says where its callers get tokens; otherwise an empty text."""
    challenge = dict(error.headers).get("www-authenticate", "") if isinstance(error, Unauthorized) else ""
    if "resource_metadata" not in challenge:
        return ""
    import shlex

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
    shown = redacted_url(first)
    raise CommandError(
        f"Missing tool: antiphon call {shown} TOOL. To list the tools: antiphon tools {shown}"
        if names_target
        else f"Missing target: antiphon call URL {shown}. Or set ANTIPHON_URL."
    )


def _parse_header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        # The text may be a token, so it is not repeated.
        raise CommandError("An option --header has no name and value. Write --header 'Name: value'.")
    return name.strip(), value.strip()


def _parse_environment(options: Sequence[str]) -> dict[str, str]:
    """Return the variables of `--env NAME=VALUE` and `--env NAME`, and those that Python and Antiphon read.

    The token and the URL of another server are not among them. Raises `CommandError`.
    """
    found = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(("ANTIPHON_", "PYTHON")) and name not in ("ANTIPHON_TOKEN", "ANTIPHON_URL")
    }
    for option in options:
        name, equals, value = option.partition("=")
        if not name:
            raise CommandError("An option --env has no name. Write --env NAME=VALUE, or --env NAME.")
        if not equals and name not in os.environ:
            raise CommandError(f"--env {name}: there is no such variable in the environment.")
        found[name] = value if equals else os.environ[name]
    return found
