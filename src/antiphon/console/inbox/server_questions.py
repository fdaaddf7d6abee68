"""The open questions that a server has for the person who looks, as a client of the server sees them.

The console connects as that person. A server without an inbox has no questions.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from antiphon.console.inbox.open_question import OpenQuestion, checked_response, no_such_question
from antiphon.console.routes import ConsoleUser, Problem
from antiphon.console.sources import ServerSource
from antiphon.errors import AntiphonError, InvalidParams, MethodNotFound, RequestError
from antiphon.model.question import Elicit, OpenUrl
from antiphon.printable import printable

if TYPE_CHECKING:
    from antiphon.client import InboxItem

__all__ = ["ServerQuestions"]

_MAX_QUESTIONS = 200
"""How many questions of one server a page shows: the oldest ones."""
_MAX_PEOPLE = 32
"""For how many people the console listens to one server, and keeps their questions."""
_UNUSED_SECONDS = 300.0
"""How long the console listens for a person whose pages ask for nothing."""
RETRY_SECONDS = 30.0
"""How long after a stream that broke, or that the server refused, the next one is opened."""
_PATIENT_SECONDS = 1.0
"""How long the list of all questions waits for one server."""
_TIMEOUT_SECONDS = 10.0
"""How long a server has to send its inbox, and to take an answer."""


class ServerQuestions:
    """The open questions of one server."""

    def __init__(self, source: ServerSource, changed: Callable[[], None]) -> None:
        self.source = source
        self._changed = changed
        self._listeners: dict[str | None, asyncio.Task[None]] = {}
        self._used: dict[str | None, float] = {}
        self._fetching: dict[str | None, asyncio.Task[None]] = {}
        self._known: dict[str | None, list[OpenQuestion] | str] = {}

    async def close(self) -> None:
        """Stop listening to the server, and asking it."""
        tasks = [*self._listeners.values(), *self._fetching.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def page(self, user: ConsoleUser, cursor: str | None) -> tuple[list[OpenQuestion], str | None]:
        """Return the questions that a person can answer, of the oldest tasks first.

        Of a server that is slow, the questions as they were the last time. Raises `Problem` if there are none
        yet, and if the server cannot be reached.
        """
        id = _id_of(user)
        if id not in self._fetching:
            self._fetching[id] = asyncio.create_task(self._fetch(user, id))
        done, _ = await asyncio.wait({self._fetching[id]}, timeout=_PATIENT_SECONDS)
        for fetching in done:
            fetching.result()
        found = self._known.get(id, "The server has not answered yet.")
        if isinstance(found, str):
            raise Problem(502, found)
        self._listen(user)
        return found, None

    async def find(self, user: ConsoleUser, task_id: str, key: str) -> OpenQuestion:
        """Return a question; raises `Problem` if the person cannot answer it."""
        return _open_question(await self._item(user, task_id, key))

    async def end_of(self, user: ConsoleUser, task_id: str, key: str) -> dict[str, Any] | None:
        """Return `None`: a server does not say who answered a question."""
        return None

    async def answer(self, user: ConsoleUser, task_id: str, key: str, given: Any) -> None:
        """Answer or decline a question; raises `Problem` if the person cannot, or the answer does not fit."""
        item = await self._item(user, task_id, key)
        response = checked_response(_question(item), given)
        async with self._explained():
            try:
                await (
                    item.decline()
                    if response["action"] == "decline"
                    else item.answer(response.get("content"))
                )
            except InvalidParams as error:
                await self._item(user, task_id, key)  # raises if the question is gone
                raise Problem(422, printable(error.message)) from None

    def _listen(self, user: ConsoleUser) -> None:
        """Report changes of a person's questions from now on, until the person's pages have been closed.

        Pages ask for the questions now and then, also if nothing changes.
        """
        id = _id_of(user)
        if id not in self._listeners and len(self._listeners) >= _MAX_PEOPLE:
            return
        self._used[id] = asyncio.get_running_loop().time()
        if id not in self._listeners:
            self._listeners[id] = asyncio.create_task(self._report(user, id))

    async def _report(self, user: ConsoleUser, id: str | None) -> None:
        loop = asyncio.get_running_loop()
        try:
            while (left := self._used[id] + _UNUSED_SECONDS - loop.time()) > 0:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(left):
                        await self._follow(user)
                        await asyncio.sleep(RETRY_SECONDS)
        finally:
            del self._listeners[id], self._used[id]

    async def _follow(self, user: ConsoleUser) -> None:
        """Report changes until the stream breaks, or at once if the server has none."""
        with contextlib.suppress(AntiphonError):
            client = await self.source.client(user)
            async with client.listen_inbox() as changes:
                async for _ in changes:
                    self._changed()

    async def _fetch(self, user: ConsoleUser, id: str | None) -> None:
        """Fetch the questions of a person, or the reason why that failed. Reports a change."""
        found: list[OpenQuestion] | str
        try:
            found = [_open_question(item) for item in (await self._items(user))[:_MAX_QUESTIONS]]
        except Problem as problem:
            found = problem.message
        finally:
            del self._fetching[id]
        is_news = found != self._known.pop(id, None)
        while len(self._known) >= _MAX_PEOPLE:
            del self._known[next(iter(self._known))]
        self._known[id] = found
        if is_news:
            self._changed()

    async def _item(self, user: ConsoleUser, task_id: str, key: str) -> InboxItem:
        for item in await self._items(user):
            if (item.task_id, item.key) == (task_id, key):
                return item
        raise no_such_question()

    async def _items(self, user: ConsoleUser) -> list[InboxItem]:
        """Return the questions that a person can answer; none of a server without an inbox."""
        async with self._explained():
            client = await self.source.client(user)
            try:
                items = await client.inbox()
            except MethodNotFound:
                return []
        return [item for item in items if isinstance(item.question, Elicit | OpenUrl)]

    @contextlib.asynccontextmanager
    async def _explained(self) -> AsyncIterator[None]:
        """Bound a conversation with the server in time, and raise its errors as `Problem`."""
        name = self.source.name
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                yield
        except TimeoutError:
            raise Problem(504, f"{name} has not answered within {_TIMEOUT_SECONDS:g} s.") from None
        except RequestError as error:
            raise Problem(502, f"{name} refused the request: {printable(error.message)}") from None
        except AntiphonError as error:
            raise Problem(502, f"The console cannot talk to {name}: {printable(str(error))}") from None


def _id_of(user: ConsoleUser) -> str | None:
    """Return the id of a person; `None` for the local operator."""
    return None if user.principal is None else user.principal.id


def _question(item: InboxItem) -> Elicit | OpenUrl:
    question = item.question
    assert isinstance(question, Elicit | OpenUrl)
    return question


def _open_question(item: InboxItem) -> OpenQuestion:
    return OpenQuestion(
        task_id=item.task_id,
        key=item.key,
        tool=item.tool,
        owner=item.owner,
        question=_question(item),
        to=item.to,
        people=item.people,
        asked=_milliseconds(item.asked_at),
        deadline=_milliseconds(item.deadline),
        approvals=item.approvals,
        answered=item.answered,
        reminded=item.reminded,
    )


def _milliseconds(moment: datetime | None) -> int | None:
    return None if moment is None else int(moment.timestamp() * 1000)
