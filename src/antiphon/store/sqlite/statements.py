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
    "COUNT_READY_TASKS_OF_SERVERS",
    "COUNT_TASKS",
    "COUNT_TASKS_OF_SERVERS",
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
    "PROBED_KEY",
    "PROBE_KEY",
    "READY_QUEUES",
    "READ_ENTRIES",
    "RECENT_CHANGES",
    "SERVERS_OF_PRINCIPAL",
    "UPDATE_COUNTS",
    "delete_entries",
    "delete_tasks",
    "get_records",
    "insert_entries",
    "insert_tasks",
    "list_records",
    "load_rows",
    "overdue_records",
    "padded_portions",
    "update_tasks",
]

FORMAT = 1
"""The format of heads and data that this version writes: 1 is JSON text."""

_MAX_STATEMENT_ROWS = 256
"""Rows in one statement: the 15 columns of a task stay below SQLite's limit of 32766 parameters."""

_IS_LIVE = "(phase <> 'ended' OR expires IS NULL OR expires > {now})"

_RECORD = """
    '{"id":' || json_quote(id) || ',"principal":' || json_quote(principal) || ',"tool":' || json_quote(tool)
    || ',"phase":"' || phase || '","version":' || version || ',"created":' || created
    || ',"updated":' || updated || ',"expires":' || coalesce(expires, 'null')
    || ',"server":' || json_quote(server) || ',"head":' || head || '}'
"""

_ROW = """json_array(
    key, id, principal, tool, phase, version, created, updated, expires, token, worker, lease, server{head}
)"""

_AS_RECORDS = f"'[' || coalesce(group_concat({_RECORD}), '') || ']'"
"""The fastest form: the head of each task is copied. One damaged head damages the whole text."""
_AS_ROWS = f"json_group_array({_ROW.format(head=', head')})"
"""A form in which one damaged row does not concern the others."""

READ_ENTRIES = f"""
    SELECT '[' || coalesce(group_concat(
        '{{"number":' || number || ',"kind":' || json_quote(kind) || ',"at":' || at
        || ',"data":' || data || '}}'
    ), '') || ']', max(format)
    FROM (
        SELECT entries.* FROM task_rows JOIN entries ON entries.task = task_rows.key
        WHERE task_rows.id = :id AND {_IS_LIVE.format(now=":now")} AND entries.number > :after
        ORDER BY entries.number LIMIT :limit
    )
"""  # nosec B608 # placeholders only

COUNT_TASKS = "SELECT tasks FROM counts WHERE phase = ?"

COUNT_OF_PRINCIPAL = """
    SELECT count(*) FROM (
        SELECT 1 FROM task_rows WHERE principal = ? AND phase = ? LIMIT ?
    )
"""

COUNT_READY_TASKS_OF_SERVERS = """
    SELECT
        (SELECT count(*) FROM task_rows
            WHERE phase = 'ready' AND lease = 0 AND server IN (SELECT value FROM json_each(:servers)))
        + (SELECT count(*) FROM task_rows
            WHERE phase = 'ready' AND lease > 0 AND server IN (SELECT value FROM json_each(:servers)))
"""
"""The two searches use the index of claimable tasks and the index of leases."""

COUNT_TASKS_OF_SERVERS = """
    SELECT count(*) FROM task_rows
    WHERE phase = :phase AND server IN (SELECT value FROM json_each(:servers))
"""

SERVERS_OF_PRINCIPAL = """
    WITH RECURSIVE servers (server) AS (
        SELECT min(server) FROM task_rows WHERE principal = :principal
        UNION ALL
        SELECT (SELECT min(server) FROM task_rows WHERE principal = :principal AND server > servers.server)
        FROM servers WHERE server IS NOT NULL
    )
    SELECT json_group_array(server) FROM servers WHERE server IS NOT NULL
"""
"""The servers on which a principal has tasks, with one index lookup for each."""

_READY_QUEUES = """
    WITH RECURSIVE named (server) AS (
        SELECT min(server) FROM task_rows WHERE phase = 'ready' AND lease = 0
        UNION ALL
        SELECT (
            SELECT min(server) FROM task_rows WHERE phase = 'ready' AND lease = 0 AND server > named.server
        ) FROM named WHERE server IS NOT NULL
    ),
    servers (server) AS (
        SELECT server FROM named WHERE :servers IS NULL AND server IS NOT NULL
        UNION ALL
        SELECT value FROM json_each(:servers)
    ),
    queues (server, tool) AS (
        SELECT server, (
            SELECT min(tool) FROM task_rows WHERE phase = 'ready' AND lease = 0 AND server = servers.server
        ) FROM servers
        UNION ALL
        SELECT server, (
            SELECT min(tool) FROM task_rows
            WHERE phase = 'ready' AND lease = 0 AND server = queues.server AND tool > queues.tool
        ) FROM queues WHERE tool IS NOT NULL
    )
"""
"""The servers and tools that have claimable tasks, with one index lookup for each."""

READY_QUEUES = f"""{_READY_QUEUES}
    SELECT json_group_array(json_array(server, tool)) FROM queues WHERE tool IS NOT NULL
"""  # nosec B608 # placeholders only

OLDEST_READY = f"""{_READY_QUEUES}
    SELECT updated FROM task_rows WHERE key IN (
        SELECT (
            SELECT key FROM task_rows
            WHERE phase = 'ready' AND lease = 0 AND server = queues.server AND tool = queues.tool
            ORDER BY created, key LIMIT 1
        ) FROM queues
    ) ORDER BY created, key LIMIT 1
"""  # nosec B608 # placeholders only

CLAIMABLE_TASKS = f"""
    SELECT {_AS_ROWS} FROM (
        SELECT * FROM task_rows WHERE phase = 'ready' AND lease = 0 AND server = :server AND tool = :tool
        ORDER BY created, key LIMIT :limit
    )
"""  # nosec B608 # placeholders only

END_EXPIRED_LEASES = """
    UPDATE task_rows SET lease = 0 WHERE key IN (
        SELECT key FROM task_rows WHERE lease > 0 AND lease <= :now ORDER BY lease LIMIT :limit
    )
"""

EXPIRED_TASKS = f"""
    SELECT {_AS_ROWS} FROM (
        SELECT * FROM task_rows WHERE expires IS NOT NULL AND expires <= :now AND phase = 'ended'
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
def get_records(size: int, *, as_rows: bool = False) -> str:
    """Return the query for records by id, as JSON. Its last parameter is the time."""
    return f"""
        SELECT {_AS_ROWS if as_rows else _AS_RECORDS}, max(format)
        FROM task_rows WHERE id IN ({_placeholders(size)}) AND {_IS_LIVE.format(now="?")}
    """  # nosec B608 # placeholders only


@cache
def list_records(of_principal: bool, of_server: bool, *, as_rows: bool = False) -> str:
    """Return the query for a page of records and their positions, newest first, in the order of an index."""
    return f"""
        SELECT {_AS_ROWS if as_rows else _AS_RECORDS}, max(format),
            json_group_array(json_array(created, key))
        FROM (
            SELECT * FROM task_rows WHERE {"principal = :principal AND " if of_principal else ""}
            {"server = :server AND " if of_server else ""}
            (created, key) < (:created, :key) AND {_IS_LIVE.format(now=":now")}
            ORDER BY created DESC, key DESC LIMIT :limit
        )
    """  # nosec B608 # placeholders only


@cache
def overdue_records(of_server: bool, *, as_rows: bool = False) -> str:
    """Return the query for tasks that have not ended although their time has passed, earliest first."""
    return f"""
        SELECT {_AS_ROWS if as_rows else _AS_RECORDS}, max(format) FROM (
            SELECT * FROM task_rows WHERE expires IS NOT NULL AND expires <= :now AND phase <> 'ended'
            {"AND server = :server" if of_server else ""}
            ORDER BY expires, key LIMIT :limit
        )
    """  # nosec B608 # placeholders only


@cache
def load_rows(size: int) -> str:
    """Return the query for rows by id, without their heads, and for the largest key in the table."""
    return f"""
        SELECT json_group_array({_ROW.format(head="")}), (SELECT coalesce(max(key), 0) FROM task_rows)
        FROM task_rows WHERE id IN ({_placeholders(size)})
    """  # nosec B608 # placeholders only


@cache
def insert_tasks(size: int) -> str:
    """Return the statement that inserts tasks."""
    return f"""
        INSERT INTO task_rows (
            key, id, principal, tool, phase, version, created, updated, expires, token, worker, lease, server,
            format, head
        ) SELECT * FROM (VALUES {_tuples(size, 15)}) WHERE column1 IS NOT NULL
    """  # nosec B608 # placeholders only


@cache
def insert_entries(size: int) -> str:
    """Return the statement that inserts entries."""
    return f"""
        INSERT INTO entries (task, number, kind, at, format, data)
        SELECT * FROM (VALUES {_tuples(size, 6)}) WHERE column1 IS NOT NULL
    """  # nosec B608 # placeholders only


@cache
def update_tasks(size: int) -> str:
    """Return the statement that updates tasks. A NULL head leaves the head unchanged."""
    return f"""
        WITH fresh (key, phase, version, updated, expires, token, worker, lease, head)
            AS (VALUES {_tuples(size, 9)})
        UPDATE task_rows SET phase = fresh.phase, version = fresh.version, updated = fresh.updated,
            expires = fresh.expires, token = fresh.token, worker = fresh.worker, lease = fresh.lease,
            head = coalesce(fresh.head, task_rows.head)
        FROM fresh WHERE task_rows.key = fresh.key
    """  # nosec B608 # placeholders only


@cache
def delete_entries(size: int) -> str:
    """Return the statement that deletes the entries of tasks, by key."""
    return f"DELETE FROM entries WHERE task IN ({_placeholders(size)})"  # nosec B608 # placeholders only


@cache
def delete_tasks(size: int) -> str:
    """Return the statement that deletes tasks, by key."""
    return f"DELETE FROM task_rows WHERE key IN ({_placeholders(size)})"  # nosec B608 # placeholders only


def _placeholders(size: int) -> str:
    return ", ".join(["?"] * size)


def _tuples(size: int, width: int) -> str:
    return ", ".join([f"({_placeholders(width)})"] * size)
