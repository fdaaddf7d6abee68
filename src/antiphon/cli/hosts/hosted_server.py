"""The server that a host is to use: the program that the host starts, or a URL.

Loads the file of a Python server, so that a mistake in it is reported before a host meets it. It must not
know any host.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import chdir, redirect_stdout
from dataclasses import dataclass, field, replace
from pathlib import Path

from antiphon.cli.command_words import is_command, split_command
from antiphon.cli.exit_codes import CommandError
from antiphon.cli.gateway.settings import default_name
from antiphon.cli.hosts.env_file import read_env_file
from antiphon.cli.targets import is_python_file, is_url, parse_environment, parse_header, split_target
from antiphon.printable import printable, redacted_url

__all__ = ["HostedServer", "describe_server"]

MAX_NAME_CHARACTERS = 64
_NAME = re.compile(rf"[A-Za-z0-9_-]{{1,{MAX_NAME_CHARACTERS}}}")
_UNFIT = re.compile(r"[^A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class HostedServer:
    """A server under the name that it has in a host. Its values may be secrets."""

    name: str
    command: Sequence[str] = ()
    """The program that the host starts, with its arguments; empty if the server has a URL."""
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    url: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def url_has_secrets(self) -> bool:
        """Whether the server has a URL with a user, a password or a query."""
        return self.url is not None and redacted_url(self.url) != self.url

    def through_gateway(self, host: str) -> HostedServer:
        """Return a program that passes requests on to the URL, for a host that can only start programs.

        Raises `CommandError` if the server needs headers, or if its URL may contain secrets: every user of
        the machine can read arguments.
        """
        assert self.url is not None
        public = "starts programs only, and everybody on this machine can read the arguments of a program"
        if self.headers:
            raise CommandError(
                f"{host} {public}: remove --header. If the server uses OAuth, log in with antiphon login URL."
            )
        if self.url_has_secrets:
            raise CommandError(
                f"{host} {public}: {redacted_url(self.url)} may contain secrets. Write the URL into a file "
                "with antiphon mcp-json URL > FILE, and install the command: "
                "-- antiphon gateway --config FILE --stdio"
            )
        return replace(self, command=_antiphon("gateway", self.url, "--stdio"), url=None)


def describe_server(
    target: str,
    *,
    name: str | None,
    env: Sequence[str] | None,
    env_file: str | None,
    headers: Sequence[str] | None,
) -> HostedServer:
    """Return the server that a target and its options describe. Raises `CommandError`."""
    if name is not None and not _NAME.fullmatch(name):
        raise CommandError(
            f"--name {printable(name)!r} is not a name that all hosts accept. Use 1 to "
            f"{MAX_NAME_CHARACTERS} letters, digits, hyphens and underscores."
        )
    if is_url(target):
        if env or env_file:
            raise CommandError("A URL starts no process: remove --env and --env-file. Use --header.")
        if not _has_host(target):
            raise CommandError(f"{redacted_url(target)} is not a complete URL. Write http://HOST:PORT/PATH.")
        sent = dict(parse_header(header) for header in headers or ())
        return HostedServer(name or default_name(target, target, 1), url=target, headers=sent)
    if headers:
        raise CommandError("A program is reached over stdio, which has no headers: remove --header.")
    variables = parse_environment(env, {} if env_file is None else read_env_file(Path(env_file)))
    if is_command(target):
        words = split_command(target)
        return HostedServer(name or default_name(words, target, 1), _found(words), variables)
    return _python_server(target, name, variables)


def _has_host(url: str) -> bool:
    """Return whether a URL can be split, and names a host."""
    from urllib.parse import urlsplit

    try:
        return bool(urlsplit(url).hostname)
    except ValueError:
        return False


def _python_server(target: str, name: str | None, variables: Mapping[str, str]) -> HostedServer:
    """Return the program that serves a file or a module from anywhere. Raises `CommandError`."""
    place, variable = split_target(target)
    folder = Path.cwd()
    if is_python_file(target):
        file = Path(place).absolute()
        if not file.is_file():
            raise CommandError(f"There is no file {place}.")
        place, folder = str(file), file.parent
    served = place if variable is None else f"{place}:{variable}"
    given = _load_name(served, folder, variables)
    return HostedServer(
        name or _UNFIT.sub("-", given).strip("-")[:MAX_NAME_CHARACTERS] or "server",
        # A host starts programs in any folder, and the file may name others beside it, such as a store.
        _antiphon("run", served, "--stdio", "--directory", str(folder)),
        variables,
    )


def _load_name(target: str, folder: Path, variables: Mapping[str, str]) -> str:
    """Load a server as its host will, and return its name. Raises `CommandError`."""
    from antiphon.cli.run.load import load_server

    os.environ.update(variables)
    with redirect_stdout(sys.stderr), chdir(folder):  # standard output is for the JSON
        return load_server(target, is_private=True).name


def _antiphon(*words: str) -> list[str]:
    """Return a command of this program, for a process that finds nothing by its name."""
    return [sys.executable, "-m", "antiphon", *words]


def _found(words: Sequence[str]) -> list[str]:
    """Return a command with the full path of its program. Raises `CommandError`."""
    program, *arguments = words
    path = shutil.which(program)
    if path is None:
        raise CommandError(
            f"There is no program {printable(program)!r}. Check its name, or pass its full path."
        )
    return [os.path.abspath(path), *arguments]
