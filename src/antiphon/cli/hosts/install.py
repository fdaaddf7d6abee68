"""Installs a server into a host: shows the change, asks whether to make it, and writes the host's file."""

from __future__ import annotations

import difflib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from antiphon.cli.call.terminal import Terminal
from antiphon.cli.exit_codes import FAILED, CommandError, has_colours
from antiphon.cli.hosts.config_file import ConfigFile
from antiphon.cli.hosts.hosted_server import HostedServer
from antiphon.cli.hosts.hosts import Host, portable_entry
from antiphon.cli.hosts.json_text import put_server, read_object
from antiphon.printable import printable, printable_json, redacted_url

__all__ = ["install_server", "print_entry", "print_portable"]

_HIDDEN = "***"
_SECRETS = ("env", "headers")
"""The members of an entry whose values are not shown."""
_COLOURS = {"+": "\x1b[32m", "-": "\x1b[31m"}


def print_portable(server: HostedServer) -> None:
    """Print the configuration of a server as most hosts read it."""
    print(_pretty({"mcpServers": {server.name: portable_entry(server)}}))


def print_entry(host: Host, server: HostedServer) -> None:
    """Print the configuration of a server as one host reads it."""
    print(_pretty({host.key: {server.name: host.entry(server)}}))


def install_server(host: Host, server: HostedServer, path: Path, *, force: bool, yes: bool) -> None:
    """Write a server into the configuration file of a host. Raises `CommandError`."""
    file = ConfigFile(path)
    entry = host.entry(server)
    before = _entry_before(host, server, file)
    if before == entry:
        print(f"{server.name} is in {file.path} already. Nothing was changed.")
        return
    if before is not None and not force:
        raise CommandError(
            f"{file.path} has a server {server.name!r} already. Replace it with --force, or choose another "
            "name with --name."
        )
    _show_change(host.key, server.name, before, entry, file.path)
    if not yes and not _agreed():
        raise CommandError("Nothing was written.", FAILED)
    backup = file.replace(put_server(file.text, host.key, server.name, entry))
    kept = "" if backup is None else f" The file before is kept as {backup.name}."
    print(f"{server.name} is in {file.path}.{kept} {host.next_step}")
    if any(entry.get(key) for key in _SECRETS):
        print("The file holds the values of variables or headers. Do not commit it.", file=sys.stderr)
    elif server.url_has_secrets:
        print("The file holds a URL that may contain secrets. Do not commit it.", file=sys.stderr)


def _entry_before(host: Host, server: HostedServer, file: ConfigFile) -> Any:
    """Return the entry that the file has under the name of the server; `None` without one."""
    try:
        found = read_object(file.text)
    except ValueError as error:
        if _has_comments(file.text):
            print_entry(host, server)
            raise CommandError(
                f"{file.path} has comments, or a comma after a last item, which would be lost. Nothing was "
                "written. Add the lines above yourself.",
                FAILED,
            ) from None
        reason = (
            f"line {error.lineno}: {error.msg}" if isinstance(error, json.JSONDecodeError) else str(error)
        )
        raise CommandError(
            f"{file.path} is not valid JSON ({printable(reason)}). Nothing was written. Mend the file, or "
            "move it away.",
            FAILED,
        ) from None
    servers = found.get(host.key, {})
    if not isinstance(servers, dict):
        raise CommandError(f'"{host.key}" in {file.path} is not an object. Nothing was written.', FAILED)
    return servers.get(server.name)


def _has_comments(text: str) -> bool:
    """Return whether a text would be JSON without comments and commas after last items."""
    from antiphon.gateway.jsonc import plain_json

    try:
        read_object(plain_json(text))
    except ValueError:
        return False
    return True


def _show_change(key: str, name: str, before: Any, entry: dict[str, Any], path: Path) -> None:
    """Print which lines are added and removed, without secrets. The rest of the file is not shown."""
    coloured = has_colours(sys.stderr)
    for line in _changed_lines(key, name, before, entry, path):
        colour = _COLOURS.get(line[:1], "") if coloured else ""
        print(f"{colour}{printable(line)}\x1b[0m" if colour else printable(line), file=sys.stderr)


def _changed_lines(key: str, name: str, before: Any, entry: dict[str, Any], path: Path) -> Iterator[str]:
    old = _pretty({key: {} if before is None else {name: _without_secrets(before)}})
    new = _pretty({key: {name: _without_secrets(entry)}})
    # An empty object is written on one line, and would appear as removed.
    old = old.replace("{}", "{\n  }", 1) if before is None else old
    lines = difflib.unified_diff(
        old.splitlines(), new.splitlines(), str(path), f"{path} (new)", lineterm="", n=len(new)
    )
    # Line numbers would be those of the entry, and not of the file.
    return (line for line in lines if not line.startswith("@@"))


def _without_secrets(value: Any) -> Any:
    """Return an entry with `***` in place of its variables and headers, and of the secrets in URLs."""
    if isinstance(value, str):
        return redacted_url(value) if "://" in value else value
    if isinstance(value, list):
        return [_without_secrets(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {key: _hidden(each) if key in _SECRETS else _without_secrets(each) for key, each in value.items()}


def _hidden(value: Any) -> Any:
    return dict.fromkeys(value, _HIDDEN) if isinstance(value, dict) else _HIDDEN


def _pretty(value: Any) -> str:
    return printable_json(json.dumps(value, indent=2, ensure_ascii=False))


def _agreed() -> bool:
    """Ask the user whether to write the change. Raises `CommandError` without a terminal."""
    if not Terminal.is_interactive():
        raise CommandError("Nothing was written. To write the change above, add --yes.")
    print("Write this change? [y/N]: ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
