"""The process that serves the file of `antiphon dev`. It reports to the process that started it."""

from __future__ import annotations

import asyncio
import socket
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from antiphon.cli.dev.call_lines import show_calls
from antiphon.cli.exit_codes import CommandError
from antiphon.cli.run.serve import announcement, load_configured_server, serve_in_loop, stop_with_parent
from antiphon.cli.run.settings import Settings
from antiphon.cli.run.threads import GRACE_SECONDS, end_without_threads
from antiphon.transport.server.http.serve import ANSWER_SECONDS

if TYPE_CHECKING:
    from antiphon.server import Server

__all__ = ["Report", "serve_child"]

_PACKAGE = Path(__file__).parents[2]
_MARGIN_SECONDS = 5.0
"""The time for what has no time limit of its own, such as the end of the server's lifespan."""


class Report(msgspec.Struct, frozen=True):
    """What the process that serves the file says about it."""

    files: list[str]
    """The Python files that were imported, without those of installed packages."""
    ready: str = ""
    """The line that says where the server is; empty if it could not be started."""
    store: str | None = None
    """The URL of the server's store, if it has one that another process can open."""
    error: str = ""
    """Why the file cannot be served."""
    stop_seconds: float = 0.0
    """How long the process may take to finish its calls after SIGTERM; 0 if it serves none."""


def serve_child(settings: Settings, listening: socket.socket, reports: Connection) -> None:
    """Load the file, serve it on the socket until SIGTERM, and report what came of it."""
    stop_with_parent()
    try:
        server = load_configured_server(settings)
        settings.configure_logging()
        if settings.log_level in ("debug", "info"):
            show_calls(server)

        def announce() -> str:
            line = announcement(server, listening, settings.path)
            reports.send(
                Report(_own_files(), ready=line, store=_store_url(server), stop_seconds=_stop_seconds(server))
            )
            return line

        asyncio.run(serve_in_loop(server, settings, listening, announce))
    except CommandError as error:
        text = f"{error.details.rstrip()}\n{error.message}" if error.details else error.message
        reports.send(Report(_own_files(), error=text))
        raise SystemExit(error.code) from None
    except KeyboardInterrupt:
        pass  # the terminal sends Ctrl-C to all processes
    end_without_threads(server)


def _stop_seconds(server: Server) -> float:
    """Return after how many seconds the process of a server has ended at the latest, if all goes well."""
    limits = server.limits
    return limits.shutdown_delay + limits.drain_timeout + ANSWER_SECONDS + GRACE_SECONDS + _MARGIN_SECONDS


def _store_url(server: Server) -> str | None:
    store = server.store
    return store if isinstance(store, str) and not store.startswith("memory:") else None


def _own_files() -> list[str]:
    """Return the files of the modules that are not installed packages."""
    installed = {Path(sys.prefix), Path(sys.base_prefix), _PACKAGE}
    found = []
    for module in list(sys.modules.values()):
        name = getattr(module, "__file__", None)
        if isinstance(name, str) and name.endswith(".py"):
            path = Path(name).absolute()
            if not any(path.is_relative_to(place) for place in installed):
                found.append(str(path))
    return found
