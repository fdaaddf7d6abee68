"""The questions of tasks to others than their callers: who sees them, and who can answer them.

Owns the rights. A question names people by their ids, and groups. A principal answers for itself and for the
names that the server says it has. Nobody answers a question of their own task, unless the question names
them as a person, and nobody answers twice, whether they come as themselves or as an operator. All operators
together count as one person. A principal that cannot answer a question gets the error of a task that does not
exist.
"""

from __future__ import annotations

import inspect
import logging
import unicodedata
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from antiphon.errors import Busy, InvalidParams, NoTask, Stale, TaskNotFound, TooLate
from antiphon.model.form import problems
from antiphon.model.identity import Principal
from antiphon.model.inbox import InboxPage, InboxQuestion
from antiphon.model.question import Elicit, ElicitResult, read_answer, with_problem
from antiphon.model.task import Task, load_questions
from antiphon.model.waiting import Wait
from antiphon.runtime.tasks.clocks import now_ms
from antiphon.runtime.tasks.entries import append_entry, check_nesting
from antiphon.runtime.tasks.inbox_feed import InboxFeed
from antiphon.runtime.tasks.records import audience_tag, has_expired, person_tag, task_of
from antiphon.runtime.tasks.responses import MAX_REPEAT_ENTRIES, is_same_answer
from antiphon.store.contract import Record, Store
from antiphon.store.unreadable import UnreadableRecords

__all__ = ["OPERATOR_PREFIX", "Audiences", "Inbox", "default_audiences", "is_same_person"]

logger = logging.getLogger("antiphon")

Audiences: TypeAlias = Callable[[Principal], Collection[str] | Awaitable[Collection[str]]]
"""Returns the groups, roles and scopes for which a principal answers."""

OPERATOR_PREFIX = "operator:"
"""The beginning of the ids of operators. The login at the machine follows, or the id of the principal."""
_NOT_FOUND_MESSAGE = "Failed to retrieve task: Task not found"
_MAX_WRITE_ATTEMPTS = 20
"""How often a write is attempted while other processes write to the same task."""
_MAX_AUDIENCES = 1000
"""For how many names a principal can answer."""
MAX_UNFIT_ANSWERS = 20
"""How many answers to one question a principal can give that the task refuses. Each runs the task."""
_PAGE_TASKS = 100
"""How many tasks are read for one page of questions."""


def default_audiences(principal: Principal) -> set[str]:
    """Return the scopes of a principal, and the texts in its claims `roles` and `groups`."""
    names = {*principal.scopes}
    for claim in ("roles", "groups"):
        value = principal.claims.get(claim, ())
        if isinstance(value, Collection) and not isinstance(value, str | bytes | Mapping):
            names.update(name for name in value if isinstance(name, str))
    return names


class Inbox:
    """The questions of the tasks of one server. With `for_operator`, of all of them to anybody."""

    def __init__(
        self,
        store: Store,
        feed: InboxFeed,
        *,
        server: str,
        audiences: Audiences = default_audiences,
        for_operator: bool = False,
    ) -> None:
        self._store = store
        self._feed = feed
        self._server = server
        self._audiences = audiences
        self._for_operator = for_operator
        self._unreadable = UnreadableRecords(type(store).__name__)

    async def list(
        self, principal: Principal, cursor: str | None = None, *, names: Collection[str] | None = None
    ) -> InboxPage:
        """Return the questions that a principal can answer; raises `InvalidParams` for an invalid cursor.

        `names` are those for which the principal answers, if the caller has asked for them.
        """
        if not principal.id:
            return InboxPage(())
        if names is None:
            names = await self.names(principal)
        tags = [audience_tag(self._server, name) for name in names]
        tags.append(person_tag(self._server, principal.id))
        try:
            page = await self._store.list_tagged(tags, cursor=cursor, limit=_PAGE_TASKS)
        except ValueError:
            raise InvalidParams("Invalid cursor: start again without a cursor.") from None
        items = [item for record in page.records for item in self.questions_in(record, principal, names)]
        return InboxPage(tuple(items), page.cursor)

    async def questions_of(
        self, principal: Principal, id: str, names: Collection[str]
    ) -> Sequence[InboxQuestion]:
        """Return the questions of one task that a principal can answer, who answers for some names."""
        record = await self._store.get(id)
        return [] if record is None else self.questions_in(record, principal, names)

    def questions_in(
        self, record: Record, principal: Principal, names: Collection[str]
    ) -> Sequence[InboxQuestion]:
        """Return the questions in the record of a task that a principal can answer, if the server has it."""
        return [*self._items(record, principal, names)] if self._has(record) else []

    async def answer(self, principal: Principal, id: str, key: str, response: Any) -> None:
        """Answer a question of a task. The same answer of the same principal may be repeated.

        Raises `TaskNotFound` if the principal cannot answer it, somebody else has, or the time is over, and
        `InvalidParams` for a response that does not fit the question.
        """
        check_nesting(response, "responses")
        names = await self.names(principal)
        for _ in range(_MAX_WRITE_ATTEMPTS):
            record = await self._store.get(id)
            found = self._find(record, principal, names, key)
            if found is None:
                if await self._is_repeated(record, principal, id, key, response):
                    return
                raise TaskNotFound(_NOT_FOUND_MESSAGE)
            record, task, wait = found
            if wait.unfit.get(principal.id, 0) >= MAX_UNFIT_ANSWERS:
                raise InvalidParams(
                    "Too many of your answers did not fit the question: somebody else has to answer."
                )
            declines = _check(wait, key, response)
            is_last = declines or len(wait.answered_by) + 1 >= wait.approvals
            data = {
                "responses": {},
                "others": {key: [principal.id, now_ms(), response]},
                "resolved": [key] if is_last else [],
            }
            try:
                after = await append_entry(self._store, record, task, "answered", data, server=self._server)
            except Stale:
                continue
            except (NoTask, TooLate):
                raise TaskNotFound(_NOT_FOUND_MESSAGE) from None
            self._feed.publish(task, after)
            return
        raise Busy("Other processes are writing to the task: try again.")

    def _has(self, record: Record) -> bool:
        """Return whether a task belongs to this server, and may still ask something."""
        return record.server in ("", self._server) and record.phase != "ended" and not has_expired(record)

    def _find(
        self, record: Record | None, principal: Principal, names: Collection[str], key: str
    ) -> tuple[Record, Task, Wait] | None:
        """Return a task and the question of a key, if the principal can answer it."""
        if record is None or not self._has(record):
            return None
        task = task_of(record)
        wait = task.waits.get(key)
        can_answer = wait is not None and self._may_answer(wait, record, principal, names)
        return (record, task, wait) if wait is not None and can_answer else None

    async def _is_repeated(
        self, record: Record | None, principal: Principal, id: str, key: str, response: Any
    ) -> bool:
        """Return whether the last entries of a task's log have this answer of this principal.

        A caller that lost the connection repeats its request, and the task may have gone on meanwhile. The
        log is read even if there is no such task, so that an error takes about as long for every reason.
        """
        after = 0 if record is None else max(record.version - MAX_REPEAT_ENTRIES, 0)
        entries = await self._store.read(id, after=after, limit=MAX_REPEAT_ENTRIES)
        answers = [entry.data.get("others", {}).get(key) for entry in entries if entry.kind == "answered"]
        is_known = record is not None and record.server in ("", self._server) and bool(principal.id)
        return is_known and any(
            answer is not None and answer[0] == principal.id and is_same_answer(answer[2], response)
            for answer in answers
        )

    def _items(self, record: Record, principal: Principal, names: Collection[str]) -> Iterator[InboxQuestion]:
        try:
            waits = task_of(record).waits
        except msgspec.ValidationError as error:  # it is damaged, or a later version wrote it
            self._unreadable.log(record.id, error)
            return
        for key, wait in waits.items():
            if self._may_answer(wait, record, principal, names):
                question = load_questions({key: wait.question})[key]
                yield InboxQuestion(
                    task_id=record.id,
                    key=key,
                    tool=record.tool,
                    owner=record.principal,
                    question=with_problem(question, wait.problem),
                    to=wait.to,
                    people=wait.people,
                    asked=wait.asked,
                    deadline=wait.deadline,
                    approvals=wait.approvals,
                    answered=len(wait.answered_by),
                    reminded=wait.reminded,
                )

    def _may_answer(self, wait: Wait, record: Record, principal: Principal, names: Collection[str]) -> bool:
        """Return whether a principal can answer a question now."""
        id = principal.id.removeprefix(OPERATOR_PREFIX) if self._for_operator else principal.id
        is_asked = id in wait.people or (
            not is_same_person(principal.id, record.principal)
            and (self._for_operator or not set(wait.to).isdisjoint(names))
        )
        return (
            wait.question is not None
            and is_asked
            and not any(is_same_person(principal.id, other) for other in wait.answered_by)
        )

    async def names(self, principal: Principal) -> Sequence[str]:
        """Return the groups and scopes for which a principal answers; none for an anonymous caller."""
        if not principal.id:
            return ()
        names = self._audiences(principal)
        if inspect.isawaitable(names):
            names = await names
        found = sorted(name for name in names if name)
        if len(found) > _MAX_AUDIENCES:
            # The id of the principal is never the one that is left out.
            found.sort(key=lambda name: name != principal.id)
            logger.warning(
                "The principal %s answers for %d names, and only %d count: name fewer in Server(audiences=).",
                principal.id,
                len(found),
                _MAX_AUDIENCES,
            )
        return found[:_MAX_AUDIENCES]


def is_same_person(id: str, other: str) -> bool:
    """Return whether two ids may be those of one human. Case does not count, and all operators are one.

    The login of an operator names no issuer and no domain, so it may be any of the principals of that name.
    """
    name, other_name = id.removeprefix(OPERATOR_PREFIX), other.removeprefix(OPERATOR_PREFIX)
    if name == id and other_name == other:
        return _folded(id) == _folded(other)
    if name != id and other_name != other:
        return True
    login, principal_id = (name, other) if name != id else (other_name, id)
    subject = principal_id.rpartition("#")[2]  # of an issuer
    return _folded(login) in {_folded(each) for each in (principal_id, subject, subject.partition("@")[0])}


def _folded(name: str) -> str:
    return unicodedata.normalize("NFKC", name).casefold()


def _check(wait: Wait, key: str, response: Any) -> bool:
    """Return whether a response declines; raises `InvalidParams` if it does not fit the question."""
    question = load_questions({key: wait.question})[key]
    answer: ElicitResult = read_answer(question, key, response)
    if answer.action != "accept":
        return True
    wrong = problems(question.schema, answer.content or {}) if isinstance(question, Elicit) else []
    if wrong:
        raise InvalidParams(f"The answer does not fit the question: {'; '.join(wrong)}")
    return False
