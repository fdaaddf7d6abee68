"""`antiphon run`: serves a file over HTTP or on the standard streams.

Owns the listening socket and the processes. On SIGTERM or SIGINT, what never ends by itself is ended at
once, calls under way get `Limits.drain_timeout` seconds to end, and nobody new is let in.
"""

from __future__ import annotations

import asyncio
import errno
import math
import os
import secrets
import signal
import socket
import sys
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from antiphon.cli.exit_codes import FAILED, UNREACHABLE, CommandError
from antiphon.cli.run.load import load
from antiphon.cli.run.settings import Settings
from antiphon.errors import StoreUnavailable

if TYPE_CHECKING:
    import uvicorn

    from antiphon.server import Server
    from antiphon.transport.server.http.app import App

__all__ = ["build", "listen", "loaded", "over_http", "over_stdio"]

_BACKLOG = 2048
_KEEP_ALIVE = 65
"""Seconds that an idle connection stays open: longer than a client keeps it, which then closes first."""


def over_stdio(settings: Settings) -> None:
    """Serve one client on the standard streams; raises `CommandError`."""
    # Whatever the file prints while it is loaded must not get between the frames.
    output = os.dup(1)
    os.dup2(2, 1)
    printed, sys.stdout = sys.stdout, sys.stderr
    server = loaded(settings)
    settings.configure_logging()
    printed.flush()
    os.dup2(output, 1)
    os.close(output)
    try:
        asyncio.run(server.stdio())
    except StoreUnavailable as error:
        raise _not_started(error) from None


def over_http(settings: Settings, *, host: str, port: int, workers: int) -> None:
    """Serve over HTTP until a signal ends it; raises `CommandError`."""
    server = loaded(settings)
    settings.configure_logging()
    with listen(host, port) as listening:
        line = _announcement(server, listening, settings.path, workers)
        if workers > 1:
            _with_workers(server, settings, listening, workers, line)
        else:
            _alone(server, settings, listening, line)


def loaded(settings: Settings) -> Server:
    """The server in the file, with the store that the command line names; raises `CommandError`."""
    from antiphon.store import open_store

    server = load(settings.target)
    server.configure(store=settings.store, run_tasks=settings.works)
    if isinstance(wanted := server.store, str):
        try:
            open_store(wanted)
        except ValueError as error:
            raise CommandError(str(error)) from None
    if not settings.works and server.store in (None, "memory:"):
        raise CommandError(
            "A server that runs no tasks needs a store that it shares with a worker: "
            "--store postgresql://user@host/database, for example."
        )
    return server


def build(server: Server, settings: Settings, app: App | None = None) -> App:
    """The app, told of the end of the process by the signal itself; called where signals are handled."""
    app = app or served(server, settings)
    for number in (signal.SIGTERM, signal.SIGINT):
        _before(number, app)
    return app


def served(server: Server, settings: Settings) -> App:
    """The app without what surrounds it."""
    return server.asgi(path=settings.path, hosts=settings.hosts, origins=settings.origins, probes=True)


def _before(number: int, app: App) -> None:
    """Let the app know of a signal before whoever handles it now."""
    following = signal.getsignal(number)

    def handle(received: int, frame: FrameType | None) -> None:
        app.begin_shutdown()
        if callable(following):
            following(received, frame)

    signal.signal(number, handle)


def _alone(server: Server, settings: Settings, listening: socket.socket, line: str) -> None:
    import uvicorn

    class Announcing(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            print(line, flush=True)

    signal.signal(signal.SIGTERM, _end)
    app = served(server, settings)
    config = _config(lambda: build(server, settings, app), server, settings)
    try:
        Announcing(config).run(sockets=[listening])
    except KeyboardInterrupt:
        return  # uvicorn has shut down in good order, and raises the signal again
    except SystemExit as error:
        if error.code:
            raise _not_started(app.failure) from None
        raise


def _not_started(failure: Exception | None) -> CommandError:
    if isinstance(failure, StoreUnavailable):
        return CommandError(f"The store cannot be opened: {failure}", UNREACHABLE)
    return CommandError("The server's lifespan failed to start: the log above says why.", FAILED)


def _with_workers(
    server: Server, settings: Settings, listening: socket.socket, workers: int, line: str
) -> None:
    from uvicorn.supervisors import Multiprocess

    promising = server.task_tools
    if promising and server.store in (None, "memory:"):
        raise CommandError(
            f"{promising[0]} gives promises, and each worker would keep its own where the others do not find "
            "them. Name a store that they share: --store sqlite:///tasks.db, for example."
        )
    if not server.engine.seal.shared:
        os.environ["ANTIPHON_SECRETS"] = secrets.token_hex(32)
        print(
            "Warning: ANTIPHON_SECRETS is not set. These workers share a secret made for this run: "
            "sessions end with it.",
            file=sys.stderr,
        )
    settings.hand_down()
    config = _config("antiphon.cli.run.factory:create", server, settings, workers=workers)
    print(line, flush=True)
    supervisor = Multiprocess(config, sockets=[listening])
    supervisor.run()
    if any(process.exitcode not in (0, -signal.SIGTERM, -signal.SIGINT) for process in supervisor.processes):
        raise CommandError("A worker failed to start, or was ended by force.", FAILED)


def _config(app: Any, server: Server, settings: Settings, *, workers: int = 1) -> uvicorn.Config:
    import uvicorn

    return uvicorn.Config(
        app,
        factory=True,
        workers=workers,
        interface="asgi3",
        lifespan="on",
        ws="none",
        log_config=None,
        access_log=settings.access_log,
        proxy_headers=False,
        server_header=False,
        backlog=_BACKLOG,
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_graceful_shutdown=math.ceil(server.limits.drain_timeout),
    )


def listen(host: str, port: int) -> socket.socket:
    """A socket that takes connections from now on; raises `CommandError`."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, proto)
    except OSError as error:
        raise CommandError(f"Cannot listen at {host}: {error.strerror}.", UNREACHABLE) from None
    except UnicodeError:
        raise CommandError(f"Cannot listen at {host}: this is no name of a host.", UNREACHABLE) from None
    try:
        if sys.platform != "win32":
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        hint = f" Choose another port: --port {port + 1}." if error.errno == errno.EADDRINUSE else ""
        raise CommandError(f"Cannot listen at {host}:{port}: {error.strerror}.{hint}", UNREACHABLE) from None
    listening.set_inheritable(True)
    return listening


def _announcement(server: Server, listening: socket.socket, path: str, workers: int) -> str:
    host, port = listening.getsockname()[:2]
    place = f"http://{f'[{host}]' if ':' in host else host}:{port}{path}"
    offered = ", ".join(server.tools) or "none"
    crowd = f" by {workers} workers" if workers > 1 else ""
    return f"{server.name} is served at {place}{crowd}. Tools: {offered}."


def _end(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(0)
