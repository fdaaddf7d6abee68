"""The SQL statements that `batch.py` and `reader.py` execute. This module opens no connection.

Python's sqlite3 releases the interpreter lock for every row, and while the event loop is busy it may wait
milliseconds to get the lock back. So a query returns one row with one JSON text, and one statement writes
many rows. The rows are padded with NULLs to a power of two, so that there are few different statements and
all of them stay prepared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

__all__ = [
    "CLAIMABLE_TASKS",
    "COUNT_OF_PRINCIPAL",
    "COUNT_TASKS",
    "DELETE_OLD_COMMITS",
    "DELETE_OLD_KEYS",
    "DELETE_OLD_MESSAGES",
    "END_EXPIRED_LEASES",
    "EXPIRED_TASKS",
    "FORMAT",
    "INSERT_COMMIT",
    "INSERT_KEY",
    "INSERT_MESSAGE",
    "OLDEST_READY",
    "OVERDUE_TASKS",
    "PROBED_KEY",
    "PROBE_KEY",
    "READ_ENTRIES",
    "RECENT_CHANGES",
    "TOOLS_WITH_READY_TASKS",
    "UPDATE_COUNTS",
    "delete_entries",
    "delete_tasks",
    "get_records",
    "insert_entries",
    "insert_tasks",
    "list_records",
    "load_rows",
    "padded_portions",
    "update_tasks",
]

FORMAT = 1
"""The format of heads and data that this version writes: 1 is JSON text."""

_MAX_STATEMENT_ROWS = 256
"""Rows in one statement: the 14 columns of a task stay below SQLite's limit of 32766 parameters."""

_IS_LIVE = "(phase <> 'ended' OR expires IS NULL OR expires > {now})"

_RECORD = """
    '{"id":' || json_quote(id) || ',"principal":' || json_quote(principal) || ',"tool":' || json_quote(tool)
    || ',"phase":"' || phase || '","version":' || version || ',"created":' || created
    || ',"updated":' || updated || ',"expires":' || coalesce(expires, 'null') || ',"head":' || head || '}'
"""

_ROW = """json_array(
    key, id, principal, tool, phase, version, created, updated, expires, token, worker, lease{head})"""

READ_ENTRIES = f"""
    SELECT '[' || coalesce(group_concat(
        '{{"number":' || number || ',"kind":' || json_quote(kind) || ',"at":' || at
        || ',"data":' || data || '}}'
    ), '') || ']', max(format)
    FROM (
        SELECT entries.* FROM tasks JOIN entries ON entries.task = tasks.key
        WHERE tasks.id = :id AND {_IS_LIVE.format(now=":now")} AND entries.number > :after
        ORDER BY entries.number LIMIT :limit
    )
"""  # nosec B608 # placeholders only

COUNT_TASKS = "SELECT tasks FROM counts WHERE phase = ?"

COUNT_OF_PRINCIPAL = """
    SELECT count(*) FROM (
        SELECT 1 FROM tasks INDEXED BY tasks_of_principal WHERE principal = ? AND phase = ? LIMIT ?
    )
"""

TOOLS_WITH_READY_TASKS = """
    WITH RECURSIVE names (tool) AS (
        SELECT min(tool) FROM tasks WHERE phase = 'ready' AND lease = 0
        UNION ALL
        SELECT (SELECT min(tool) FROM tasks WHERE phase = 'ready' AND lease = 0 AND tool > names.tool)
        FROM names WHERE tool IS NOT NULL
    )
    SELECT json_group_array(tool) FROM names WHERE tool IS NOT NULL
"""
"""The tools that have claimable tasks, with one index lookup for each tool."""

OLDEST_READY = """
    WITH RECURSIVE names (tool) AS (
        SELECT min(tool) FROM tasks WHERE phase = 'ready' AND lease = 0
        UNION ALL
        SELECT (SELECT min(tool) FROM tasks WHERE phase = 'ready' AND lease = 0 AND tool > names.tool)
        FROM names WHERE tool IS NOT NULL
    )
    SELECT updated FROM tasks WHERE key IN (
        SELECT (
            SELECT key FROM tasks WHERE phase = 'ready' AND lease = 0 AND tool = names.tool
            ORDER BY created, key LIMIT 1
        ) FROM names
    ) ORDER BY created, key LIMIT 1
"""

CLAIMABLE_TASKS = f"""
    SELECT json_group_array({_ROW.format(head=", head")}) FROM (
        SELECT * FROM tasks WHERE phase = 'ready' AND lease = 0 AND tool = :tool
        ORDER BY created, key LIMIT :limit
    )
"""  # nosec B608 # placeholders only

END_EXPIRED_LEASES = """
    UPDATE tasks SET lease = 0 WHERE key IN (
        SELECT key FROM tasks WHERE lease > 0 AND lease <= :now ORDER BY lease LIMIT :limit
    )
"""

EXPIRED_TASKS = f"""
    SELECT json_group_array({_ROW.format(head=", head")}) FROM (
        SELECT * FROM tasks WHERE expires IS NOT NULL AND expires <= :now AND phase = 'ended'
        ORDER BY expires, key LIMIT :limit
    )
"""  # nosec B608 # placeholders only

OVERDUE_TASKS = f"""
    SELECT '[' || coalesce(group_concat({_RECORD}), '') || ']', max(format) FROM (
        SELECT * FROM tasks WHERE expires IS NOT NULL AND expires <= :now AND phase <> 'ended'
        ORDER BY expires, key LIMIT :limit
    )
"""  # nosec B608 # placeholders only

UPDATE_COUNTS = """
    UPDATE counts SET tasks = tasks + CASE phase
        WHEN 'ready' THEN :ready WHEN 'waiting' THEN :waiting WHEN 'ended' THEN :ended ELSE 0 END
"""

INSERT_COMMIT = "INSERT INTO commits (origin, touched, ready) VALUES (?, ?, ?)"

DELETE_OLD_COMMITS = "DELETE FROM commits WHERE number <= ?"

RECENT_CHANGES = """
    SELECT (SELECT coalesce(max(number), 0) FROM commits), json_group_array(
        CASE WHEN origin = :origin THEN NULL ELSE json_array(json(touched), ready) END),
        (SELECT coalesce(max(number), 0) FROM messages),
        (SELECT json_group_array(json_array(topic, data)) FROM (
            SELECT * FROM messages WHERE number > :last_message AND origin <> :origin ORDER BY number))
    FROM (SELECT * FROM commits WHERE number > :last_commit ORDER BY number LIMIT :limit)
"""

INSERT_MESSAGE = "INSERT INTO messages (origin, topic, data) VALUES (?, ?, ?)"

DELETE_OLD_MESSAGES = "DELETE FROM messages WHERE number <= ?"

INSERT_KEY = """
    INSERT INTO used VALUES (:key, :until)
    ON CONFLICT (key) DO UPDATE SET until = excluded.until WHERE until <= :now
"""

PROBE_KEY = """
    INSERT INTO used VALUES (:key, :until) ON CONFLICT (key) DO UPDATE SET until = excluded.until
"""

PROBED_KEY = "SELECT until FROM used WHERE key = ?"

DELETE_OLD_KEYS = """
    DELETE FROM used WHERE key IN (SELECT key FROM used WHERE until <= :now ORDER BY until LIMIT :limit)
"""


def padded_portions(rows: Sequence[Sequence[Any]]) -> Iterator[tuple[int, list[Any]]]:
    """Split rows into portions; yield the size of each, a power of two, and its values, padded with NULLs."""
    for start in range(0, len(rows), _MAX_STATEMENT_ROWS):
        portion = rows[start : start + _MAX_STATEMENT_ROWS]
        size = 1 << (len(portion) - 1).bit_length()
        values = [value for row in portion for value in row]
        yield size, values + [None] * ((size - len(portion)) * len(portion[0]))


@cache
def get_records(size: int) -> str:
    """Return the query for records by id, as JSON. Its last parameter is the time."""
    return f"""
        SELECT '[' || coalesce(group_concat({_RECORD}), '') || ']', max(format)
        FROM tasks WHERE id IN ({_placeholders(size)}) AND {_IS_LIVE.format(now="?")}
    """  # nosec B608 # placeholders only


@cache
def list_records(of_principal: bool) -> str:
    """Return the query for a page of records and their positions, newest first, in the order of an index."""
    return f"""
        SELECT '[' || coalesce(group_concat({_RECORD}), '') || ']', max(format),
            json_group_array(json_array(created, key))
        FROM (
            SELECT * FROM tasks WHERE {"principal = :principal AND " if of_principal else ""}
            (created, key) < (:created, :key) AND {_IS_LIVE.format(now=":now")}
            ORDER BY created DESC, key DESC LIMIT :limit
        )
    """  # nosec B608 # placeholders only


@cache
def load_rows(size: int) -> str:
    """Return the query for rows by id, without their heads, and for the largest key in the table."""
    return f"""
        SELECT json_group_array({_ROW.format(head="")}), (SELECT coalesce(max(key), 0) FROM tasks)
        FROM tasks WHERE id IN ({_placeholders(size)})
    """  # nosec B608 # placeholders only


@cache
def insert_tasks(size: int) -> str:
    """Return the statement that inserts tasks."""
    return f"INSERT INTO tasks SELECT * FROM (VALUES {_tuples(size, 14)}) WHERE column1 IS NOT NULL"  # nosec B608 # placeholders only


@cache
def insert_entries(size: int) -> str:
    """Return the statement that inserts entries."""
    return f"INSERT INTO entries SELECT * FROM (VALUES {_tuples(size, 6)}) WHERE column1 IS NOT NULL"  # nosec B608 # placeholders only


@cache
def update_tasks(size: int) -> str:
    """Return the statement that updates tasks. A NULL head leaves the head unchanged."""
    return f"""
        WITH fresh (key, phase, version, updated, expires, token, worker, lease, head)
            AS (VALUES {_tuples(size, 9)})
        UPDATE tasks SET phase = fresh.phase, version = fresh.version, updated = fresh.updated,
            expires = fresh.expires, token = fresh.token, worker = fresh.worker, lease = fresh.lease,
            head = coalesce(fresh.head, tasks.head)
        FROM fresh WHERE tasks.key = fresh.key
    """  # nosec B608 # placeholders only


@cache
def delete_entries(size: int) -> str:
    """Return the statement that deletes the entries of tasks, by key."""
    return f"DELETE FROM entries WHERE task IN ({_placeholders(size)})"  # nosec B608 # placeholders only


@cache
def delete_tasks(size: int) -> str:
    """Return the statement that deletes tasks, by key."""
    return f"DELETE FROM tasks WHERE key IN ({_placeholders(size)})"  # nosec B608 # placeholders only


def _placeholders(size: int) -> str:
    return ", ".join(["?"] * size)


def _tuples(size: int, width: int) -> str:
    return ", ".join([f"({_placeholders(width)})"] * size)
