"""Decides what a list of tasks contains and where its pages begin. Pure, and the same for every store.

A position is the creation time and the key of a task. A cursor names the last position of a page, and the
list for which the page was made.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from antiphon.store.contract import Tallies, TaskFilter
from antiphon.store.outcomes import OUTCOMES
from antiphon.store.rules import MAX_INT64, check_expires, check_phase, check_text, servers_of

__all__ = [
    "EVERY_TASK",
    "MAX_COUNTED_TASKS",
    "SearchBy",
    "TaskList",
    "check_filter",
    "check_page_limit",
    "decode_cursor",
    "encode_cursor",
    "parse_count",
    "parse_list",
    "possible_searches",
    "search_by_tallies",
]

EVERY_TASK = TaskFilter()
"""The filter that all tasks match."""


class TaskList(NamedTuple):
    """One page of a list: the tasks that it contains, and where it begins."""

    principal: str | None
    servers: Sequence[str] | None
    """The names that a server's tasks have; `None` for all servers."""
    filter: TaskFilter
    position: tuple[int, int]
    """The creation time and the key after which the page begins."""
    limit: int
    oldest_first: bool = False

    @property
    def bound(self) -> int:
        """The earliest creation time in the list, or with `oldest_first` the time before which all are."""
        if self.oldest_first:
            return MAX_INT64 if self.filter.created_before is None else self.filter.created_before
        return -MAX_INT64 if self.filter.created_since is None else self.filter.created_since

    def cursor_after(self, created: int, key: int) -> str:
        """Return the cursor of the page after the task with this creation time and key."""
        return encode_cursor(created, key, self.filter, mark=_mark(self.oldest_first))


SearchBy: TypeAlias = Literal["principal", "status", "tool"]
"""The field by which the tasks of a list are searched in an index. The status is the phase or the outcome."""

MAX_COUNTED_TASKS = 2000
"""How many tasks of a principal are counted to choose a search."""


def possible_searches(wanted: TaskList) -> list[SearchBy]:
    """Return the fields by which the tasks of a list can be searched, the usual choice first.

    An index of tasks that have not ended has their tools too, so a search by tool is no better.
    """
    has_status = wanted.filter.phase is not None or wanted.filter.outcome is not None
    is_unfinished = has_status and wanted.filter.outcome is None and wanted.filter.phase != "ended"
    found: list[SearchBy] = []
    if wanted.principal is not None:
        found.append("principal")
    if has_status:
        found.append("status")
    if not found or (wanted.filter.tool is not None and not is_unfinished):
        found.append("tool")
    return found


def search_by_tallies(wanted: TaskList, tallies: Tallies) -> tuple[SearchBy, int] | None:
    """Return the search, of those that are not by principal, that reads the fewest tasks, and their number.

    Returns `None` if no task is in the list. If the principal has fewer tasks than that, a search by
    principal is better: count them up to `MAX_COUNTED_TASKS`.
    """
    filter = msgspec.structs.replace(wanted.filter, created_before=None, created_since=None)
    if not tallies.count(filter):
        return None
    sizes: dict[SearchBy, int] = {}
    for field in possible_searches(wanted):
        if field == "status":
            sizes[field] = tallies.count(msgspec.structs.replace(filter, tool=None))
        elif field == "tool":
            sizes[field] = tallies.count(TaskFilter(tool=filter.tool))
    field = min(sizes, key=lambda field: sizes[field])
    return field, sizes[field]


def check_page_limit(limit: int) -> int:
    """Return the limit of a page; raises `ValueError` if it is below 1."""
    if limit < 1:
        raise ValueError(f"Invalid page limit {limit}: a page holds at least one record.")
    return limit


def check_filter(filter: TaskFilter | None) -> TaskFilter:
    """Return the filter, or one that all tasks match; raises `ValueError` for an invalid field."""
    if filter is None:
        return EVERY_TASK
    if filter.phase is not None:
        check_phase(filter.phase)
    if filter.outcome is not None and filter.outcome not in OUTCOMES:
        raise ValueError(f"Unknown outcome {filter.outcome!r}: use one of {', '.join(OUTCOMES)}.")
    for time in (filter.created_before, filter.created_since):
        check_expires(time)
    if filter.tool is not None:
        check_text(filter.tool)
    return filter


def parse_list(
    principal: str | None,
    *,
    cursor: str | None,
    limit: int,
    server: str | None,
    filter: TaskFilter | None,
    oldest_first: bool,
) -> TaskList:
    """Return the page that a caller of `Store.list` asks for; raises `ValueError` like `Store.list`.

    A filter may exclude the tasks at the near end of the list, so that the first page begins after them.
    """
    wanted = check_filter(filter)
    position = decode_cursor(cursor, wanted, oldest_first=oldest_first, mark=_mark(oldest_first))
    if oldest_first and wanted.created_since is not None:
        position = max(position, (wanted.created_since, 0))
    elif not oldest_first and wanted.created_before is not None:
        position = min(position, (wanted.created_before, 0))
    return TaskList(
        principal, servers_of(server), wanted, position, check_page_limit(limit), oldest_first=oldest_first
    )


def parse_count(
    principal: str | None, *, server: str | None, filter: TaskFilter | None, most: int
) -> TaskList:
    """Return a list of one task more than are counted; raises `ValueError` like `Store.count_listed`."""
    return parse_list(
        principal, cursor=None, limit=most + 1, server=server, filter=filter, oldest_first=False
    )


def encode_cursor(created: int, key: int, filter: TaskFilter = EVERY_TASK, *, mark: str = "") -> str:
    """Return the cursor of the page after the task with this creation time and key."""
    if mark or filter != EVERY_TASK:
        mark = f".{zlib.crc32(msgspec.json.encode(filter))}{mark}"
    return base64.urlsafe_b64encode(f"{created}.{key}{mark}".encode()).rstrip(b"=").decode()


def decode_cursor(
    cursor: str | None, filter: TaskFilter = EVERY_TASK, *, oldest_first: bool = False, mark: str = ""
) -> tuple[int, int]:
    """Return the creation time and key in a cursor.

    Raises `ValueError` for an invalid cursor, and for the cursor of a list with another filter or order.
    Without a cursor, the result is larger than every task, so that the first page follows. With
    `oldest_first`, it is smaller than every task.
    """
    if cursor is None:
        return (-MAX_INT64, 0) if oldest_first else (MAX_INT64, MAX_INT64)
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode()
        created, key = (int(part) for part in text.split(".")[:2])
    except (binascii.Error, ValueError):
        raise _invalid_cursor() from None
    in_range = -MAX_INT64 <= created <= MAX_INT64 and 0 <= key <= MAX_INT64
    if encode_cursor(created, key, filter, mark=mark) != cursor or not in_range:
        raise _invalid_cursor()
    return created, key


def _invalid_cursor() -> ValueError:
    return ValueError(
        "Invalid cursor: this store did not issue it, or for a list with another filter or order. Start "
        "again without a cursor."
    )


def _mark(oldest_first: bool) -> str:
    """Return the end of the cursors of a list in this order."""
    return "o" if oldest_first else ""
