"""The settings of `antiphon gateway`, and the server that they describe.

The parent process passes them to its worker processes, as it does for `antiphon run`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from antiphon.cli.command_words import is_command
from antiphon.cli.exit_codes import CommandError

if TYPE_CHECKING:
    from antiphon.client.oauth.oauth import OAuth
    from antiphon.gateway.options import Mounted
    from antiphon.server import Server

__all__ = ["GatewaySettings", "default_name"]

logger = logging.getLogger("antiphon.gateway")

_SCRIPTS = (".py", ".js", ".mjs", ".ts")
"""How the files of programs end, whose names say more than those of their interpreters."""


class GatewaySettings(msgspec.Struct, frozen=True):
    """Which servers a gateway offers."""

    targets: tuple[str, ...] = ()
    """URLs, Python files, and a command as one word; each with or without a name: `NAME=http://…`."""
    config: str | None = None
    """A file with further servers."""
    name: str = "gateway"
    tasks: tuple[str, ...] = ()
    """The tools that callers can run as tasks, by the names that the gateway offers, or `*`."""
    artifacts_over: int | None = None
    timeout: float | None = None
    env: tuple[str, ...] = ()
    """Variables for the commands: `NAME=VALUE`, or `NAME` for one of this process."""
    headers: tuple[str, ...] = ()
    """HTTP headers for a single URL: `Name: value`."""
    protocol: str | None = None
    """The only protocol version to use with the servers."""
    allow_anonymous: bool = False
    """Whether files and commands that authenticate their callers are offered to everybody."""

    def __repr__(self) -> str:
        return f"GatewaySettings({self.name!r})"  # commands, URLs and headers may contain secrets

    def create_server(self) -> Server:
        """Return the server of the gateway, not yet started; raises `CommandError`."""
        from antiphon.errors import DefinitionError
        from antiphon.gateway.mount import mount_all
        from antiphon.server import Server

        try:
            servers = self.read_servers()
            server = Server(self.name)
            mount_all(server.engine, servers)
        except (DefinitionError, ValueError) as error:
            raise CommandError(str(error)) from None
        return server

    def read_servers(self) -> list[Mounted]:
        """Return the servers of the command line and the file; raises `CommandError`, `DefinitionError`."""
        from antiphon.gateway.config import read_config

        found = [self._server(number, text) for number, text in enumerate(self.targets, 1)]
        left_out = 0
        if self.config is not None:
            configured = read_config(self.config)
            found += configured.servers
            left_out = len(configured.problems)
            for problem in configured.problems:
                logger.error("%s This server is left out.", problem)
        if not found:
            raise CommandError("Missing target: name a URL, a command after --, or a file with --config.")
        names = [each.name for each in found]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise CommandError(f"Two servers have the name {twice!r}. Name them: NAME=URL.")
        is_alone = len(found) + left_out == 1  # the names must not change when an entry is mended
        return [
            replace(
                each,
                prefix=not is_alone,
                tasks=(*each.tasks, *_own_names(self.tasks, None if is_alone else each.name)),
                artifact_over=self.artifacts_over,
                timeout=self.timeout if each.timeout is None else each.timeout,
                protocol=each.protocol or self.protocol,
                auth=_stored_login(each),
                allow_anonymous=self.allow_anonymous,
            )
            for each in found
        ]

    def _server(self, number: int, text: str) -> Mounted:
        """Return the server that a word of the command line names; raises `CommandError`."""
        from antiphon.cli.targets import Target, is_python_file, is_url
        from antiphon.gateway.options import Mounted

        name, equals, place = text.partition("=")
        if is_command(text) or not equals or is_url(name) or not (is_url(place) or is_python_file(place)):
            name, place = "", text
        if self.headers and sum(map(is_url, self.targets)) > 1:
            raise CommandError("--header is for a single URL. For several, write the headers into --config.")
        parsed = Target.parse(
            place,
            headers=self.headers if is_url(place) else (),
            token=None,
            timeout=None,
            env=() if is_url(place) else self.env,
        )
        return Mounted(
            name=_prefix(name) if name else default_name(parsed.endpoint, place, number),
            target=parsed.endpoint,
            headers=parsed.headers or None,
            env=parsed.env,
        )


def _stored_login(server: Mounted) -> OAuth | None:
    """Return the authorization by a login that is stored for the URL of a server; `None` without one."""
    if server.is_command:
        return None
    from antiphon.cli.targets import Target

    target = Target(server.name, server.target, server.headers or {}, 0.0)
    if not target.uses_login:
        return None
    from antiphon.client.oauth.oauth import OAuth

    return OAuth(interactive=False)


def _prefix(name: str) -> str:
    from antiphon.gateway.names import prefix_for

    return prefix_for(name)


def default_name(endpoint: str | list[str], place: str, number: int) -> str:
    """Return a name for a server: of its file or program, or the first telling part of its host."""
    if not isinstance(endpoint, str):
        words = endpoint if is_command(place) else [place]
        script = next((word for word in words if word.endswith(_SCRIPTS)), words[0])
        return _prefix(os.path.splitext(os.path.basename(script))[0])
    import ipaddress
    from urllib.parse import urlsplit

    host = urlsplit(endpoint).hostname or ""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        labels = [label for label in host.split(".") if label not in ("mcp", "api", "www", "localhost")]
        if labels:
            return _prefix(labels[0])
    return f"server{number}"


def _own_names(tasks: Sequence[str], prefix: str | None) -> list[str]:
    """Return the tools of one server that `--task` names, without the prefix of the server."""
    if prefix is None:
        return list(tasks)
    start = f"{prefix}_"
    return [name.removeprefix(start) for name in tasks if name.startswith(start) or name == "*"]
