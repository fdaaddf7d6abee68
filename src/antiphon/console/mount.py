"""The console of one server, beside its MCP endpoint: `server.asgi(console=Console())`.

Owns the options. What people see follows from the server's `authenticate`: everybody sees their own tasks and
the questions that they may answer, and operators see all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from antiphon.errors import DefinitionError

if TYPE_CHECKING:
    from antiphon.client import Client
    from antiphon.console.app import ConsoleApp
    from antiphon.console.routes import ConsoleUser
    from antiphon.console.sign_in import Operators, SignIn
    from antiphon.server import Server

__all__ = ["Console"]

OWN = "own"
"""The id of the server that the console is beside, and of its store."""


class Console:
    """Serves the console beside MCP: `server.asgi(console=Console(operators=["alice"]))`.

    People sign in with a token that the server's `authenticate` accepts. `operators` are the ids of the
    principals who see and change everybody's tasks, or a function that takes a `Principal` and returns
    whether it does. With `read_only`, nobody changes anything. `path` is the address of the page.
    `sandbox_url` is the address of the console on a second host name, from which it shows MCP Apps; without
    it, it shows none. It needs `server.asgi(hosts=…)`. Raises `DefinitionError` for a path that does not
    start with a slash.
    """

    def __init__(
        self,
        *,
        operators: Operators = (),
        read_only: bool = False,
        path: str = "/console",
        sandbox_url: str | None = None,
    ) -> None:
        if not path.startswith("/") or not path.strip("/"):
            raise DefinitionError(f"The path {path!r} of the console must begin with a slash and a name.")
        self.path = path.rstrip("/")
        self._operators = operators
        self._read_only = read_only
        self._sandbox_url = sandbox_url

    def attach(self, server: Server, hosts: Sequence[str] | None) -> ConsoleApp:
        """Return the app of the console of a server; raises `DefinitionError` without `authenticate`."""
        from antiphon.console.sign_in import SignIn

        engine = server.engine
        if not engine.authenticates:
            raise DefinitionError(
                "The console needs to know who looks at it: pass authenticate= to the Server. To look at a "
                "server on this machine, use `antiphon run FILE --console`."
            )
        sign_in = SignIn(
            identify=engine.identify,
            seal=engine.seal,
            operators=self._operators,
            read_only=self._read_only,
        )
        return console_of(server, sign_in, hosts=hosts, path=self.path, sandbox_url=self._sandbox_url)


def console_of(
    server: Server,
    sign_in: SignIn,
    *,
    hosts: Sequence[str] | None,
    path: str,
    sandbox_url: str | None = None,
) -> ConsoleApp:
    """Return the app of the console of one server, which has to run while the console is open."""
    from antiphon.console.app import ConsoleApp
    from antiphon.console.sources import ServerSource, Sources, StoreSource

    engine = server.engine

    def connect(user: ConsoleUser, **options: Any) -> Client:
        from antiphon.client import Client

        return Client(server, principal=user.principal, **options)

    def create_stores() -> list[StoreSource]:
        store = engine.tasks.store
        if store is None:
            return []
        return [
            StoreSource(
                OWN,
                server.name,
                store,
                server=server.name,
                audiences=engine.tasks.audiences,
                is_own=False,
                artifacts=engine.artifacts.open_store,
                allows=engine.allows_task,
            )
        ]

    sources = Sources(own_stores=create_stores)
    sources.add_server(ServerSource(OWN, server.name, "own", connect))
    return ConsoleApp(sources, sign_in, hosts=hosts, path=path, sandbox_url=sandbox_url, limits=server.limits)
