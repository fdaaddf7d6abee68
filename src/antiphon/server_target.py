"""A server and how to connect to it: the address or the command, the headers, and the times.

The command line, the console and the doctor connect with it. It does not know where its values come from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from antiphon.printable import printable

if TYPE_CHECKING:
    from antiphon.client.client import Client
    from antiphon.client.oauth.oauth import OAuth
    from antiphon.transport.client.stdio import StdioChannel

__all__ = ["ServerTarget"]

MAX_RECONNECT_SECONDS = 30.0
"""How long a command tries again to reach the server of a task, unless it has less time for everything."""
MAX_SHOWN_ERROR_LINES = 20
"""How many lines of a command's standard error are shown if it fails."""
MAX_ERROR_LINE_CHARACTERS = 400


@dataclass(frozen=True, slots=True)
class ServerTarget:
    """A server and how to connect to it."""

    name: str
    """The URL without its secrets, the file or the command, as messages show it."""
    endpoint: str | list[str] = field(repr=False)
    """The URL, or the command that starts the server."""
    headers: Mapping[str, str] = field(repr=False)
    timeout: float
    """How long each response may take, in seconds."""
    protocol: str | None = None
    """The only protocol version to use; `None` for the newest one that the server speaks."""
    env: Mapping[str, str] | None = field(default=None, repr=False)
    """The environment of the command, beside the variables that every child gets."""
    limit: float | None = None
    """How long connecting may take, and how long a task may take to end; `None` if the user did not say."""
    keeps_errors: bool = False
    """Whether the standard error of the process is kept, and shown only if the process fails."""
    processes: list[StdioChannel] = field(default_factory=list, repr=False, compare=False)
    """The processes that were started for the target, the newest one last."""

    @property
    def is_remote(self) -> bool:
        """Whether the target is a URL: its server keeps running when the client goes away."""
        return isinstance(self.endpoint, str)

    def client(self, **options: Any) -> Client:
        """Create a client for the target. The client is not connected yet.

        Raises `ValueError` for an unknown protocol version.
        """
        from antiphon.client.client import Client

        given = {"protocol": self.protocol, "auth": self._stored_login(), **options}
        if self.limit is not None:
            given.setdefault("connect_timeout", self.limit)
            given.setdefault("reconnect_timeout", min(MAX_RECONNECT_SECONDS, self.limit))
        endpoint = self.endpoint if isinstance(self.endpoint, str) else self._process(self.endpoint)
        return Client(endpoint, headers=self.headers, timeout=self.timeout, **given)

    def _process(self, command: Sequence[str]) -> StdioChannel:
        """Return a channel to a process that is not started yet."""
        from antiphon.transport.client.stdio import StdioChannel

        channel = StdioChannel(command, env=self.env, keep_errors=self.keeps_errors)
        self.processes.append(channel)
        return channel

    @property
    def last_errors(self) -> str:
        """The last lines that the newest process printed to its standard error, cleaned."""
        lines = self.processes[-1].last_errors.splitlines() if self.processes else []
        shown = [line for line in lines if line.strip()][-MAX_SHOWN_ERROR_LINES:]
        return "\n".join(f"  {printable(line, MAX_ERROR_LINE_CHARACTERS)}" for line in shown)

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
