"""The routes of the inbox: the questions of all sources, one question, and its answer.

Merges the sources. A source that fails does not hide the questions of the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec
from msgspec import UNSET

from antiphon.console.inbox.open_question import OpenQuestion, no_such_question
from antiphon.console.inbox.server_questions import ServerQuestions
from antiphon.console.inbox.store_questions import StoreQuestions
from antiphon.console.live import Live
from antiphon.console.routes import ConsoleRequest, ConsoleUser, Problem, Route
from antiphon.console.sources import ServerSource, Sources
from antiphon.errors import AntiphonError
from antiphon.model.question import Elicit, OpenUrl
from antiphon.printable import printable
from antiphon.wire.questions import write_question

__all__ = ["InboxApi"]

logger = logging.getLogger("antiphon")

_PAGES = ("1", "2", "3", "4", "5")
"""How many pages a list may have."""
PAGE_QUESTIONS = 100
"""About how many questions a page has."""
SEARCHED_PAGES = 20
"""How many pages are searched for a page of questions that match a filter."""
_EMPTY = ("Nobody asks you anything", "A question that you can answer appears here by itself.")
_UNMATCHED = ("No question matches", "Change the filter, or clear it.")
_MISSING = ("No question is known", "Not everything could be asked: see above.")
TOPIC = "inbox"
"""The topic of live changes."""

_cursors = msgspec.json.Decoder(dict[str, str])


class _Place(NamedTuple):
    """Where a question comes from. Pages show the name."""

    kind: str
    id: str
    name: str

    def question(self, task_id: str, key: str) -> dict[str, str]:
        """Return where a question is, as addresses of the page name it."""
        return {"kind": self.kind, "source": self.id, "task": task_id, "key": key}


class _Page(NamedTuple):
    """Some questions of all sources, oldest first."""

    questions: Sequence[tuple[_Place, OpenQuestion]]
    cursor: str | None
    problems: Sequence[str]


class InboxApi:
    """The questions of all stores and servers of a console."""

    def __init__(self, sources: Sources, live: Live) -> None:
        self._sources = sources
        self._live = live
        self._stores: dict[str, StoreQuestions] = {}
        self._servers: dict[str, ServerQuestions] = {}
        sources.on_removed.append(self._forget)

    def routes(self) -> Sequence[Route]:
        """Return the routes of the inbox."""
        source = "/api/inbox/{kind}/{source}"
        return [
            Route("GET", "/api/inbox", self._list),
            Route("GET", "/api/inbox/count", self._count),
            Route("GET", f"{source}/question", self._show),
            Route("POST", f"{source}/answer", self._answer, writes=True),
        ]

    async def open(self) -> None:
        """Report the changes of the stores to the pages."""
        for id in self._sources.stores:
            self._live.watch(TOPIC, self._questions_of_store(id).changes)

    async def close(self) -> None:
        """Stop listening to servers."""
        for questions in self._servers.values():
            await questions.close()

    async def _forget(self, server: ServerSource) -> None:
        """Stop listening to a server that has been removed."""
        if (questions := self._servers.pop(server.id, None)) is not None:
            await questions.close()

    async def _list(self, request: ConsoleRequest) -> Any:
        """Return pages of the questions of all sources, oldest first, and why sources could not be asked.

        The next page has more questions of the sources that have more. `more` says whether the page may ask
        for one more. With a filter, only questions whose row contains all its words are returned.
        """
        wanted = request.query.get("pages", "1")
        if wanted not in _PAGES:
            raise Problem(400, f"The number of pages is one of {', '.join(_PAGES)}.")
        words = request.query.get("filter", "").lower().split()
        rows: list[Any] = []
        problems: dict[str, None] = {}
        cursor, most = request.query.get("cursor"), int(wanted) * PAGE_QUESTIONS
        for _ in range(int(wanted) * (SEARCHED_PAGES if words else 1)):
            page = await self._page(request.user, cursor)
            rows += [row for row in map(_row, page.questions) if _matches(row, words)]
            problems |= dict.fromkeys(page.problems)
            cursor = page.cursor
            if cursor is None or (words and len(rows) >= most):
                break
        return {
            "questions": rows,
            "cursor": cursor,
            "more": cursor is not None and wanted != _PAGES[-1],
            "empty": _MISSING if problems else _UNMATCHED if words else _EMPTY,
            "note": _end_note(rows, words) if cursor is not None else "",
            "problems": [*problems],
        }

    async def _count(self, request: ConsoleRequest) -> Any:
        """Return the number beside the inbox: of the first page, with a mark if there may be more."""
        page = await self._page(request.user, None)
        count, is_all = len(page.questions), page.cursor is None and not page.problems
        if not count:
            return {"badge": "" if is_all else "?"}
        return {"badge": str(count) if is_all else f"{count}+"}

    async def _page(self, user: ConsoleUser, cursor: str | None) -> _Page:
        places = {f"{place.kind}/{place.id}": place for place in self._places()}
        try:
            cursors = dict.fromkeys(places) if cursor is None else _cursors.decode(cursor)
        except ValueError:
            raise Problem(400, "Invalid cursor: start again without a cursor.") from None
        asked = [(name, places[name]) for name in cursors if name in places]
        pages = await asyncio.gather(
            *(self._questions_of(place.kind, place.id).page(user, cursors[name]) for name, place in asked),
            return_exceptions=True,
        )
        found: list[tuple[_Place, OpenQuestion]] = []
        problems: list[str] = []
        more: dict[str, str] = {}
        for (name, place), page in zip(asked, pages, strict=True):
            if isinstance(page, BaseException):
                problems.append(f"{place.name}: {_explain(page, place.name)}")
                continue
            found += [(place, each) for each in page[0]]
            if page[1] is not None:
                more[name] = page[1]
        found.sort(key=lambda each: each[1].asked or 0)
        return _Page(found, msgspec.json.encode(more).decode() if more else None, problems)

    async def _show(self, request: ConsoleRequest) -> Any:
        """Return a whole question; or, to people who may know it, how it was closed."""
        questions = self._questions_of(request.params["kind"], request.params["source"])
        place = _Place(request.params["kind"], questions.source.id, questions.source.name)
        task_id, key = request.query.get("task", ""), request.query.get("key", "")
        try:
            found = await questions.find(request.user, task_id, key)
        except Problem as problem:
            end = await questions.end_of(request.user, task_id, key) if problem.status == 404 else None
            if end is None:
                raise
            return {"closed": _closed_view(end)}
        return {
            "question": {
                **found.details(),
                "place": place.question(task_id, key),
                "about": found.about(place.name),
                "app": self._app(place.id, found.question),
                "facts": _facts(place, found, request.user),
                "note": _note(found, request.user),
            }
        }

    def _app(self, source: str, question: Elicit | OpenUrl) -> dict[str, Any] | None:
        """Return the App that asks a question, and its server; `None` if the form is the only way.

        The store of a server that runs beside the console has the id of the server.
        """
        if isinstance(question, OpenUrl) or question.ui is UNSET:
            return None
        if self._sources.sandbox is None or source not in self._sources.servers:
            return None
        return {"server": source, "uri": question.ui, "question": write_question(question)[1]}

    async def _answer(self, request: ConsoleRequest) -> Any:
        """Answer or decline a question."""
        questions = self._questions_of(request.params["kind"], request.params["source"])
        given = await request.json()
        if not isinstance(given, dict):
            raise Problem(400, "The body of an answer is a JSON object.")
        task_id, key = given.get("task"), given.get("key")
        if not isinstance(task_id, str) or not isinstance(key, str):
            raise no_such_question()
        await questions.answer(request.user, task_id, key, given)
        self._live.changed(TOPIC)
        return {}

    def _places(self) -> Sequence[_Place]:
        """Return the sources that can have questions.

        Programs that the console starts do not know who calls, so they ask nobody else. The questions of the
        server that shows the console are those of its store.
        """
        stores = [_Place("stores", each.id, each.name) for each in self._sources.stores.values()]
        servers = [each for each in self._sources.servers.values() if each.kind == "url"]
        return [*stores, *(_Place("servers", each.id, each.name) for each in servers)]

    def _questions_of(self, kind: str, id: str) -> StoreQuestions | ServerQuestions:
        """Return the questions of a source; raises `Problem` if the console does not have it."""
        if kind == "stores":
            return self._questions_of_store(id)
        if kind != "servers":
            raise Problem(404, "There is nothing at this address.")
        server = self._sources.server(id)
        questions = self._servers.get(id)
        if questions is None:
            questions = self._servers[id] = ServerQuestions(server, lambda: self._live.changed(TOPIC))
        return questions

    def _questions_of_store(self, id: str) -> StoreQuestions:
        source = self._sources.store(id)
        if id not in self._stores:
            self._stores[id] = StoreQuestions(source)
        return self._stores[id]


def _row(found: tuple[_Place, OpenQuestion]) -> dict[str, Any]:
    place, each = found
    return {**each.row(), "place": place.question(each.task_id, each.key), "about": each.about(place.name)}


def _matches(row: Mapping[str, Any], words: Sequence[str]) -> bool:
    """Return whether a row contains all words, in lower case."""
    text = f"{row['message']} {row['about']} {row['task']} {row['key']}".lower() if words else ""
    return all(word in text for word in words)


def _end_note(rows: Sequence[Any], words: Sequence[str]) -> str:
    """Return what a list says that is not the whole one."""
    if words:
        return "Not all questions were searched."
    return f"These are the {len(rows):,} oldest questions. Filter to find others."


def _facts(place: _Place, found: OpenQuestion, user: ConsoleUser) -> list[Any]:
    """Return what a person should know of a question, and a link to its task if the person may see it."""
    facts: list[Any] = found.facts(place.name)
    if place.kind == "stores" and (user.may_operate or found.asks_owner):
        address = f"tasks/{quote(place.id, safe='')}/{quote(found.task_id, safe='')}"
        facts.append({"link": [address, "Open the task"]})
    return facts


def _note(found: OpenQuestion, user: ConsoleUser) -> str:
    """Return what stands below the form of a question."""
    if not user.may_write:
        return "This console is read-only."
    if user.may_operate and found.asks_owner and found.owner not in ("", user.name):
        return f"You answer in place of {printable(found.owner, 200)}. The log of the task names you."
    return ""


def _closed_view(end: Mapping[str, Any]) -> dict[str, Any]:
    """Return how a question was closed, and the cells that say so."""
    if end["by"] is None:
        text = ["This question is closed: somebody else has answered, or it was given up or cancelled."]
        return {**end, "text": text}
    by = printable(end["by"], 200)
    done = "Declined" if end["action"] == "decline" else "Answered"
    return {**end, "by": by, "text": [f"{done} elsewhere by {by}, ", {"ago": end["at"]}, "."]}


def _explain(error: BaseException, name: str) -> str:
    """Return why a source could not be asked; raises errors that are not about the source."""
    if not isinstance(error, Exception) or (isinstance(error, Problem) and error.status == 400):
        raise error
    if isinstance(error, Problem):
        return error.message
    if isinstance(error, AntiphonError):
        return str(error)
    logger.error("The console failed to ask %s for questions.", name, exc_info=error)
    return "The console failed to ask for questions. The log of its process has the details."
