"""`antiphon worker`: runs the tasks of a server and serves no MCP requests.

On SIGTERM or SIGINT the worker claims no more tasks. Running tasks get `Limits.drain_timeout` seconds to
finish; then the worker releases them, and another worker continues them at once.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from types import FrameType
from typing import TYPE_CHECKING

from antiphon.cli.exit_codes import UNREACHABLE, CommandError
from antiphon.cli.run.garbage_collection import collect_less_often
from antiphon.cli.run.serve import has_shared_store, listen, load_configured_server
from antiphon.cli.run.settings import Settings
from antiphon.cli.run.threads import end_without_threads
from antiphon.cli.signals import woken_by_signals
from antiphon.errors import StoreUnavailable
from antiphon.printable import printable
from antiphon.store import hide_password
from antiphon.transport.server.interrupts import Interrupts, Running

if TYPE_CHECKING:
    from antiphon.server import Server

__all__ = ["run_worker"]


def run_worker(
    settings: Settings,
    *,
    concurrency: int | None = None,
    tools: Sequence[str] | None = None,
    host: str = "127.0.0.1",
    port: int | None = None,
) -> None:
    """Run tasks until a signal stops the process. Raises `CommandError`."""
    server = load_configured_server(settings.without_authentication())
    settings.observe(server)
    if not has_shared_store(server):
        raise CommandError(
            "A worker needs a store that it shares with a server. Name one: --store sqlite:///tasks.db."
        )
    if not server.task_tools:
        raise CommandError(
            f"No tool of {server.name!r} can run as a task, so there is nothing to do. "
            'Allow one to: @server.tool(task="optional"), or --task TOOL for a server of another library.'
        )
    for name in tools or ():
        if name not in server.task_tools:
            raise CommandError(
                f"No tool {name!r} can run as a task. These can: {', '.join(server.task_tools)}."
            )
    server.configure(task_tools=tools, max_running_tasks=concurrency)
    announcement = _announcement(server, tools or server.task_tools)
    collect_less_often()
    with nullcontext() if port is None else listen(host, port) as listening:
        try:
            work = _run_until_signal(server, announcement, listening, settings.hosts)
            asyncio.run(woken_by_signals(work))
            # Python takes its handlers away before it exits. Another SIGTERM would then look like a failure.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            end_without_threads(server)
        except StoreUnavailable as error:
            raise CommandError(f"Cannot open the store: {error}", UNREACHABLE) from None


async def _run_until_signal(
    server: Server, announcement: str, listening: socket.socket | None, hosts: Sequence[str] | None
) -> None:
    loop, stopping, has_started = asyncio.get_running_loop(), asyncio.Event(), False

    tasks = server.engine.tasks
    interrupts = Interrupts(lambda: Running(tasks=tasks.running), server.limits.drain_timeout)

    def stop(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT:
            interrupts.handle()
        with suppress(RuntimeError):  # the loop is closed: the worker has stopped
            loop.call_soon_threadsafe(stopping.set)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    # The probes outlive the tasks: they say that the worker is not ready while it drains.
    probes = _probes(server, listening, hosts, is_ready=lambda: has_started and not stopping.is_set())
    async with probes, server.running():
        has_started = True
        print(announcement, flush=True)
        await stopping.wait()


@asynccontextmanager
async def _probes(
    server: Server,
    listening: socket.socket | None,
    hosts: Sequence[str] | None,
    *,
    is_ready: Callable[[], bool],
) -> AsyncIterator[None]:
    """Respond to health checks and metrics requests in the background, if there is a socket for them."""
    if listening is None:
        yield
        return
    from antiphon.transport.server.http.probes import ProbeApp
    from antiphon.transport.server.http.serve import HttpServer, create_config

    config = create_config(
        ProbeApp(server.engine, is_ready, hosts),
        limits=server.limits,
        lifespan="off",
        log_config=None,
        access_log=False,
    )
    runner = HttpServer(config, handle_signals=False)
    serving = asyncio.create_task(runner.serve(sockets=[listening]))
    try:
        yield
    finally:
        runner.should_exit = True
        await serving


def _announcement(server: Server, tools: Sequence[str]) -> str:
    source = f" from {hide_password(server.store)}" if isinstance(server.store, str) else ""
    return f"{printable(server.name)} is running tasks{source}. Tools: {', '.join(map(printable, tools))}."
