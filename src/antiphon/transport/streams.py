"""The event streams that a client with a session opens by GET: to listen, or to take up a broken stream."""

from __future__ import annotations

import asyncio

from antiphon.errors import StreamGone
from antiphon.runtime.changes import Changes
from antiphon.runtime.warden import Watched
from antiphon.transport.reply import Reply
from antiphon.transport.sessions import Session

__all__ = ["listen", "take_up"]


async def listen(changes: Changes, session: Session, watched: Watched, reply: Reply) -> None:
    """Send changes as they happen. A session has one such stream: a new one ends the one before."""
    if session.listening is not None:
        session.listening.stop("cancelled")
    session.listening = watched
    try:
        with changes.listen(session.peer.wants) as listener:
            await reply.open()
            async for change in listener:
                await reply.notify(change)
        await reply.nothing()
    except asyncio.CancelledError:
        if watched.stopped != "cancelled":
            raise
        watched.absolve()
        await reply.nothing()
    finally:
        if session.listening is watched:
            session.listening = None
        reply.close()


async def take_up(session: Session, event_id: str, reply: Reply) -> None:
    """Send what came after an event, on the stream that it was on; raises `StreamGone`."""
    found = session.take_up(event_id)
    if found is None:
        raise StreamGone("That stream is no longer kept: send the request again.")
    replay, after = found
    try:
        await reply.open()
        async for event in replay.follow(after):
            await reply.raw(event)
        await reply.nothing()
    finally:
        reply.close()
