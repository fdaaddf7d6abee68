"""`antiphon worker`: runs the tasks of a server without serving anybody.

On SIGTERM or SIGINT it claims nothing more. Running tasks get `Limits.drain_timeout` seconds to
end; the others are handed over to another worker at once.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext
from types import FrameType
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from antiphon.cli.exit_codes import UNREACHABLE, CommandError
from antiphon.cli.run.serve import listen, loaded
from antiphon.cli.run.settings import Settings
from antiphon.errors import StoreUnavailable

if TYPE_CHECKING:
    from antiphon.server import Server

__all__ = ["work"]


def work(
    settings: Settings,
    *,
    concurrency: int | None = None,
    tools: Sequence[str] | None = None,
    host: str = "127.0.0.1",
    port: int | None = None,
) -> None:
    """Run tasks until a signal ends it; raises `CommandError`."""
    server = loaded(settings)
    settings.configure_logging()
    place = server.store
    if place is None or place == "memory:":
        raise CommandError(
            "A worker needs a store that it shares with a server: --store sqlite:///tasks.db, for example."
        )
    offered = server.task_tools
    if not offered:
        raise CommandError(
            f"No tool of {server.name!r} gives promises, so there is nothing to do. "
            'Let one: @server.tool(task="optional").'
        )
    for name in tools or ():
        if name not in offered:
            raise CommandError(f"No tool {name!r} gives promises here; these do: {', '.join(offered)}.")
    server.configure(task_tools=tools, max_running_tasks=concurrency)
    where = f" on {_shown(place)}" if isinstance(place, str) else ""
    line = f"{server.name} has a worker{where}. Tools: {', '.join(tools or offered)}."
    with nullcontext() if port is None else listen(host, port) as listening:
        _run(server, line, listening)


def _run(server: Server, line: str, listening: socket.socket | None) -> None:
    try:
        asyncio.run(_until_told(server, line, listening))
    except StoreUnavailable as error:
        raise CommandError(f"The store cannot be opened: {error}", UNREACHABLE) from None


async def _until_told(server: Server, line: str, listening: socket.socket | None) -> None:
    loop, told = asyncio.get_running_loop(), asyncio.Event()

    def end(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(told.set)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    async with server.running(), _probes(server, listening, lambda: not told.is_set()):
        print(line, flush=True)
        await told.wait()


@asynccontextmanager
async def _probes(
    server: Server, listening: socket.socket | None, is_ready: Callable[[], bool]
) -> AsyncIterator[None]:
    """Answer load balancers and monitors meanwhile, if there is a socket for it."""
    if listening is None:
        yield
        return
    import uvicorn

    from antiphon.transport.server.http.probes import ProbeApp

    class Quiet(uvicorn.Server):
        """Leaves the signals to us."""

        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

    config = uvicorn.Config(
        ProbeApp(server.engine, is_ready), lifespan="off", log_config=None, access_log=False, ws="none"
    )
    runner = Quiet(config)
    serving = asyncio.create_task(runner.serve(sockets=[listening]))
    try:
        yield
    finally:
        runner.should_exit = True
        await serving


def _shown(place: str) -> str:
    """A URL as it may be printed: without the password that is in it."""
    parts = urlsplit(place)
    if parts.password is None:
        return place
    return urlunsplit(parts._replace(netloc=f"{parts.username}@{parts.netloc.rpartition('@')[2]}"))
