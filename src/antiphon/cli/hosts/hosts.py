"""The hosts that `antiphon install` knows: where each has its configuration, and how it writes a server.

Owns these facts only. It reads and writes no file.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from antiphon.cli.exit_codes import CommandError
from antiphon.cli.hosts import HostName
from antiphon.cli.hosts.hosted_server import HostedServer

__all__ = ["HOSTS", "Host", "portable_entry"]


@dataclass(frozen=True, slots=True)
class Host:
    """A host, and the files in which it looks for servers."""

    title: str
    """The name that people know."""
    user_file: Callable[[], Path]
    """Returns the file for all projects of the user."""
    project_file: str | None
    """The file inside a project; `None` if the host knows no projects."""
    next_step: str
    """What the user does after the file was written."""
    key: str = "mcpServers"
    """The member of the file that holds the servers by name."""
    names_type: bool = False
    """Whether an entry says by which transport the host reaches the server."""
    starts_only: bool = False
    """Whether the file can only name programs that the host starts."""

    def file(self, *, in_project: bool) -> Path:
        """Return the configuration file. Raises `CommandError` if the host knows no projects."""
        if not in_project:
            return self.user_file()
        if self.project_file is None:
            raise CommandError(f"{self.title} has one configuration for all projects: remove --project.")
        return Path.cwd() / self.project_file

    def entry(self, server: HostedServer) -> dict[str, Any]:
        """Return the entry of a server, as the host reads it. Raises `CommandError`."""
        if server.url is not None and self.starts_only:
            server = server.through_gateway(self.title)
        entry = portable_entry(server)
        if self.names_type:
            entry.pop("type", None)
            entry = {"type": "stdio" if server.url is None else "http", **entry}
        return entry


def portable_entry(server: HostedServer) -> dict[str, Any]:
    """Return the entry of a server as most hosts read it."""
    if server.url is not None:
        entry: dict[str, Any] = {"type": "http", "url": server.url}
        return {**entry, "headers": dict(server.headers)} if server.headers else entry
    program, *arguments = server.command
    entry = {"command": program, "args": arguments}
    return {**entry, "env": dict(server.env)} if server.env else entry


def _settings_folder() -> Path:
    """Return the folder in which desktop programs keep the settings of the user."""
    if sys.platform == "win32":
        return Path(os.environ.get("APPDATA") or Path.home() / "AppData" / "Roaming")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support"
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")


HOSTS: dict[HostName, Host] = {
    "claude-desktop": Host(
        "Claude Desktop",
        lambda: _settings_folder() / "Claude" / "claude_desktop_config.json",
        None,
        "Restart Claude Desktop.",
        starts_only=True,
    ),
    "claude-code": Host(
        "Claude Code",
        lambda: Path(os.environ.get("CLAUDE_CONFIG_DIR") or Path.home()) / ".claude.json",
        ".mcp.json",
        "Start Claude Code again. Its command /mcp lists the server.",
        names_type=True,
    ),
    "cursor": Host(
        "Cursor",
        lambda: Path.home() / ".cursor" / "mcp.json",
        ".cursor/mcp.json",
        "Cursor lists the server in its settings, under MCP.",
    ),
    "vscode": Host(
        "VS Code",
        lambda: _settings_folder() / "Code" / "User" / "mcp.json",
        ".vscode/mcp.json",
        "In VS Code, run the command MCP: List Servers.",
        key="servers",
        names_type=True,
    ),
}
