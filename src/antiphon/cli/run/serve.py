"""`antiphon run`: serves a Python file over HTTP or stdio.

Owns the listening socket and the worker processes. On SIGTERM or SIGINT the app is no longer ready and claims
no more tasks. `Limits.shutdown_delay` seconds after SIGTERM, it stops listening and closes streams that have
no end of their own; running calls and tasks get `Limits.drain_timeout` seconds to finish.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import secrets
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from antiphon.cli.exit_codes import FAILED, INTERRUPTED, UNREACHABLE, CommandError, exit_with
from antiphon.cli.run.garbage_collection import collect_less_often
from antiphon.cli.run.load import load_server
from antiphon.cli.run.settings import Settings
from antiphon.cli.run.threads import end_without_threads
from antiphon.cli.signals import woken_by_signals
from antiphon.errors import DefinitionError, StoreUnavailable
from antiphon.printable import printable
from antiphon.transport.server.interrupts import Interrupts, exit_at_once

if TYPE_CHECKING:
    import uvicorn
    from uvicorn.supervisors import Multiprocess

    from antiphon.cli.console.beside import ServedConsole
    from antiphon.server import Server
    from antiphon.transport.server.http.app import App
    from antiphon.transport.server.http.serve import HttpServer

__all__ = [
    "announcement",
    "configure",
    "create_app",
    "create_worker_app",
    "has_shared_store",
    "listen",
    "load_configured_server",
    "notify_on_signals",
    "protected_stdout",
    "serve_http",
    "serve_in_loop",
    "serve_stdio",
    "stop_with_parent",
]

logger = logging.getLogger("antiphon")

LISTEN_BACKLOG = 2048
"""How many connections the kernel queues until the server accepts them."""

SECRET_BYTES = 32


def serve_stdio(settings: Settings) -> None:
    """Serve one client over stdio until it disconnects. Raises `CommandError`."""
    with protected_stdout() as restore_stdout:
        server = load_configured_server(settings.without_authentication())
        settings.observe(server)
        restore_stdout()
        try:
            asyncio.run(woken_by_signals(server.stdio()))
            end_without_threads(server)
        except StoreUnavailable as error:
            raise _startup_error(error) from None


@contextmanager
def protected_stdout() -> Iterator[Callable[[], None]]:
    """Send the output of the block to standard error until it calls the function that it gets.

    Output that a file prints while it is imported must not reach the client: it would break the framing.
    """
    output = os.dup(1)
    os.dup2(2, 1)
    stdout, sys.stdout = sys.stdout, sys.stderr

    def restore() -> None:
        stdout.flush()
        os.dup2(output, 1)

    try:
        yield restore
    finally:
        os.close(output)


def serve_http(settings: Settings, *, host: str, port: int, workers: int) -> None:
    """Serve over HTTP until a signal stops the process. Raises `CommandError`."""
    server = load_configured_server(settings)
    with listen(host, port) as listening:
        if workers > 1:
            settings.configure_logging()
            _check_alone(server, settings)
            _serve_with_workers(server, settings, listening, workers)
        else:
            settings.observe(server)
            _serve_alone(server, settings, listening)


def _check_alone(server: Server, settings: Settings) -> None:
    """Raise `CommandError` if several processes were to serve a console, whose sign-in one process has."""
    if settings.console:
        store = " --store URL" if has_shared_store(server) else ""
        raise CommandError(
            "One process serves the console, so --console and --workers exclude each other. Beside the "
            f"workers, run: antiphon console http://HOST:PORT{settings.path}{store}."
        )


def load_configured_server(settings: Settings) -> Server:
    """Load the server from its file and apply the settings. Raises `CommandError`."""
    gateway = settings.gateway
    if gateway is None:
        server = load_server(
            settings.target,
            settings.tasks,
            allow_anonymous=settings.allow_anonymous,
            is_private=settings.is_private,
        )
    else:
        server = gateway.create_server()
    configure(server, settings)
    return server


def configure(server: Server, settings: Settings) -> None:
    """Apply the settings to a server. Raises `CommandError`."""
    from antiphon.store import open_store
    from antiphon.transport.server.http.cors import read_origin

    for origin in settings.origins or ():
        try:
            read_origin(origin)
        except DefinitionError as error:
            raise CommandError(f"--origins: {error}") from None
    server.configure(store=settings.store, run_tasks=settings.run_tasks)
    if isinstance(server.store, str):
        try:
            open_store(server.store)
        except ValueError as error:
            raise CommandError(str(error)) from None
    if not settings.run_tasks and not has_shared_store(server):
        raise CommandError(
            "--no-worker needs a store that the server shares with a worker. "
            "Name one: --store postgresql://user@host/database."
        )


def has_shared_store(server: Server) -> bool:
    """Return whether other processes can open the server's store too."""
    return server.store not in (None, "memory:")


def create_app(server: Server, settings: Settings, console: ServedConsole | None = None) -> App:
    """Create the ASGI app of a server. Raises `CommandError` if everybody could open its console."""
    return server.asgi(
        path=settings.path, hosts=settings.hosts, origins=settings.origins, probes=True, console=console
    )


def create_worker_app() -> App:
    """Create the app of a worker process. uvicorn calls this function by its name in each worker process.

    Exits the process if the file cannot be loaded.
    """
    from uvicorn.config import STARTUP_FAILURE

    settings = Settings.from_environment()
    try:
        server = load_configured_server(settings)
        settings.observe(server)
    except CommandError as error:
        # This exit code tells the supervisor not to restart the process: it would fail again.
        error.code = STARTUP_FAILURE
        exit_with(error)
    app = create_app(server, settings)
    collect_less_often()
    notify_on_signals(app)
    stop_with_parent()
    return app


def stop_with_parent() -> None:
    """Shut this process down if the one that started it dies, so that it does not keep the port for ever."""
    import multiprocessing

    supervisor = multiprocessing.parent_process()
    if supervisor is None:
        return

    def watch() -> None:
        supervisor.join()
        logger.warning("The parent process has died. This worker process shuts down.")
        signal.raise_signal(signal.SIGTERM)

    threading.Thread(target=watch, name="antiphon-supervisor-watch", daemon=True).start()


def notify_on_signals(app: App) -> None:
    """Tell the app about SIGTERM and SIGINT, and call the current handlers when it stops listening.

    Worker processes need this: their supervisor creates a plain `uvicorn.Server`, which has no hook for
    signals and no delay.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        _prepend_handler(number, app, app.limits.shutdown_delay if number == signal.SIGTERM else 0.0)


def _prepend_handler(number: int, app: App, delay: float) -> None:
    current = signal.getsignal(number)
    subject = f"Worker process {os.getpid()}"
    interrupts = Interrupts(app.count_running, app.limits.drain_timeout, subject=subject)

    def close(received: int, frame: FrameType | None) -> None:
        app.begin_shutdown()
        if callable(current):
            current(received, frame)

    def handle(received: int, frame: FrameType | None) -> None:
        if received == signal.SIGINT:
            interrupts.handle()
        app.announce_shutdown()
        if delay:
            loop = asyncio.get_running_loop()
            loop.call_soon_threadsafe(loop.call_later, delay, close, received, None)
        else:
            close(received, frame)

    signal.signal(number, handle)


def _serve_alone(server: Server, settings: Settings, listening: socket.socket) -> None:
    announce = partial(announcement, server, listening, settings.path)
    runner, app, sockets = _create_runner(server, settings, listening, announce)
    try:
        runner.run(sockets=sockets)
    except KeyboardInterrupt:
        return  # SIGINT, raised again like SIGTERM
    except SystemExit as error:
        if error.code:
            raise _startup_error(app.failure) from None
        raise
    finally:
        end_without_threads(server)


async def serve_in_loop(
    server: Server, settings: Settings, listening: socket.socket, announce: Callable[[], str]
) -> None:
    """Serve over HTTP in the event loop that runs, until a signal stops the server. Raises `CommandError`."""
    runner, app, sockets = _create_runner(server, settings, listening, announce)
    try:
        await runner.serve(sockets=sockets)
    except SystemExit:  # uvicorn exits if the app cannot start
        if app.failure is None:
            raise
    if app.failure is not None:
        raise _startup_error(app.failure)


def _create_runner(
    server: Server, settings: Settings, listening: socket.socket, announce: Callable[[], str]
) -> tuple[HttpServer, App, list[socket.socket]]:
    """Return what serves the app of a server, the app, and the sockets to serve."""
    from antiphon.transport.server.http.serve import create_server

    console = _create_console(listening) if settings.console else None

    def report() -> None:
        # A server with tools of other programs has them once it has started.
        print(announce(), flush=True)
        _warn_if_open(server, settings, listening)
        if console is not None:
            print(console.announcement(), flush=True)

    # uvicorn raises the signal again after it has shut down: exit with code 0 then.
    signal.signal(signal.SIGTERM, _exit)
    app = create_app(server, settings, console)
    collect_less_often()
    config = _config(app, server, settings)
    sockets = [listening] if console is None else [listening, *console.sockets]
    return create_server(config, app, on_listening=report), app, sockets


def _create_console(listening: socket.socket) -> ServedConsole:
    from antiphon.cli.console.beside import ServedConsole

    return ServedConsole(listening)


def _startup_error(failure: Exception | None) -> CommandError:
    if isinstance(failure, StoreUnavailable):
        return CommandError(f"Cannot open the store: {failure}", UNREACHABLE)
    if isinstance(failure, DefinitionError):
        return CommandError(str(failure), FAILED)
    return CommandError("The server's lifespan failed to start. The log above says why.", FAILED)


def _serve_with_workers(server: Server, settings: Settings, listening: socket.socket, workers: int) -> None:
    from antiphon.cli.run.supervisor import WorkerSupervisor

    if server.task_tools and not has_shared_store(server):
        raise CommandError(
            f"The tool {server.task_tools[0]!r} can run as a task, so {workers} workers need a store that "
            "they share. Name one: --store sqlite:///tasks.db."
        )
    if not _has_shared_secret(server):
        os.environ["ANTIPHON_SECRETS"] = secrets.token_hex(SECRET_BYTES)
        print(
            "Warning: ANTIPHON_SECRETS is not set. The workers share a random secret, so sessions end when "
            "this command ends.",
            file=sys.stderr,
        )
    if isinstance(server.store, str) and has_shared_store(server):
        asyncio.run(_check_store(server.store))
    settings.to_environment()
    config = _config(
        f"{__name__}:{create_worker_app.__name__}", server, settings, factory=True, workers=workers
    )
    print(announcement(server, listening, settings.path, workers), flush=True)
    _warn_if_open(server, settings, listening)
    supervisor = WorkerSupervisor(config, sockets=[listening])
    with _ending_on_second_interrupt(supervisor):
        supervisor.run()
    exit_codes = {process.exitcode for process in supervisor.processes}
    if INTERRUPTED in exit_codes:  # two signals may have reached this process as one, and a worker as two
        exit_at_once()
    if exit_codes - {0, -signal.SIGTERM, -signal.SIGINT}:
        raise CommandError("A worker process failed to start or was killed.", FAILED)


async def _check_store(url: str) -> None:
    """Open the store once, so that not each worker process reports the same error. Raises `CommandError`."""
    from antiphon.store import open_store

    store = open_store(url)
    try:
        await store.open()
    except StoreUnavailable as error:
        raise _startup_error(error) from None
    finally:
        await store.close()


@contextmanager
def _ending_on_second_interrupt(supervisor: Multiprocess) -> Iterator[None]:
    """End the supervisor and its worker processes on the second SIGINT. The first one drains the workers."""
    is_first = True

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal is_first
        if not is_first:
            for worker in supervisor.processes:
                worker.process.kill()
            exit_at_once()
        is_first = False
        supervisor.signal_queue.append(number)

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _has_shared_secret(server: Server) -> bool:
    """Return whether the server's secrets come from its settings, so that all processes have the same."""
    return server.engine.seal.shared


def _config(
    app: Any, server: Server, settings: Settings, *, factory: bool = False, workers: int = 1
) -> uvicorn.Config:
    from antiphon.transport.server.http.serve import create_config

    return create_config(
        app,
        limits=server.limits,
        factory=factory,
        workers=workers,
        interface="asgi3",
        lifespan="on",
        log_config=None,
        access_log=settings.access_log,
        backlog=LISTEN_BACKLOG,
    )


def listen(host: str, port: int, option: str = "--port") -> socket.socket:
    """Return a listening socket; raises `CommandError`. `option` names the option that chooses the port."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, proto)
    except OSError as error:
        raise CommandError(f"Cannot listen on {host}: {error.strerror}.", UNREACHABLE) from None
    except UnicodeError:
        raise CommandError(f"Cannot listen on {host}: the host name is invalid.", UNREACHABLE) from None
    try:
        if sys.platform != "win32":
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(LISTEN_BACKLOG)
    except OSError as error:
        listening.close()
        hint = f" Choose another port: {option} {port + 1}." if error.errno == errno.EADDRINUSE else ""
        raise CommandError(f"Cannot listen on {host}:{port}: {error.strerror}.{hint}", UNREACHABLE) from None
    listening.set_inheritable(True)
    return listening


def announcement(server: Server, listening: socket.socket, path: str, workers: int = 1) -> str:
    """Return the line that says where a server is. Its names may come from other servers."""
    host, port = listening.getsockname()[:2]
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}{path}"
    processes = f" by {workers} workers" if workers > 1 else ""
    served = f"{printable(server.name)} is served at {url}{processes}."
    offered = [name for name, tool in server.engine.registry.tools.items() if tool.offer.is_for_strangers]
    if not server.tools and server.engine.registry.offers("tools"):
        # An adopted server is asked for its tools when it starts, which each worker process does for itself.
        return served
    return f"{served} Tools: {', '.join(map(printable, offered)) or 'none'}."


def _warn_if_open(server: Server, settings: Settings, listening: socket.socket) -> None:
    from antiphon.transport.server.http.guard import exposures

    if not server.engine.authenticates:
        host, name = listening.getsockname()[0], printable(server.name)
        for warning in exposures(name, host, settings.hosts, settings.origins):
            print(f"Warning: {warning}", file=sys.stderr)


def _exit(number: int, frame: FrameType | None) -> NoReturn:
    signal.signal(number, signal.SIG_IGN)  # another one while the process exits would look like a failure
    raise SystemExit(0)
