"""One person's connection to one server: the client, its messages, its calls and its open questions.

The messages stay when the connection is opened again, for example after the server was restarted.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from antiphon.client import Client
from antiphon.client.recording import record_messages
from antiphon.console.routes import ConsoleUser, Problem
from antiphon.console.sources import ServerSource
from antiphon.console.workbench.calls import BenchCall, Calls
from antiphon.console.workbench.feed import Feed
from antiphon.console.workbench.message_log import MessageLog
from antiphon.console.workbench.questions import OpenQuestions
from antiphon.console.workbench.views import server_view, version_choices
from antiphon.errors import AntiphonError
from antiphon.model.notification import Change, ListChanged
from antiphon.model.ui import UI_EXTENSION, UI_QUESTIONS, asks_in_ui

__all__ = ["BenchConnection"]

logger = logging.getLogger("antiphon")

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
MAX_SUBSCRIPTIONS = 100


class BenchConnection:
    """A connection of the workbench. `open` connects, and may be called again to connect anew.

    `on_kept` is called with the number of bytes when the connection keeps more.
    """

    def __init__(
        self,
        id: str,
        source: ServerSource,
        user: ConsoleUser,
        protocol: str | None,
        on_kept: Callable[[int], None],
    ) -> None:
        self.id = id
        self.source = source
        self.user = user
        self.protocol = protocol
        """The only version to speak; `None` for the newest one that the server speaks."""
        self.used_at = time.monotonic()
        self.feed = Feed(self._snapshot)
        self._on_kept = on_kept
        self.log = MessageLog(self._logged)
        self.questions = OpenQuestions(self.feed.publish, self._lets_apps_ask)
        self.calls = Calls(self.feed.publish, on_kept)
        self._subscriptions: set[str] = set()
        self._client: Client | None = None
        self._opening = asyncio.Lock()

    @property
    def client(self) -> Client:
        """The connected client; raises `Problem` if the connection is closed."""
        self.used_at = time.monotonic()
        if self._client is None:
            raise Problem(409, "The connection is closed. Connect again.")
        return self._client

    @property
    def version(self) -> str:
        """The version that is spoken, or that the person chose; empty if neither is known."""
        return self._client.version if self._client is not None else self.protocol or ""

    @property
    def is_in_use(self) -> bool:
        """Whether a page is open, or a call is running."""
        return self.feed.has_listeners or self.calls.running > 0

    @property
    def size(self) -> int:
        """How many bytes of calls and messages are kept, about."""
        return self.calls.size + self.log.size

    def forget(self) -> None:
        """Drop all finished calls and all messages."""
        self.calls.forget()
        self.log.clear()
        self.feed.resynchronize()

    def _logged(self, summary: dict[str, Any]) -> None:
        self.feed.publish("message", summary)
        self._on_kept(summary["size"])

    async def open(self, *, again: bool = False) -> None:
        """Connect, unless the client is connected; with `again`, connect anew.

        Raises the error of the connection. Its messages are kept, so that the person sees how far it got.
        """
        async with self._opening:
            if self._client is not None and not again:
                return
            await self._disconnect()
            options: dict[str, Any] = {} if self.protocol is None else {"protocol": self.protocol}
            if self.source.shows_apps:
                options["capabilities"] = {"extensions": {UI_EXTENSION: UI_QUESTIONS}}
            client = self.source.create_client(
                self.user,
                name="antiphon-console",
                max_message=MAX_MESSAGE_BYTES,
                elicit=self.questions.elicit,
                sample=self.questions.sample,
                roots=self.questions.roots,
                on_log=self.calls.add_log,
                on_change=self._changed,
                **options,
            )
            record_messages(client, self.log.add)
            await client.__aenter__()
            self._client = client
            self._subscriptions.clear()
            if client.offers.logging:
                with contextlib.suppress(AntiphonError):
                    await client.set_log_level("debug")
            self.feed.resynchronize()

    def _lets_apps_ask(self) -> bool:
        client = self._client
        return self.source.shows_apps and client is not None and asks_in_ui(client.capabilities)

    async def close(self) -> None:
        """Stop the calls, and close the client and the streams of the pages."""
        self.feed.close()
        async with self._opening:
            await self._disconnect()

    async def _disconnect(self) -> None:
        await self.calls.close()
        client, self._client = self._client, None
        if client is not None:
            try:
                await client.__aexit__(None, None, None)
            except AntiphonError as error:
                logger.debug("A connection of the workbench did not close cleanly: %s", error)

    # What the page shows

    def view(self) -> dict[str, Any]:
        """Return the connection and how the server describes itself."""
        return {
            "id": self.id,
            "source": {"id": self.source.id, "name": self.source.name, "kind": self.source.kind},
            "protocol": self.protocol,
            "versions": version_choices(None if self.protocol else self.version),
            **server_view(self.client, self.source.name),
        }

    def start_call(self, kind: str, name: str, arguments: Mapping[str, Any], as_task: bool) -> BenchCall:
        """Start a call; raises `Problem` if too many run."""
        return self.calls.start(self.client, kind, name, arguments, as_task)

    async def subscribe(self, uri: str, *, on: bool) -> list[str]:
        """Begin or stop to hear of the changes of a resource; returns all such resources."""
        if on:
            if len(self._subscriptions) >= MAX_SUBSCRIPTIONS:
                raise Problem(429, f"There are {MAX_SUBSCRIPTIONS} subscriptions: remove one first.")
            await self.client.subscribe(uri)
            self._subscriptions.add(uri)
        elif uri in self._subscriptions:
            await self.client.unsubscribe(uri)
            self._subscriptions.discard(uri)
        return sorted(self._subscriptions)

    def _snapshot(self) -> dict[str, Any]:
        return {
            "isOpen": self._client is not None,
            "calls": self.calls.summaries(),
            "questions": self.questions.views(),
            "messages": self.log.latest(),
            "dropped": self.log.dropped,
            "subscriptions": sorted(self._subscriptions),
        }

    def _changed(self, change: Change) -> None:
        if isinstance(change, ListChanged):
            self.feed.publish("changed", {"list": change.kind})
        else:
            self.feed.publish("changed", {"uri": change.uri})
