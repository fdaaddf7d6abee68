"""`antiphon worker`: runs the tasks of a server without serving anybody.

On SIGTERM or SIGINT it claims nothing more. What runs gets `Limits.drain` seconds to end; what does not is
handed over to another worker at once.
"""

from __future__ import annotations

import asyncio
import signal
from types import FrameType
from typing import TYPE_CHECKING

from antiphon.cli.exits import UNREACHABLE, CommandError
from antiphon.cli.serve import loaded
from antiphon.cli.settings import Settings
from antiphon.errors import StoreUnavailable

if TYPE_CHECKING:
    from antiphon.server import Server

__all__ = ["work"]


def work(settings: Settings) -> None:
    """Run tasks until a signal ends it; raises `CommandError`."""
    server = loaded(settings)
    settings.configure_logging()
    place = server._tasks.wanted
    if place is None or place == "memory:":
        raise CommandError(
            "A worker needs a store that it shares with a server: --store sqlite:///tasks.db, for example."
        )
    tools = [name for name, tool in server._catalog.tools.items() if tool.task != "forbidden"]
    if not tools:
        raise CommandError(
            f"No tool of {server.name!r} gives promises, so there is nothing to do. "
            'Let one: @server.tool(task="optional").'
        )
    where = f" on {place}" if isinstance(place, str) else ""
    line = f"{server.name} has a worker{where}. Tools: {', '.join(tools)}."
    try:
        asyncio.run(_until_told(server, line))
    except StoreUnavailable as error:
        raise CommandError(f"The store cannot be opened: {error}", UNREACHABLE) from None


async def _until_told(server: Server, line: str) -> None:
    loop, told = asyncio.get_running_loop(), asyncio.Event()

    def end(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(told.set)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    async with server.running():
        print(line, flush=True)
        await told.wait()
