"""The open questions of the tasks on a store.

An operator answers the questions to the owners of tasks as the owner, and the questions to others as the
operator. Other people see the questions of their own tasks, and those that they can answer. `Inbox` and
`TaskService` own the rules of who may answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec

from antiphon.console.inbox.open_question import OpenQuestion, checked_response, no_such_question
from antiphon.console.routes import ConsoleUser, Problem
from antiphon.console.sources import StoreSource
from antiphon.errors import InvalidParams, TaskNotFound, TaskNotWaiting, TooLate
from antiphon.model.identity import Principal
from antiphon.model.inbox import InboxQuestion
from antiphon.model.question import Elicit, OpenUrl
from antiphon.model.task import ANSWERED_BY, Task, load_questions
from antiphon.printable import printable
from antiphon.runtime.tasks.inbox import OPERATOR_PREFIX, Inbox
from antiphon.runtime.tasks.records import ASKING_TAG, audience_tag, has_expired, person_tag, task_of
from antiphon.runtime.tasks.responses import MAX_REPEAT_ENTRIES
from antiphon.store.contract import Page, Record, TaskFilter
from antiphon.store.unreadable import UnreadableRecords

__all__ = ["StoreQuestions"]

PAGE_TASKS = 100
"""How many tasks are read at once, and about how many questions a page has."""
_MAX_PAGES = 5
"""How many pages of tasks are read for one page of questions, if most of the tasks ask nothing."""
OLDEST_TASKS = 200
"""How many of the oldest tasks are searched for questions that no tag finds: those of tasks that an earlier
version has parked, and of functions that wait in their processes. These tasks are among the oldest."""
_WATCH_SECONDS = 3600.0
_PAUSE_SECONDS = 0.5
"""How long after a change the next one is reported, so that a busy store does not keep the pages busy."""
_WAITING, _READY = TaskFilter(phase="waiting"), TaskFilter(phase="ready")

_List: TypeAlias = Callable[[str | None], Awaitable[Page]]
_AT_END = True
"""In place of a cursor: the list has been read to its end."""
_cursors = msgspec.json.Decoder(list[str | bool | None])


class _Person(NamedTuple):
    """A person who answers, as the rules of tasks see the person."""

    principal: Principal | None
    """The principal of the person; `None` for an operator without one."""
    names: Sequence[str]
    """The groups and scopes for which the principal answers."""
    operator: Principal | None
    """The operator that the person is; `None` for other people."""

    def owns(self, record: Record) -> bool:
        """Return whether a task is the person's own."""
        return self.principal is not None and bool(record.principal) and record.principal == self.principal.id


class _Found(NamedTuple):
    """A question, and as whom the person answers it; `None` for the owner of the task."""

    open: OpenQuestion
    answerer: tuple[Inbox, Principal] | None


class StoreQuestions:
    """The open questions of the tasks on one store."""

    def __init__(self, source: StoreSource) -> None:
        self.source = source
        self._store = source.store
        self._inboxes: dict[tuple[str, bool], Inbox] = {}
        self._unreadable = UnreadableRecords(type(source.store).__name__)

    async def page(self, user: ConsoleUser, cursor: str | None) -> tuple[list[OpenQuestion], str | None]:
        """Return questions that a person can answer, of the oldest tasks first, and the cursor of the rest.

        Raises `Problem` for an invalid cursor.
        """
        person = await self._person(user)
        lists = self._lists(person)
        cursors = _read_cursor(cursor, len(lists))
        found: dict[tuple[str, str], OpenQuestion] = {}
        for place, read in enumerate(lists):
            for _ in range(_MAX_PAGES):
                position = cursors[place]
                if isinstance(position, bool) or len(found) >= PAGE_TASKS:
                    break
                try:
                    page = await read(position)
                except ValueError:
                    raise _invalid_cursor() from None
                cursors[place] = page.cursor or _AT_END
                for record in page.records:
                    for each in await self._questions(record, person):
                        found[record.id, each.open.key] = each.open
        is_over = all(isinstance(position, bool) for position in cursors)
        return [*found.values()], None if is_over else msgspec.json.encode(cursors).decode()

    async def find(self, user: ConsoleUser, task_id: str, key: str) -> OpenQuestion:
        """Return a question; raises `Problem` if the person cannot answer it."""
        _, found = await self._find(await self._person(user), task_id, key)
        return found.open

    async def end_of(self, user: ConsoleUser, task_id: str, key: str) -> dict[str, Any] | None:
        """Return who answered a question that is closed, and when; `None` if the person may not know.

        The owner of a task does not see its questions to others, and so does not learn who answered them.
        """
        person, record = await self._person(user), await self._store.get(task_id)
        if record is None or not self._has(record) or not await self._may_see(person, record):
            return None
        after = max(record.version - MAX_REPEAT_ENTRIES, 0)
        entries = await self._store.read(task_id, after=after, limit=MAX_REPEAT_ENTRIES)
        for entry in reversed([entry for entry in entries if entry.kind == "answered"]):
            if key in entry.data["responses"]:
                by = entry.data.get(ANSWERED_BY, record.principal)
                return {"by": by, "at": entry.at, "action": _action(entry.data["responses"][key])}
            if person.operator is not None and key in entry.data.get("others", {}):
                by, at, response = entry.data["others"][key]
                return {"by": by, "at": at, "action": _action(response)}
        return None if person.operator is None else {"by": None, "at": None, "action": None}

    async def answer(self, user: ConsoleUser, task_id: str, key: str, given: Any) -> None:
        """Answer or decline a question; raises `Problem` if the person cannot, or the answer does not fit."""
        person = await self._person(user)
        record, found = await self._find(person, task_id, key)
        response = checked_response(found.open.question, given)
        try:
            if found.answerer is not None:
                inbox, principal = found.answerer
                await inbox.answer(principal, task_id, key, response)
            else:
                by = person.principal if person.owns(record) else person.operator
                assert by is not None
                owner = Principal(record.principal)
                await self.source.service.answer(task_id, owner, {key: response}, by=by.id)
        except (TaskNotFound, TaskNotWaiting, TooLate):
            raise no_such_question() from None
        except InvalidParams as error:
            raise Problem(422, printable(error.message)) from None

    async def changes(self) -> AsyncIterator[bool]:
        """Yield after each change of tasks on the store. A question may have come or gone."""
        async with self._store.watch_all() as watch:
            while True:
                if await watch.wait(_WATCH_SECONDS):
                    yield True
                    await asyncio.sleep(_PAUSE_SECONDS)

    # Which questions a person sees

    async def _person(self, user: ConsoleUser) -> _Person:
        """Return the person who sent a request, with the names for which the person answers."""
        names: Sequence[str] = ()
        if user.principal is not None:
            names = await self._inbox(self.source.server or "", for_operator=False).names(user.principal)
        operator = Principal(f"{OPERATOR_PREFIX}{user.name}") if user.may_operate else None
        return _Person(user.principal, names, operator)

    def _lists(self, person: _Person) -> Sequence[_List]:
        """Return the lists of tasks in which a person finds questions, each of which reads a page."""
        server = self.source.server

        def listed(
            principal: str | None, filter: TaskFilter, cursor: str | None, limit: int
        ) -> Awaitable[Page]:
            return self._store.list(
                principal, cursor=cursor, limit=limit, server=server, filter=filter, oldest_first=True
            )

        def oldest(principal: str | None, filter: TaskFilter) -> _List:
            async def read(_: str | None) -> Page:
                page = await listed(principal, filter, None, OLDEST_TASKS)
                return Page(tuple(record for record in page.records if ASKING_TAG not in record.tags), None)

            return read

        def tagged(*tags: str) -> _List:
            return lambda cursor: self._store.list_tagged(tags, cursor=cursor, limit=PAGE_TASKS)

        if person.operator is not None:
            return [tagged(ASKING_TAG), oldest(None, _WAITING), oldest(None, _READY)]
        if person.principal is None or not person.principal.id:
            return []
        id, server_name = person.principal.id, server or ""
        tags = [audience_tag(server_name, name) for name in person.names]
        return [
            lambda cursor: listed(id, _WAITING, cursor, PAGE_TASKS),
            oldest(id, _READY),
            tagged(*tags, person_tag(server_name, id)),
        ]

    async def _find(self, person: _Person, task_id: str, key: str) -> tuple[Record, _Found]:
        record = await self._store.get(task_id)
        if record is not None:
            for each in await self._questions(record, person):
                if each.open.key == key:
                    return record, each
        raise no_such_question()

    async def _may_see(self, person: _Person, record: Record) -> bool:
        """Return whether a person may see a task: an operator, or its owner with the scopes of its tool."""
        if person.operator is not None:
            return True
        if person.principal is None or not person.owns(record):
            return False
        return await self.source.allows(person.principal, record)

    async def _questions(self, record: Record, person: _Person) -> Sequence[_Found]:
        """Return the questions of a task that a person can answer."""
        if record.phase == "ended" or has_expired(record) or not self._has(record):
            return []
        try:
            task = task_of(record)
            own = _questions_to_owner(record, task) if await self._may_see(person, record) else ()
            return [*own, *self._questions_to_others(record, task, person)]
        except (msgspec.ValidationError, KeyError) as error:  # it is damaged, or a later version wrote it
            self._unreadable.log(record.id, error)
            return []

    def _questions_to_others(self, record: Record, task: Task, person: _Person) -> Iterator[_Found]:
        """Yield the questions to others. A person answers by their own right first, then as an operator."""
        answerers: list[tuple[Inbox, Principal, Sequence[str]]] = []
        if person.principal is not None:
            inbox = self._inbox(self.source.server or "", for_operator=False)
            answerers.append((inbox, person.principal, person.names))
        if person.operator is not None:
            answerers.append((self._inbox(record.server, for_operator=True), person.operator, ()))
        seen = set()
        for inbox, principal, names in answerers:
            for asked in inbox.questions_in(record, principal, names):
                if asked.key not in seen:
                    seen.add(asked.key)
                    found = _question_to_others(record, task, asked, names_others=person.operator is not None)
                    yield _Found(found, (inbox, principal))

    def _has(self, record: Record) -> bool:
        """Return whether a task belongs to the server of the console, if the console is one server's."""
        return self.source.server is None or record.server in ("", self.source.server)

    def _inbox(self, server: str, *, for_operator: bool) -> Inbox:
        """Return the inbox of a server. It is kept, because it logs damaged tasks once."""
        key = server, for_operator
        if key not in self._inboxes:
            self._inboxes[key] = self.source.inbox(server, for_operator=for_operator)
        return self._inboxes[key]


def _read_cursor(cursor: str | None, count: int) -> list[str | bool | None]:
    """Return the cursors of several lists; raises `Problem` for a text that a page did not return."""
    if cursor is None:
        return [None] * count
    try:
        cursors = _cursors.decode(cursor)
    except ValueError:
        raise _invalid_cursor() from None
    if len(cursors) != count:
        raise _invalid_cursor()
    return cursors


def _invalid_cursor() -> Problem:
    return Problem(400, "Invalid cursor: start again without a cursor.")


def _questions_to_owner(record: Record, task: Task) -> Iterator[_Found]:
    """Yield the questions of a task to its owner that a person can answer; some are for programs."""
    for key, question in load_questions(task.questions).items():
        if isinstance(question, Elicit | OpenUrl):
            wait = task.waits.get(key)
            yield _Found(
                OpenQuestion(
                    task_id=record.id,
                    key=key,
                    tool=record.tool,
                    owner=record.principal,
                    server=record.server,
                    question=question,
                    summary=task.summary or "",
                    asks_owner=True,
                    asked=record.updated if wait is None else wait.asked,
                    deadline=None if wait is None else wait.deadline,
                    reminded=0 if wait is None else wait.reminded,
                    problem=task.problems.get(key),
                ),
                None,
            )


def _question_to_others(
    record: Record, task: Task, asked: InboxQuestion, *, names_others: bool
) -> OpenQuestion:
    """Return a question to others than the owner.

    `names_others` says whether it names who has answered, and the arguments of the task: people who only
    answer see what the question says.
    """
    wait = task.waits[asked.key]
    question = load_questions({asked.key: wait.question})[asked.key]
    assert isinstance(question, Elicit | OpenUrl)
    return OpenQuestion(
        task_id=record.id,
        key=asked.key,
        tool=record.tool,
        owner=record.principal,
        server=record.server,
        question=question,
        summary=(task.summary or "") if names_others else "",
        to=asked.to,
        people=asked.people,
        asked=asked.asked,
        deadline=asked.deadline,
        approvals=asked.approvals,
        answered=asked.answered,
        answered_by=wait.answered_by if names_others else (),
        reminded=asked.reminded,
        problem=wait.problem,
    )


def _action(response: Any) -> str | None:
    """Return what a person did with a question: `accept`, `decline` or `cancel`."""
    action = response.get("action") if isinstance(response, dict) else None
    return action if isinstance(action, str) else None
