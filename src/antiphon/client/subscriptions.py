"""The subscriptions of a client, and the stream that brings changes.

Owns the set of subscriptions. In versions with sessions, the client subscribes to each resource by itself.
Later versions have one request for all subscriptions; the client sends it again if the set changes, and
whenever its stream breaks, for as long as there are subscriptions.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence

from antiphon.backoff import Backoff
from antiphon.client.connection import Connection
from antiphon.errors import AntiphonError, ClientError, TimedOut
from antiphon.model.notification import Change, ListChanged, ResourceUpdated
from antiphon.model.request import Listen, RequestId, RequestMeta, Subscribe, SubscriptionFilter, Unsubscribe
from antiphon.transport.client.authorization import AuthorizationNeeded, Authorizing, authorize_in_background

__all__ = ["Subscriptions"]

logger = logging.getLogger("antiphon.client")

_FAILURES_BEFORE_WARNING = 5
"""How often in a row the stream may break before a warning is logged."""
FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 1.0, 60.0


class Subscriptions:
    """The subscriptions of one client. `on_break` is called when the client begins to miss changes."""

    def __init__(self, connection: Connection, *, on_break: Callable[[], None]) -> None:
        self._connection = connection
        self._on_break = on_break
        self._uris: Counter[str] = Counter()
        self._list_subscribers = 0
        self._changing = asyncio.Lock()
        self._stream: asyncio.Task[None] | None = None
        self._acknowledging: dict[RequestId, tuple[asyncio.Future[SubscriptionFilter], asyncio.Timeout]] = {}
        self._reopening: set[RequestId] = set()

    async def add(self, *uris: str, lists: bool = False) -> None:
        """Subscribe to these resources, and to changes of the lists.

        Raises `ClientError` if the server does not announce changes of one of the resources.
        """
        async with self._changing:
            new = [uri for uri in uris if not self._uris[uri]]
            self._uris.update(uris)
            self._list_subscribers += lists
            try:
                if self._connection.dialect.has_sessions:
                    await self._connection.listen()
                    for uri in new:
                        await self._connection.ask(Subscribe(uri))
                elif new or (lists and self._list_subscribers == 1):
                    await self._reopen(new)
            except BaseException:
                self._drop(uris, lists=lists)
                raise

    async def remove(self, *uris: str, lists: bool = False) -> None:
        """Unsubscribe, unless another subscriber still wants the same changes."""
        async with self._changing:
            unused = self._drop(uris, lists=lists)
            if self._connection.dialect.has_sessions:
                for uri in unused:
                    await self._connection.ask(Unsubscribe(uri))
            elif unused or (lists and not self._list_subscribers):
                await self._reopen([])

    async def renew(self) -> None:
        """Subscribe again in a session, which does not know the subscriptions of the one before."""
        if self._uris or self._list_subscribers:
            await self._connection.listen()
        for uri in tuple(self._uris):
            await self._connection.ask(Subscribe(uri))

    def acknowledge(self, subscription: RequestId | None, accepted: SubscriptionFilter) -> bool:
        """Record which changes the server will announce for a subscription.

        Returns whether the subscription replaces one whose stream broke.
        """
        found = self._acknowledging.get(subscription) if subscription is not None else None
        if found is None or found[0].done() or found[1].expired():
            return False
        waiting, limit = found
        waiting.set_result(accepted)
        limit.reschedule(None)  # from now on, the stream may last for ever
        return subscription in self._reopening

    def all_changes(self) -> Sequence[Change]:
        """Return a change of everything that the client is subscribed to, for changes that it has missed."""
        wanted = self._filter()
        lists = {
            "tools": wanted.tools_list_changed,
            "prompts": wanted.prompts_list_changed,
            "resources": wanted.resources_list_changed,
        }
        return [
            *(ListChanged(kind, assumed=True) for kind, is_wanted in lists.items() if is_wanted),
            *(ResourceUpdated(uri, assumed=True) for uri in wanted.resource_subscriptions),
        ]

    async def close(self) -> None:
        """Close the stream."""
        stream, self._stream = self._stream, None
        await _stop(stream)

    def _drop(self, uris: tuple[str, ...], *, lists: bool) -> list[str]:
        """Remove one subscriber of each resource; returns the resources that have no subscriber any more."""
        self._uris.subtract(uris)
        unused = [uri for uri in dict.fromkeys(uris) if self._uris[uri] <= 0]
        for uri in unused:
            del self._uris[uri]
        self._list_subscribers = max(0, self._list_subscribers - lists)
        return unused

    def _filter(self) -> SubscriptionFilter:
        """Return the filter for all subscriptions; lists that the server does not announce are left out."""
        announced = self._connection.offers.list_changes if self._list_subscribers > 0 else frozenset()
        return SubscriptionFilter(
            tools_list_changed="tools" in announced,
            prompts_list_changed="prompts" in announced,
            resources_list_changed="resources" in announced,
            resource_subscriptions=tuple(self._uris),
        )

    async def _reopen(self, needed: list[str]) -> None:
        """Open a stream for the current subscriptions, then close the previous stream.

        Raises `ClientError` if the server does not accept one of the needed resources.
        """
        previous = self._stream
        wanted = self._filter()
        if wanted == SubscriptionFilter():
            self._stream = None
        else:
            acknowledged: asyncio.Future[SubscriptionFilter] = asyncio.get_running_loop().create_future()
            stream = asyncio.create_task(self._keep_open(wanted, acknowledged))
            try:
                accepted = await acknowledged
                refused = set(needed) - set(accepted.resource_subscriptions)
                if refused:
                    raise ClientError(
                        f"The server does not announce changes of {', '.join(sorted(refused))}."
                    )
            except BaseException:
                await _stop(stream)
                raise
            self._stream = stream
        await _stop(previous)

    async def _keep_open(
        self, wanted: SubscriptionFilter, acknowledged: asyncio.Future[SubscriptionFilter]
    ) -> None:
        """Keep a stream open. The connection receives the changes on it, as all notifications."""
        failures, backoff = 0, Backoff(FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS)
        asked: set[Authorizing] = set()
        while True:
            is_first = not acknowledged.done()
            current = acknowledged if is_first else asyncio.get_running_loop().create_future()
            error: AntiphonError = ClientError("The server ended the subscription at once.")
            try:
                await self._read_stream(wanted, current, is_first=is_first)
            except AuthorizationNeeded as needed:
                refused = (
                    await _authorize_once(needed, asked)  # the program waits for its subscription
                    if is_first
                    else await authorize_in_background(needed, self._connection.channel.peer)
                )
                if refused is None:
                    continue
                error = refused
            except AntiphonError as raised:
                error = raised
            if not acknowledged.done():
                acknowledged.set_exception(error)
                return
            failures += 1
            if current.done():
                failures = 0
                backoff.reset()
            elif failures == _FAILURES_BEFORE_WARNING:
                logger.warning(
                    "The stream of changes from %s keeps breaking: %s The client tries to open it again.",
                    self._connection.channel.peer,
                    error,
                )
            self._on_break()
            await asyncio.sleep(backoff.next_delay())

    async def _read_stream(
        self,
        wanted: SubscriptionFilter,
        acknowledged: asyncio.Future[SubscriptionFilter],
        *,
        is_first: bool,
    ) -> None:
        """Send the request for changes, and read its stream until it ends; raises `AntiphonError`."""
        connection = self._connection
        dialect = connection.dialect
        request = Listen(wanted)
        message = connection.write(request, RequestMeta())
        assert message.id is not None
        if not is_first:
            self._reopening.add(message.id)
        try:
            async with asyncio.timeout(connection.timeout) as limit:
                self._acknowledging[message.id] = acknowledged, limit
                dialect.read(request, await connection.channel.request(message))
        except TimeoutError:
            connection.abandon(dialect, message)
            raise TimedOut("The server has not acknowledged the subscription.") from None
        except asyncio.CancelledError:
            connection.abandon(dialect, message)
            raise
        finally:
            del self._acknowledging[message.id]
            self._reopening.discard(message.id)


async def _authorize_once(needed: AuthorizationNeeded, asked: set[Authorizing]) -> AntiphonError | None:
    """Authorize a stream, once for each kind; return why the stream cannot be opened, or `None`."""
    if needed.kind in asked:
        return needed.refusal
    asked.add(needed.kind)
    try:
        await needed.authorize()
    except ClientError as error:
        return error
    return None


async def _stop(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        task.cancel()
        await asyncio.wait({task})
