"""The console of `antiphon run --console`: beside the MCP endpoint of a server, on the same address.

On a loopback address, the person who started the command signs in with a link and operates the server. On
any other address people sign in with the tokens that the server accepts, and nobody operates it.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING

from antiphon.cli.console.serve import address_of, is_loopback, link_to, local_hosts
from antiphon.cli.exit_codes import CommandError
from antiphon.cli.operator_name import operator_name
from antiphon.cli.run.serve import listen
from antiphon.console.mount import Console, console_of
from antiphon.console.sign_in import SignIn
from antiphon.printable import printable

if TYPE_CHECKING:
    from antiphon.console.app import ConsoleApp
    from antiphon.server import Server

__all__ = ["ServedConsole"]

PATH = "/console"


class ServedConsole:
    """The console of a server that a command serves on a socket."""

    def __init__(self, listening: socket.socket) -> None:
        self._listening = listening
        self._sign_in = SignIn(operator=operator_name())
        # The console shows MCP Apps from a port of their own.
        self.sockets = [listen(listening.getsockname()[0], 0)] if self.is_local else []
        """Further sockets that the app of the server is served on."""

    @property
    def is_local(self) -> bool:
        """Whether only this machine reaches the console."""
        return is_loopback(self._listening.getsockname()[0])

    def attach(self, server: Server, hosts: Sequence[str] | None) -> ConsoleApp:
        """Return the app of the console; raises `CommandError` if anybody could open it."""
        if self.is_local:
            own = [*local_hosts(self._listening), *(hosts or ())]
            sandbox = address_of(self.sockets[0]) + PATH
            return console_of(server, self._sign_in, hosts=own, path=PATH, sandbox_url=sandbox)
        if not server.engine.authenticates:
            raise CommandError(
                "Other machines reach this address, and the server does not authenticate, so everybody could "
                "open the console. Remove --host, or pass authenticate= to the Server."
            )
        return Console(path=PATH).attach(server, hosts)

    def announcement(self) -> str:
        """Return the line that says where the console is."""
        if self.is_local:
            self._sign_in.on_expired_link = lambda: print(self.announcement(), flush=True)
            return f"The console is at {link_to(self._listening, self._sign_in, PATH)}"
        host, port = self._listening.getsockname()[:2]
        return printable(f"The console is at {PATH} on {host}:{port}. People sign in with their tokens.")
