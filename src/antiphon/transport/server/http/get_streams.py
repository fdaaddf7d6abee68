"""The event streams that a client with a session opens by GET: to listen, or to take up a broken stream."""

from __future__ import annotations

import asyncio

from antiphon.errors import StreamGone
from antiphon.runtime.change_feed import ChangeFeed
from antiphon.transport.server.http.event_buffer import EventBuffer
from antiphon.transport.server.http.exchange import Exchange
from antiphon.transport.server.http.sessions import Session

__all__ = ["find", "listen", "take_up"]


async def listen(changes: ChangeFeed, session: Session, exchange: Exchange) -> None:
    """Send changes as they happen. A session has one such stream: a new one ends the one before."""
    if session.listening is not None:
        session.listening.stop("cancelled")
    session.listening = exchange
    stream = exchange.stream()
    try:
        with changes.listen(session.peer.wants) as listener:
            await stream.open()
            async for change in listener:
                await exchange.notify(change)
        await stream.end()
    except asyncio.CancelledError:
        if exchange.stopped != "cancelled":
            raise
        exchange.absolve()
        await stream.end()
    finally:
        exchange.answering = True
        if session.listening is exchange:
            session.listening = None


def find(session: Session, event_id: str) -> tuple[EventBuffer, int]:
    """The stream that an event was on, and the event's number; raises `StreamGone`."""
    found = session.take_up(event_id)
    if found is None:
        raise StreamGone("That stream is no longer kept: send the request again.")
    return found


async def take_up(found: tuple[EventBuffer, int], exchange: Exchange) -> None:
    """Send what came after an event, on the stream that it was on."""
    replay, after = found
    stream = exchange.stream()
    await stream.open()
    async for event in replay.follow(after):
        await stream.pass_on(event)
    exchange.answering = True
    await stream.end()
