"""The statements. What they mean is in `batch.py`, which writes, and `reader.py`, which reads.

Python's sqlite3 gives up the interpreter's lock at every row it steps to, and while the event loop is
busy it may wait milliseconds to get it back. So a query gives one row with one JSON text, and one
statement writes many rows: as many as there are, filled up with NULLs to a power of two, so that there
are few different statements and all of them stay prepared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

__all__ = [
    "ALL_TOOLS",
    "COUNT",
    "DUE",
    "FORMAT",
    "FREE",
    "LAPSE",
    "NOTE_COMMIT",
    "NOTE_KEY",
    "OLDEST",
    "READ",
    "RECENT",
    "RECOUNT",
    "SAY",
    "SWEEP_KEYS",
    "TRIM_COMMITS",
    "TRIM_MESSAGES",
    "delete_entries",
    "delete_tasks",
    "get",
    "insert_entries",
    "insert_tasks",
    "load",
    "padded",
    "page",
    "update_tasks",
]

FORMAT = 1
"""How this version writes heads and data: as JSON text."""

_MOST = 256
"""Rows in one statement, at most."""

_ALIVE = "(expires IS NULL OR expires > {now})"

_RECORD = """
    '{"id":' || json_quote(id) || ',"principal":' || json_quote(principal) || ',"tool":' || json_quote(tool)
    || ',"phase":"' || phase || '","version":' || version || ',"created":' || created
    || ',"updated":' || updated || ',"expires":' || coalesce(expires, 'null') || ',"head":' || head || '}'
"""

_ROW = """json_array(
    key, id, principal, tool, phase, version, created, updated, expires, token, worker, lease{head})"""

READ = f"""
    SELECT '[' || coalesce(group_concat(
        '{{"number":' || number || ',"kind":' || json_quote(kind) || ',"at":' || at
        || ',"data":' || data || '}}'
    ), '') || ']', max(format)
    FROM (
        SELECT entries.* FROM tasks JOIN entries ON entries.task = tasks.key
        WHERE tasks.id = :id AND {_ALIVE.format(now=":now")} AND entries.number > :after
        ORDER BY entries.number LIMIT :limit
    )
"""

COUNT = "SELECT tasks FROM counts WHERE phase = ?"

ALL_TOOLS = """
    WITH RECURSIVE names (tool) AS (
        SELECT min(tool) FROM tasks WHERE phase = 'ready' AND lease = 0
        UNION ALL
        SELECT (SELECT min(tool) FROM tasks WHERE phase = 'ready' AND lease = 0 AND tool > names.tool)
        FROM names WHERE tool IS NOT NULL
    )
    SELECT json_group_array(tool) FROM names WHERE tool IS NOT NULL
"""
"""The tools that have something to do, by one look into the index for each."""

OLDEST = f"""
    WITH RECURSIVE names (tool) AS (
        SELECT min(tool) FROM tasks WHERE phase = 'ready' AND lease = 0
        UNION ALL
        SELECT (SELECT min(tool) FROM tasks WHERE phase = 'ready' AND lease = 0 AND tool > names.tool)
        FROM names WHERE tool IS NOT NULL
    )
    SELECT updated FROM tasks WHERE key IN (
        SELECT (
            SELECT key FROM tasks WHERE phase = 'ready' AND lease = 0 AND tool = names.tool
            AND {_ALIVE.format(now=":now")} ORDER BY created, key LIMIT 1
        ) FROM names
    ) ORDER BY created, key LIMIT 1
"""

FREE = f"""
    SELECT json_group_array({_ROW.format(head=", head")}) FROM (
        SELECT * FROM tasks WHERE phase = 'ready' AND lease = 0 AND tool = :tool
        AND {_ALIVE.format(now=":now")} ORDER BY created, key LIMIT :limit
    )
"""

LAPSE = """
    UPDATE tasks SET lease = 0 WHERE key IN (
        SELECT key FROM tasks WHERE lease > 0 AND lease <= :now ORDER BY lease LIMIT :limit
    )
"""

DUE = f"""
    SELECT json_group_array({_ROW.format(head=", head")}) FROM (
        SELECT * FROM tasks WHERE expires IS NOT NULL AND expires <= :now ORDER BY expires, key LIMIT :limit
    )
"""

RECOUNT = """
    UPDATE counts SET tasks = tasks + CASE phase
        WHEN 'ready' THEN :ready WHEN 'waiting' THEN :waiting WHEN 'ended' THEN :ended ELSE 0 END
"""

NOTE_COMMIT = "INSERT INTO commits (origin, touched, ready) VALUES (?, ?, ?)"

TRIM_COMMITS = "DELETE FROM commits WHERE number <= ?"

RECENT = """
    SELECT (SELECT coalesce(max(number), 0) FROM commits), json_group_array(
        CASE WHEN origin = :origin THEN NULL ELSE json_array(json(touched), ready) END),
        (SELECT coalesce(max(number), 0) FROM messages),
        (SELECT json_group_array(json_array(topic, data)) FROM (
            SELECT * FROM messages WHERE number > :heard AND origin <> :origin ORDER BY number))
    FROM (SELECT * FROM commits WHERE number > :last ORDER BY number LIMIT :limit)
"""

SAY = "INSERT INTO messages (origin, topic, data) VALUES (?, ?, ?)"

TRIM_MESSAGES = "DELETE FROM messages WHERE number <= ?"

NOTE_KEY = """
    INSERT INTO used VALUES (:key, :until)
    ON CONFLICT (key) DO UPDATE SET until = excluded.until WHERE until <= :now
"""

SWEEP_KEYS = """
    DELETE FROM used WHERE key IN (SELECT key FROM used WHERE until <= :now ORDER BY until LIMIT :limit)
"""


def padded(rows: Sequence[Sequence[Any]]) -> Iterator[tuple[int, list[Any]]]:
    """Rows in portions, each with its size, a power of two, and its values, filled up with NULLs."""
    for start in range(0, len(rows), _MOST):
        portion = rows[start : start + _MOST]
        size = 1 << (len(portion) - 1).bit_length()
        values = [value for row in portion for value in row]
        yield size, values + [None] * ((size - len(portion)) * len(portion[0]))


@cache
def get(size: int) -> str:
    """Records by id, as JSON; the last parameter is the time."""
    return f"""
        SELECT '[' || coalesce(group_concat({_RECORD}), '') || ']', max(format)
        FROM tasks WHERE id IN ({_marks(size)}) AND {_ALIVE.format(now="?")}
    """


@cache
def page(of_principal: bool) -> str:
    """Records before a place, newest first, and their places; both orders are those of an index."""
    return f"""
        SELECT '[' || coalesce(group_concat({_RECORD}), '') || ']', max(format),
            json_group_array(json_array(created, key))
        FROM (
            SELECT * FROM tasks WHERE {"principal = :principal AND " if of_principal else ""}
            (created, key) < (:created, :key) AND {_ALIVE.format(now=":now")}
            ORDER BY created DESC, key DESC LIMIT :limit
        )
    """


@cache
def load(size: int) -> str:
    """Rows by id without their heads, and the largest key there is."""
    return f"""
        SELECT json_group_array({_ROW.format(head="")}), (SELECT coalesce(max(key), 0) FROM tasks)
        FROM tasks WHERE id IN ({_marks(size)})
    """


@cache
def insert_tasks(size: int) -> str:
    """Begin tasks."""
    return f"INSERT INTO tasks SELECT * FROM (VALUES {_tuples(size, 14)}) WHERE column1 IS NOT NULL"


@cache
def insert_entries(size: int) -> str:
    """Add to logs."""
    return f"INSERT INTO entries SELECT * FROM (VALUES {_tuples(size, 6)}) WHERE column1 IS NOT NULL"


@cache
def update_tasks(size: int) -> str:
    """Set what may change in a task. A head that is NULL stays what it was."""
    return f"""
        WITH fresh (key, phase, version, updated, token, worker, lease, head) AS (VALUES {_tuples(size, 8)})
        UPDATE tasks SET phase = fresh.phase, version = fresh.version, updated = fresh.updated,
            token = fresh.token, worker = fresh.worker, lease = fresh.lease,
            head = coalesce(fresh.head, tasks.head)
        FROM fresh WHERE tasks.key = fresh.key
    """


@cache
def delete_entries(size: int) -> str:
    """Forget the logs of tasks, by key."""
    return f"DELETE FROM entries WHERE task IN ({_marks(size)})"


@cache
def delete_tasks(size: int) -> str:
    """Forget tasks, by key."""
    return f"DELETE FROM tasks WHERE key IN ({_marks(size)})"


def _marks(size: int) -> str:
    return ", ".join(["?"] * size)


def _tuples(size: int, width: int) -> str:
    return ", ".join([f"({_marks(width)})"] * size)
