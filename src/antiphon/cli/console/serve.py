"""Builds the console that a command asks for, and serves it until Ctrl-C.

Owns the listening socket and the link that signs the operator in.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from antiphon.cli.console.browser import BrowserPage
from antiphon.cli.exit_codes import UNREACHABLE, CommandError
from antiphon.cli.operator_name import operator_name
from antiphon.cli.run import LogLevel
from antiphon.cli.run.serve import listen
from antiphon.cli.run.settings import Settings
from antiphon.cli.stores import named_store
from antiphon.cli.targets import Target, is_url
from antiphon.console.app import ConsoleApp
from antiphon.console.routes import ConsoleUser
from antiphon.console.sign_in import SignIn
from antiphon.console.sources import ServerKind, ServerSource, Sources, StoreSource
from antiphon.runtime.limits import Limits
from antiphon.store import hide_password, is_database_url

if TYPE_CHECKING:
    from antiphon.client import Client

__all__ = [
    "ConsoleSettings",
    "address_of",
    "check_loopback",
    "is_loopback",
    "link_to",
    "local_hosts",
    "serve_console",
    "server_source",
]

_DRAIN_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSettings:
    """What a console looks at, and where it is served."""

    targets: tuple[str, ...] = field(repr=False)
    stores: tuple[str, ...] = field(repr=False)
    read_only: bool = False
    host: str = "127.0.0.1"
    port: int = 8900
    port_option: str = "--port"
    """The option of the command that chooses the port."""
    sandbox_port: int = 0
    opens_browser: bool = True
    hosts: tuple[str, ...] | None = None
    headers: tuple[str, ...] = field(default=(), repr=False)
    token: str | None = field(default=None, repr=False)
    env: tuple[str, ...] = field(default=(), repr=False)
    log_level: LogLevel = "warning"


def serve_console(settings: ConsoleSettings) -> None:
    """Serve a console until a signal ends it. Raises `CommandError`."""
    from antiphon.transport.server.http.serve import HttpServer, create_config

    check_loopback(settings.host)
    sources = _create_sources(settings)
    Settings("", log_level=settings.log_level).configure_logging()
    with (
        listen(settings.host, settings.port, settings.port_option) as listening,
        listen(settings.host, settings.sandbox_port, "--sandbox-port") as sandbox,
    ):
        sign_in = SignIn(operator=operator_name(), read_only=settings.read_only)
        hosts = [*local_hosts(listening), *(settings.hosts or ())]
        limits = Limits(drain_timeout=_DRAIN_SECONDS)
        app = ConsoleApp(sources, sign_in, hosts=hosts, sandbox_url=address_of(sandbox), limits=limits)
        config = create_config(
            app, limits=limits, interface="asgi3", lifespan="on", log_config=None, access_log=False
        )
        page = BrowserPage()

        def close() -> None:
            app.end_streams()
            page.remove()

        runner = HttpServer(
            config,
            on_listening=partial(_announce, listening, sign_in, page if settings.opens_browser else None),
            on_closing=close,
        )
        try:
            runner.run(sockets=[listening, sandbox])
        except KeyboardInterrupt:
            return
        except SystemExit as error:
            if error.code:
                raise CommandError(f"Cannot start the console: {app.failure}", UNREACHABLE) from None
            raise


def check_loopback(host: str) -> None:
    """Raise `CommandError` for an address that other machines reach: nothing authenticates them."""
    if not is_loopback(host):
        raise CommandError(
            f"The console of this command is for this machine only, and {host} is not a loopback address. To "
            "reach it from elsewhere, tunnel its port with ssh -L, or serve it with "
            "server.asgi(console=Console(…)) behind authenticate."
        )


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def local_hosts(listening: socket.socket) -> list[str]:
    """Return the values of the Host header that name a socket on this machine."""
    address, port = listening.getsockname()[:2]
    names = {"localhost", f"[{address}]" if ":" in address else address}
    return [f"{name}:{port}" for name in sorted(names)]


def address_of(listening: socket.socket) -> str:
    """Return the URL of a socket on this machine, without a slash at the end."""
    host, port = listening.getsockname()[:2]
    place = f"[{host}]" if ":" in host else host
    return f"http://{place}:{port}"


def link_to(
    listening: socket.socket, sign_in: SignIn, path: str = "", on_used: Callable[[], None] = lambda: None
) -> str:
    """Return an address that signs one browser in. `on_used` is called when it has done so."""
    return f"{address_of(listening)}{path}/sign-in?token={sign_in.create_link(on_used)}"


def _announce(listening: socket.socket, sign_in: SignIn, page: BrowserPage | None) -> None:
    """Print where the console is, and open a browser with the page that leads there."""

    def announce() -> None:
        print(f"The console is at {link_to(listening, sign_in)}", flush=True)

    sign_in.on_expired_link = announce
    announce()
    print("The address signs one browser in. The page makes addresses for others.", file=sys.stderr)
    if page is not None:
        page.open(lambda on_used: link_to(listening, sign_in, on_used=on_used))


def _create_sources(settings: ConsoleSettings) -> Sources:
    """Return the stores and servers that a command names. Raises `CommandError`."""
    targets, stores = settings.targets, settings.stores
    if not targets and not stores:
        targets = tuple(filter(None, [os.environ.get("ANTIPHON_URL")]))
        stores = tuple(filter(None, [os.environ.get("ANTIPHON_STORE")]))
    if not targets and not stores:
        raise CommandError(
            "Name what the console shows: a store (--store sqlite:///tasks.db), a URL, or a Python file."
        )
    sources = Sources(adds_servers=not settings.read_only)
    for number, url in enumerate(stores, 1):
        artifacts = os.environ.get("ANTIPHON_ARTIFACTS") or (url if is_database_url(url) else None)
        sources.add_store(
            StoreSource(f"store{number}", hide_password(url), named_store(url), artifacts=artifacts)
        )
    for number, text in enumerate(targets, 1):
        headers = settings.headers if is_url(text) else None
        env = None if is_url(text) else settings.env
        target = Target.parse(text, headers=headers, token=settings.token, timeout=None, env=env)
        sources.add_server(server_source(f"server{number}", target))
    return sources


def server_source(id: str, target: Target) -> ServerSource:
    """Return the source of a target of the command line."""
    kind: ServerKind = "url" if target.is_remote else "command" if target.is_command else "file"

    def connect(user: ConsoleUser, **options: Any) -> Client:
        return target.client(**options)

    return ServerSource(id, target.name, kind, connect, target=target)
