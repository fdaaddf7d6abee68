"""Opens a client in an asyncio task of its own, and closes it there.

The lifespan of a server in this process must close in the task that opened it. The tasks that need the client
may be others.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from antiphon.client.client import Client

if TYPE_CHECKING:
    from antiphon.client.group import ClientGroup

__all__ = ["Lifetime"]


class Lifetime:
    """The time for which a client is open. A client that was open before stays open after it."""

    def __init__(self, client: Client | ClientGroup) -> None:
        self._client = client
        self._holding: asyncio.Task[None] | None = None
        self._leave = asyncio.Event()

    async def begin(self) -> None:
        """Open the client; raises the error of connecting."""
        opener = self._client._connection if isinstance(self._client, Client) else self._client
        if opener.is_open:
            return
        self._leave = asyncio.Event()  # of the running event loop
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._holding = asyncio.create_task(self._hold(opened))
        try:
            await opened
        except asyncio.CancelledError:
            self._holding.cancel()
            raise

    async def end(self) -> None:
        """Close the client; raises the error of closing."""
        holding, self._holding = self._holding, None
        if holding is None:
            return
        self._leave.set()
        try:
            await asyncio.wait({holding})
        except asyncio.CancelledError:
            holding.cancel()
            await asyncio.wait({holding})
            raise
        if not holding.cancelled():
            holding.result()

    async def _hold(self, opened: asyncio.Future[None]) -> None:
        """Keep the client open until the lifetime ends."""
        try:
            async with self._client:
                if not opened.done():
                    opened.set_result(None)
                await self._leave.wait()
        except BaseException as error:
            if opened.done():
                raise
            opened.set_exception(error)
