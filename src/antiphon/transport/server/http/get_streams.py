"""The event streams that a client with a session opens by GET: to listen, or to resume a broken stream."""

from __future__ import annotations

import asyncio

from antiphon.errors import StreamGone
from antiphon.model.identity import Principal
from antiphon.runtime.engine import Engine
from antiphon.transport.server.http.event_buffer import EventBuffer
from antiphon.transport.server.http.exchange import Exchange
from antiphon.transport.server.http.sessions import Session

__all__ = ["find", "listen", "resume"]


async def listen(engine: Engine, session: Session, exchange: Exchange, principal: Principal) -> None:
    """Send changes as they happen, until the caller must authenticate again.

    A session has one such stream: a new one ends the previous one.
    """
    if session.listening is not None:
        session.listening.stop("cancelled")
    session.listening = exchange
    stream = exchange.stream()
    try:
        wants = engine.visible_changes(session.state.is_subscribed_to, principal)
        with engine.changes.listen(wants, until=principal.expires_at) as listener:
            await stream.open()
            async for change in listener:
                await exchange.notify(change)
        await stream.end()
    except asyncio.CancelledError:
        if exchange.stop_reason != "cancelled":
            raise
        exchange.uncancel()
        await stream.end()
    finally:
        exchange.phase = "answering"
        if session.listening is exchange:
            session.listening = None


def find(session: Session, event_id: str) -> tuple[EventBuffer, int]:
    """Return the stream that an event was on, and the event's number; raises `StreamGone`."""
    found = session.find_stream(event_id)
    if found is None:
        raise StreamGone("The server no longer keeps this stream: send the request again.")
    return found


async def resume(session: Session, found: tuple[EventBuffer, int], exchange: Exchange) -> None:
    """Send the events that follow an event on its stream."""
    buffer, after = found
    session.resumed += 1
    try:
        stream = exchange.stream()
        await stream.open()
        async for event in buffer.follow(after):
            await stream.write_event(event)
        exchange.phase = "answering"
        await stream.end()
    finally:
        session.resumed -= 1
