"""Runs `antiphon dev`: the console in the main thread, and the reloader in a thread beside it.

Owns the folder beside the file, in which tasks, sessions and the secret survive.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from antiphon.cli.console.serve import ConsoleSettings, check_loopback, serve_console
from antiphon.cli.dev.child import Report
from antiphon.cli.dev.reloader import Reloader
from antiphon.cli.exit_codes import FAILED, UNREACHABLE, CommandError
from antiphon.cli.run.serve import listen
from antiphon.cli.run.settings import Settings
from antiphon.cli.stores import opened_store
from antiphon.cli.targets import split_target
from antiphon.store.private_files import create_private_file, make_private_folder

__all__ = ["serve_dev"]

FOLDER = ".antiphon"
"""The folder beside the file, for what survives a reload and the next start."""
FIRST_LOAD_SECONDS = 30.0
"""How long the console waits for the file to be loaded for the first time."""
_SECRET_BYTES = 32


def serve_dev(
    settings: Settings, *, host: str, port: int, console_port: int, sandbox_port: int, opens_browser: bool
) -> None:
    """Serve a file and the console until Ctrl-C. Raises `CommandError`."""
    check_loopback(host)
    place = Path(split_target(settings.target)[0])
    if place.suffix == ".py" and not place.is_file():
        raise CommandError(f"There is no file {place}.")
    folder = (place.parent if place.suffix == ".py" else Path.cwd()).absolute()
    default_store = _prepare(folder / FOLDER)
    # uvicorn raises the signal again after it has shut down: exit with code 0 then.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with listen(host, port) as listening, _reloading(settings, listening, folder) as first:
        store = settings.store or first.store or (None if first.ready else default_store)
        if store is not None:
            asyncio.run(_create(store))
        serve_console(
            ConsoleSettings(
                targets=(_url(listening, settings.path),),
                stores=() if store is None else (store,),
                host=host,
                port=console_port,
                port_option="--console-port",
                sandbox_port=sandbox_port,
                opens_browser=opens_browser,
                log_level=settings.log_level,
            )
        )


def _prepare(folder: Path) -> str:
    """Name the store and the secrets for the server, unless the environment does; return the store's URL.

    A server that names its own store, or its own secrets, uses those.
    """
    try:
        make_private_folder(folder)
        (folder / ".gitignore").write_text("*\n", encoding="utf-8")
        secret = folder / "secret"
        create_private_file(secret)
        if not secret.read_text(encoding="utf-8").strip():
            secret.write_text(secrets.token_hex(_SECRET_BYTES), encoding="utf-8")
        os.environ.setdefault("ANTIPHON_SECRETS", secret.read_text(encoding="utf-8").strip())
    except OSError as error:
        raise CommandError(f"Cannot use the folder {folder}: {error.strerror}.", FAILED) from None
    return os.environ.setdefault("ANTIPHON_STORE", f"sqlite:///{folder / 'tasks.db'}")


async def _create(store: str) -> None:
    """Create a store that no process has opened yet."""
    async with opened_store(store, create=True):
        pass


@contextmanager
def _reloading(settings: Settings, listening: socket.socket, folder: Path) -> Iterator[Report]:
    """Serve and reload the file in a thread; yields the first report."""
    loaded = threading.Event()
    reports: list[Report] = []
    started: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[None]]] = []

    def on_report(report: Report) -> None:
        reports.append(report)
        del reports[1:]
        loaded.set()

    async def run() -> None:
        work = asyncio.ensure_future(Reloader(settings, listening, folder, on_report).run())
        started.append((asyncio.get_running_loop(), work))
        with contextlib.suppress(asyncio.CancelledError):
            await work

    thread = threading.Thread(target=asyncio.run, args=(run(),), name="antiphon-dev-reloader")
    thread.start()
    try:
        if not loaded.wait(FIRST_LOAD_SECONDS):
            raise CommandError(f"The file was not loaded within {FIRST_LOAD_SECONDS:g} s.", UNREACHABLE)
        yield reports[0]
    finally:
        for loop, work in started:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(work.cancel)
        thread.join()


def _url(listening: socket.socket, path: str) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}{path}"
