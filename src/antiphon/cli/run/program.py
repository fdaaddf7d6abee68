"""`antiphon run -- COMMAND`: runs a program that builds its server itself, and serves that server.

The program runs in this process, because its server has to be here. It must be installed in the same Python
environment; other programs go behind a gateway.
"""

from __future__ import annotations

import asyncio
import os
import re
import runpy
import shlex
import socket
import sys
import threading
from collections.abc import Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from antiphon.adoption.programs import Serve, intercepting_run
from antiphon.cli.exit_codes import FAILED, CommandError
from antiphon.cli.run.load import adopt_loaded
from antiphon.cli.run.serve import announcement, configure, listen, protected_stdout, serve_in_loop
from antiphon.cli.run.settings import Settings
from antiphon.cli.run.threads import end_without_threads
from antiphon.errors import DefinitionError
from antiphon.server import Server

__all__ = ["serve_program"]

_PYTHON = re.compile(r"python[0-9.]*(\.exe)?\Z")


def serve_program(words: Sequence[str], settings: Settings, *, host: str, port: int, stdio: bool) -> None:
    """Run a program, and serve the server that it runs. Raises `CommandError`."""
    run = _find_program(words)
    served: list[Server] = []
    failures: list[BaseException] = []
    guarded: list[Any] = []

    def take(server: Any) -> Server:
        adopted = adopt_loaded(
            server,
            settings.tasks,
            allow_anonymous=settings.allow_anonymous,
            is_private=stdio,
            is_guarded=any(each is server for each in guarded),
        )
        configure(adopted, settings)
        settings.observe(adopted)
        served.append(adopted)
        return adopted

    if stdio:
        with protected_stdout() as restore_stdout:

            async def serve(server: Any) -> None:
                adopted = take(server)
                restore_stdout()
                await adopted.stdio()

            _run(run, _noting_failures(serve, failures), guarded, ignores_middleware=True)
    else:
        _use_uvloop()

        async def serve(server: Any) -> None:
            adopted = take(server)
            # Not before: processes that the program has forked would keep the port.
            with listen(host, port) as listening:
                _close_in_forks(listening)
                await serve_in_loop(
                    adopted, settings, listening, lambda: announcement(adopted, listening, settings.path, 1)
                )

        _run(
            run,
            _noting_failures(serve, failures),
            guarded,
            ignores_middleware=settings.allow_anonymous,
        )
    if failures:
        raise _command_error(failures[0])
    if not served:
        raise CommandError(
            f"{shlex.join(words)} ended without running a server of mcp or fastmcp over stdio or HTTP.",
            FAILED,
        )
    end_without_threads(served[0])


def _noting_failures(serve: Serve, failures: list[BaseException]) -> Serve:
    """Return a function that serves, and remembers why it failed: the program may swallow the error."""

    async def serve_in_main_thread(server: Any) -> None:
        try:
            if threading.current_thread() is not threading.main_thread():
                raise CommandError(
                    "The program runs its server in a thread, and Antiphon serves in the main thread only. "
                    "Run the program as it is, behind a gateway: antiphon gateway -- COMMAND.",
                    FAILED,
                )
            await serve(server)
        except BaseException as error:
            if isinstance(error, Exception) or (isinstance(error, SystemExit) and error.code):
                failures.append(error)
            raise

    return serve_in_main_thread


def _command_error(failure: BaseException) -> BaseException:
    return CommandError(str(failure), FAILED) if isinstance(failure, DefinitionError) else failure


def _close_in_forks(listening: socket.socket) -> None:
    """Close the socket in processes that the program forks or starts, so that they do not keep the port."""
    listening.set_inheritable(False)

    def close() -> None:
        if (descriptor := listening.detach()) >= 0:  # the event loop holds the socket, so that close() waits
            os.close(descriptor)

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=close)


def _run(run: Any, serve: Serve, guarded: list[Any], *, ignores_middleware: bool) -> None:
    with intercepting_run(serve, ignores_middleware=ignores_middleware, guarded=guarded):
        try:
            run()
        except KeyboardInterrupt:
            return
        except DefinitionError as error:
            raise _command_error(error) from None
        except SystemExit as error:
            if error.code:
                raise


def _find_program(words: Sequence[str]) -> Any:
    """Return a function that runs a program as the system would; raises `CommandError`."""
    first, *rest = words
    if _PYTHON.match(os.path.basename(first)) and rest:
        if rest[0] == "-m" and len(rest) > 1:
            return lambda: _run_module(rest[1], rest[2:])
        first, *rest = rest
    if first.endswith(".py"):
        if not Path(first).is_file():
            raise CommandError(f"There is no file {first}.")
        return lambda: _run_file(first, rest)
    found = entry_points(group="console_scripts", name=os.path.basename(first))
    if not found:
        raise CommandError(
            f"There is no console script {first!r} in the Python environment of Antiphon. Install its "
            f"package there, or put a gateway in front of it: antiphon gateway -- {shlex.join(words)}"
        )
    [entry, *_] = found

    def run() -> None:
        sys.argv = [first, *rest]
        result = entry.load()()
        if asyncio.iscoroutine(result):
            asyncio.run(result)

    return run


def _run_module(name: str, arguments: Sequence[str]) -> None:
    sys.argv = [name, *arguments]
    sys.path.insert(0, str(Path.cwd()))
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def _run_file(path: str, arguments: Sequence[str]) -> None:
    sys.argv = [path, *arguments]
    sys.path.insert(0, str(Path(path).resolve().parent))
    runpy.run_path(path, run_name="__main__")


def _use_uvloop() -> None:
    """Have the event loop that the program starts be the one of `antiphon run`, where that exists."""
    try:
        import uvloop
    except ImportError:
        return
    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
