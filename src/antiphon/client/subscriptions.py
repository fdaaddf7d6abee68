"""Which changes a client hears of, and the stream that brings them.

It owns the set of interests. On versions with sessions it subscribes to one resource after another; later
ones have one request for everything, which is sent anew when the set changes and when its stream breaks.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable

from antiphon.backoff import Backoff
from antiphon.client.connection import Connection
from antiphon.errors import AntiphonError, ClientError, TimedOut
from antiphon.model.request import Listen, RequestId, RequestMeta, Subscribe, SubscriptionFilter, Unsubscribe

__all__ = ["Subscriptions"]

logger = logging.getLogger("antiphon.client")

_MAX_FAILURES = 5
"""How often in a row the stream may break before the client gives it up."""
_FIRST_RETRY_SECONDS, _LONGEST_RETRY_SECONDS = 1.0, 60.0


class Subscriptions:
    """The interests of one client. `missed` is called when changes may have been missed."""

    def __init__(self, connection: Connection, missed: Callable[[], None]) -> None:
        self._connection = connection
        self._missed = missed
        self._uris: Counter[str] = Counter()
        self._lists = 0
        self._changing = asyncio.Lock()
        self._stream: asyncio.Task[None] | None = None
        self._acknowledging: dict[RequestId, asyncio.Future[SubscriptionFilter]] = {}

    async def add(self, *uris: str, lists: bool = False) -> None:
        """Hear of these resources, and of lists that change.

        Raises `ClientError` where the server does not tell of one of them.
        """
        async with self._changing:
            new = [uri for uri in uris if not self._uris[uri]]
            self._uris.update(uris)
            self._lists += lists
            try:
                if self._connection.dialect.has_sessions:
                    await self._connection.channel.listen(self._connection.dialect.headers)
                    for uri in new:
                        await self._connection.ask(Subscribe(uri))
                elif new or (lists and self._lists == 1):
                    await self._reopen(new)
            except BaseException:
                self._drop(uris, lists=lists)
                raise

    async def remove(self, *uris: str, lists: bool = False) -> None:
        """Hear of them no more, unless somebody else wants to."""
        async with self._changing:
            gone = self._drop(uris, lists=lists)
            if self._connection.dialect.has_sessions:
                for uri in gone:
                    await self._connection.ask(Unsubscribe(uri))
            elif gone or (lists and not self._lists):
                await self._reopen([])

    async def renew(self) -> None:
        """The session is a new one, which knows nothing of what the old one was told."""
        self._missed()
        if self._uris or self._lists:
            await self._connection.channel.listen(self._connection.dialect.headers)
        for uri in self._uris:
            await self._connection.ask(Subscribe(uri))

    def acknowledge(self, subscription: RequestId | None, interests: SubscriptionFilter) -> None:
        """The server has said which changes it will tell of."""
        waiting = self._acknowledging.get(subscription) if subscription is not None else None
        if waiting is not None and not waiting.done():
            waiting.set_result(interests)

    async def close(self) -> None:
        """Hear of nothing any more."""
        stream, self._stream = self._stream, None
        await _stop(stream)

    def _drop(self, uris: tuple[str, ...], *, lists: bool) -> list[str]:
        self._uris.subtract(uris)
        gone = [uri for uri in dict.fromkeys(uris) if self._uris[uri] <= 0]
        for uri in gone:
            del self._uris[uri]
        self._lists = max(0, self._lists - lists)
        return gone

    def _interests(self) -> SubscriptionFilter:
        announced = self._connection.offers.list_changes if self._lists > 0 else frozenset()
        return SubscriptionFilter(
            tools_list_changed="tools" in announced,
            prompts_list_changed="prompts" in announced,
            resources_list_changed="resources" in announced,
            resource_subscriptions=tuple(self._uris),
        )

    async def _reopen(self, needed: list[str]) -> None:
        """Open a stream for the interests of now, and only then close the one of before."""
        before = self._stream
        interests = self._interests()
        if interests == SubscriptionFilter():
            self._stream = None
        else:
            accepted: asyncio.Future[SubscriptionFilter] = asyncio.get_running_loop().create_future()
            stream = asyncio.create_task(self._hear(interests, accepted))
            try:
                async with asyncio.timeout(self._connection.timeout):
                    told = await accepted
                refused = set(needed) - set(told.resource_subscriptions)
                if refused:
                    raise ClientError(f"The server does not tell of changes to {', '.join(sorted(refused))}.")
            except TimeoutError:
                await _stop(stream)
                raise TimedOut("The server has not acknowledged the subscription.") from None
            except BaseException:
                await _stop(stream)
                raise
            self._stream = stream
        await _stop(before)

    async def _hear(
        self, interests: SubscriptionFilter, accepted: asyncio.Future[SubscriptionFilter]
    ) -> None:
        """Keep a stream open; what comes on it goes the way of all notifications."""
        failures, backoff = 0, Backoff(_FIRST_RETRY_SECONDS, _LONGEST_RETRY_SECONDS)
        while failures < _MAX_FAILURES:
            again = asyncio.get_running_loop().create_future() if accepted.done() else accepted
            try:
                await self._hear_once(interests, again)
            except AntiphonError as error:
                if not accepted.done():
                    accepted.set_exception(error)
                    return
                logger.debug("The stream of changes broke: %s", error)
            if not accepted.done():
                accepted.set_exception(ClientError("The server ended the subscription at once."))
                return
            failures += 1
            if again.done():
                failures = 0
                backoff.reset()
            self._missed()
            await asyncio.sleep(backoff.next_delay())
        logger.warning("The stream of changes does not stay open; changes are not heard of any more.")

    async def _hear_once(
        self, interests: SubscriptionFilter, accepted: asyncio.Future[SubscriptionFilter]
    ) -> None:
        connection = self._connection
        dialect = connection.dialect
        request = Listen(interests)
        message = connection.write(request, RequestMeta())
        assert message.id is not None
        self._acknowledging[message.id] = accepted
        try:
            dialect.read(request, await connection.channel.request(message))
        except asyncio.CancelledError:
            connection.abandon(dialect, message)
            raise
        finally:
            del self._acknowledging[message.id]


async def _stop(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        task.cancel()
        await asyncio.wait({task})
