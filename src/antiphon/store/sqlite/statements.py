"""The SQL statements that `batch.py` and `reader.py` execute. This module opens no connection.

Python's sqlite3 releases the interpreter lock for every row, and while the event loop is busy it may wait
milliseconds to get the lock back. So a query returns one row with one JSON text, and one statement writes
many rows. The rows are padded with NULLs to a power of two, so that there are few different statements and
all of them stay prepared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Literal, TypeAlias

__all__ = [
    "CLAIMABLE_TASKS",
    "COUNTED_FORMAT",
    "COUNT_OF_PRINCIPAL",
    "COUNT_OF_SHARER",
    "COUNT_QUEUED",
    "COUNT_TASKS",
    "COUNT_TASKS_OF_SERVERS",
    "DELETE_OLD_COMMITS",
    "DELETE_OLD_KEYS",
    "DELETE_OLD_MESSAGES",
    "DUE_TASKS",
    "END_EXPIRED_LEASES",
    "EXPIRED_TASKS",
    "FORMAT",
    "HAS_DUE_TASK",
    "INCREASE_TURN",
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
    "STORED_BYTES",
    "TAGGED_TASKS",
    "TOOLS",
    "UNFINISHED_TOOLS",
    "UPDATE_COUNTS",
    "WAKING_SERVERS",
    "Search",
    "add_to_usages",
    "count_records",
    "delete_entries",
    "delete_tags",
    "delete_tasks",
    "get_records",
    "insert_entries",
    "insert_tags",
    "insert_tasks",
    "list_records",
    "load_rows",
    "load_turns",
    "overdue_records",
    "padded_portions",
    "tagged_records",
    "tuples",
    "update_tasks",
    "update_waits",
]

FORMAT = 1
"""The format of heads that this version writes: 1 is JSON text."""
COUNTED_FORMAT = 0
"""The format of the data that this version writes: JSON text too, whose bytes the same commit counts. A
trigger counts those of the format 1, which earlier versions write."""

_MAX_STATEMENT_ROWS = 256
"""Rows in one statement: the 19 columns of a task stay below SQLite's limit of 32766 parameters."""

_IS_LIVE = "(phase <> 'ended' OR expires IS NULL OR expires > {now})"

_RECORD = """
    '{"id":' || json_quote(id) || ',"principal":' || json_quote(principal) || ',"tool":' || json_quote(tool)
    || ',"phase":"' || phase || '","version":' || version || ',"created":' || created
    || ',"updated":' || updated || ',"expires":' || coalesce(expires, 'null')
    || ',"server":' || json_quote(server)
    || CASE sharer WHEN '' THEN '' ELSE ',"sharer":' || json_quote(sharer) END
    || CASE WHEN phase = 'waiting'
        THEN coalesce(',"wakes":' || wakes, '') || coalesce(',"tags":' || tags, '') ELSE '' END
    || ',"head":' || head || '}'
"""

_OUTCOME = """
    CASE
        WHEN NOT json_valid(head) THEN ''
        WHEN json_extract(head, '$.state') = 'faulted' THEN 'failed'
        WHEN json_extract(head, '$.state') = 'cancelled' THEN 'cancelled'
        WHEN json_extract(head, '$.state') = 'done' THEN
            CASE WHEN json_type(head, '$.result.is_error') = 'true' THEN 'failed' ELSE 'done' END
        ELSE ''
    END
"""
"""The outcome of a task. The schema has an index on the same expression."""

_ROW = """json_array(
    key, id, principal, tool, phase, version, created, updated, expires, token, worker, lease, server, turn,
    wakes, tags, sharer, bytes, coalesce(tallied, CASE WHEN phase <> 'ended' THEN phase ELSE {status} END)
    {head}
)"""

_AS_RECORDS = f"'[' || coalesce(group_concat({_RECORD}), '') || ']'"
"""The fastest form: the head of each task is copied. One damaged head damages the whole text."""
_STATUS = f"coalesce(nullif({_OUTCOME}, ''), 'ended')"
"""The status under which an ended task is counted, if the column does not say it."""
_AS_ROWS = f"json_group_array({_ROW.format(status=_STATUS, head=', head')})"
"""A form in which one damaged row does not concern the others."""
_AS_ROWS_WITHOUT_HEAD = f"json_group_array({_ROW.format(status=_STATUS, head='')})"

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

COUNT_OF_SHARER = """
    SELECT count(*) FROM (
        SELECT 1 FROM task_rows INDEXED BY tasks_of_sharer
        WHERE sharer = ? AND phase = ? AND sharer <> '' AND phase <> 'ended' AND lease = 0 LIMIT ?
    )
"""

STORED_BYTES = """
    SELECT coalesce(sum(bytes), 0) FROM usages
    WHERE sharer = :sharer AND (:servers IS NULL OR server IN (SELECT value FROM json_each(:servers)))
"""

COUNT_TASKS_OF_SERVERS = """
    SELECT coalesce(sum(tasks), 0) FROM tallies
    WHERE hour = -1 AND server IN (SELECT value FROM json_each(:servers))
        AND CASE WHEN status IN ('ready', 'waiting') THEN status ELSE 'ended' END = :phase
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

TOOLS = """
    WITH RECURSIVE tools (tool) AS (
        SELECT min(tool) FROM task_rows
        UNION ALL
        SELECT (SELECT min(tool) FROM task_rows WHERE tool > tools.tool) FROM tools WHERE tool IS NOT NULL
    )
    SELECT json_group_array(tool) FROM tools WHERE tool IS NOT NULL
"""
"""The tools that have tasks, with one index lookup for each."""

UNFINISHED_TOOLS = """
    WITH RECURSIVE tools (tool) AS (
        SELECT min(tool) FROM task_rows INDEXED BY tasks_unfinished
        WHERE phase <> 'ended' AND lease = 0 AND phase = :phase
        UNION ALL
        SELECT (
            SELECT min(tool) FROM task_rows INDEXED BY tasks_unfinished
            WHERE phase <> 'ended' AND lease = 0 AND phase = :phase AND tool > tools.tool
        ) FROM tools WHERE tool IS NOT NULL
    )
    SELECT json_group_array(tool) FROM tools WHERE tool IS NOT NULL
"""
"""The tools that have tasks in a phase that no worker holds, with one index lookup for each."""

Search: TypeAlias = Literal["principal", "tool", "ended", "unfinished", "leased"]
"""The property by which an index finds the tasks of a list."""

_SEARCHES: Mapping[Search, tuple[str, str]] = {
    "principal": ("tasks_of_principal_on_server", "principal = :principal AND server = :value"),
    "tool": ("tasks_of_tool", "tool = :value"),
    "ended": ("tasks_ended", f"phase = 'ended' AND {_OUTCOME} = :value"),
    "unfinished": ("tasks_unfinished", "phase <> 'ended' AND lease = 0 AND phase = :phase AND tool = :value"),
    "leased": ("tasks_leased", "lease > 0 AND phase = :value"),
}
"""The index and the condition of each search."""
WAKING_SERVERS = """
    WITH RECURSIVE servers (server) AS (
        SELECT min(server) FROM task_rows WHERE wakes IS NOT NULL
        UNION ALL
        SELECT (SELECT min(server) FROM task_rows WHERE wakes IS NOT NULL AND server > servers.server)
        FROM servers WHERE server IS NOT NULL
    )
    SELECT json_group_array(server) FROM servers WHERE server IS NOT NULL
"""
"""The servers that have tasks that wake, with one index lookup for each."""

_IS_DUE = "server = :server AND wakes IS NOT NULL AND wakes <= :now"

HAS_DUE_TASK = f"SELECT EXISTS (SELECT 1 FROM task_rows WHERE {_IS_DUE})"  # nosec B608 # placeholders only

DUE_TASKS = f"""
    SELECT {_AS_ROWS_WITHOUT_HEAD} FROM (
        SELECT * FROM task_rows WHERE {_IS_DUE} ORDER BY wakes, key LIMIT :limit
    )
"""  # nosec B608 # placeholders only

_TAGGED = """(
    SELECT task_rows.* FROM task_tags CROSS JOIN task_rows ON task_rows.key = task_tags.task
    WHERE tag = :tag AND (task_tags.created, task_tags.task) > (:created, :key)
        AND phase = 'waiting' AND task_rows.created = task_tags.created
    ORDER BY task_tags.created, task_tags.task LIMIT :limit
)"""
"""The waiting tasks with a tag, oldest first. The CROSS JOIN makes SQLite search the tags first. Processes of
schema 4 delete a task without its tags, and the next task may get its key, so the age has to match too."""

TAGGED_TASKS = f"SELECT {_AS_ROWS_WITHOUT_HEAD} FROM {_TAGGED}"  # nosec B608 # placeholders only

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

COUNT_QUEUED = f"""{_READY_QUEUES}
    SELECT count(*) FROM (
        SELECT 1 FROM (SELECT server FROM queues WHERE tool = :tool) AS own
        CROSS JOIN task_rows ON task_rows.server = own.server
        WHERE phase = 'ready' AND lease = 0 AND tool = :tool LIMIT :most
    )
"""  # nosec B608 # placeholders only

OLDEST_READY = f"""{_READY_QUEUES}
    SELECT updated FROM task_rows WHERE key IN (
        SELECT (
            SELECT key FROM task_rows
            WHERE phase = 'ready' AND lease = 0 AND server = queues.server AND tool = queues.tool
            ORDER BY coalesce(turn, created), key LIMIT 1
        ) FROM queues
    ) ORDER BY coalesce(turn, created), key LIMIT 1
"""  # nosec B608 # placeholders only

CLAIMABLE_TASKS = f"""
    SELECT {_AS_ROWS} FROM (
        SELECT * FROM task_rows WHERE phase = 'ready' AND lease = 0 AND server = :server AND tool = :tool
        ORDER BY coalesce(turn, created), key LIMIT :limit
    )
"""  # nosec B608 # placeholders only

INCREASE_TURN = """
    INSERT INTO turns VALUES (:server, :turn)
    ON CONFLICT (server) DO UPDATE SET turn = excluded.turn WHERE excluded.turn > turn
"""

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
def list_records(search: Search, *, oldest_first: bool = False, as_rows: bool = False) -> str:
    """Return the query for a page of records and their positions in the order of an index.

    Its conditions are the search, the position, and the fields of a filter that are not NULL.
    """
    return f"""
        SELECT {_AS_ROWS if as_rows else _AS_RECORDS}, max(format),
            json_group_array(json_array(created, key))
        FROM ({_listed("*", search, oldest_first)})
    """  # nosec B608 # placeholders only


@cache
def count_records(search: Search) -> str:
    """Return the query for the number of tasks that `list_records` finds."""
    return f"SELECT count(*) FROM ({_listed('1', search, False)})"  # nosec B608 # placeholders only


def _listed(columns: str, search: Search, oldest_first: bool) -> str:
    index, condition = _SEARCHES[search]
    after, within, order = (">", "<", "") if oldest_first else ("<", ">=", "DESC")
    return f"""
        SELECT {columns} FROM task_rows INDEXED BY {index} WHERE {condition}
        AND (created, key) {after} (:created, :key) AND created {within} :bound
        AND {_IS_LIVE.format(now=":now")}
        AND (:servers IS NULL OR server IN (SELECT value FROM json_each(:servers)))
        AND (:principal IS NULL OR principal = :principal) AND (:tool IS NULL OR tool = :tool)
        AND (:phase IS NULL OR phase = :phase)
        AND (:outcome IS NULL OR (phase = 'ended' AND {_OUTCOME} = :outcome))
        ORDER BY created {order}, key {order} LIMIT :limit
    """  # nosec B608 # placeholders only


@cache
def tagged_records(*, as_rows: bool = False) -> str:
    """Return the query for a page of the waiting tasks with a tag and their positions, oldest first."""
    return f"""
        SELECT {_AS_ROWS if as_rows else _AS_RECORDS}, max(format),
            json_group_array(json_array(created, key)) FROM {_TAGGED}
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
        SELECT {_AS_ROWS_WITHOUT_HEAD}, (SELECT coalesce(max(key), 0) FROM task_rows)
        FROM task_rows WHERE id IN ({_placeholders(size)})
    """  # nosec B608 # placeholders only


@cache
def load_turns(size: int) -> str:
    """Return the query for the turns behind which new tasks are queued, by server and principal."""
    return f"""
        WITH queues (server, principal) AS (VALUES {tuples(size, 2)})
        SELECT json_group_array(json_array(server, principal, max(
            coalesce((SELECT turn FROM turns WHERE turns.server = queues.server), 0),
            coalesce((
                SELECT turn FROM task_rows
                WHERE phase = 'ready' AND lease = 0 AND turn IS NOT NULL
                    AND principal = queues.principal AND task_rows.server = queues.server
                ORDER BY turn DESC LIMIT 1
            ), 0)
        ))) FROM queues WHERE server IS NOT NULL
    """  # nosec B608 # placeholders only


@cache
def insert_tasks(size: int) -> str:
    """Return the statement that inserts tasks."""
    return f"""
        INSERT INTO task_rows (
            key, id, principal, tool, phase, version, created, updated, expires, token, worker, lease, server,
            turn, sharer, bytes, tallied, format, head
        ) SELECT * FROM (VALUES {tuples(size, 19)}) WHERE column1 IS NOT NULL
    """  # nosec B608 # placeholders only


@cache
def insert_entries(size: int) -> str:
    """Return the statement that inserts entries."""
    return f"""
        INSERT INTO entries (task, number, kind, at, format, data)
        SELECT * FROM (VALUES {tuples(size, 6)}) WHERE column1 IS NOT NULL
    """  # nosec B608 # placeholders only


@cache
def update_tasks(size: int) -> str:
    """Return the statement that updates tasks. A NULL head leaves the head unchanged."""
    return f"""
        WITH fresh (key, phase, version, updated, expires, token, worker, lease, turn, bytes, tallied, head)
            AS (VALUES {tuples(size, 12)})
        UPDATE task_rows SET phase = fresh.phase, version = fresh.version, updated = fresh.updated,
            expires = fresh.expires, token = fresh.token, worker = fresh.worker, lease = fresh.lease,
            turn = fresh.turn, bytes = fresh.bytes, tallied = fresh.tallied,
            head = coalesce(fresh.head, task_rows.head)
        FROM fresh WHERE task_rows.key = fresh.key
    """  # nosec B608 # placeholders only


@cache
def add_to_usages(size: int) -> str:
    """Return the statement that adds to the bytes of sharers."""
    return f"""
        INSERT INTO usages SELECT * FROM (VALUES {tuples(size, 3)}) WHERE column1 IS NOT NULL
        ON CONFLICT (server, sharer) DO UPDATE SET bytes = bytes + excluded.bytes
    """  # nosec B608 # placeholders only


@cache
def update_waits(size: int) -> str:
    """Return the statement that sets when tasks wake, and their tags."""
    return f"""
        WITH fresh (key, wakes, tags) AS (VALUES {tuples(size, 3)})
        UPDATE task_rows SET wakes = fresh.wakes, tags = fresh.tags
        FROM fresh WHERE task_rows.key = fresh.key
    """  # nosec B608 # placeholders only


@cache
def insert_tags(size: int) -> str:
    """Return the statement that inserts the tags of tasks."""
    return f"""
        INSERT INTO task_tags (tag, created, task)
        SELECT * FROM (VALUES {tuples(size, 3)}) WHERE column1 IS NOT NULL
    """  # nosec B608 # placeholders only


@cache
def delete_tags(size: int) -> str:
    """Return the statement that deletes the tags of tasks, by key."""
    return f"DELETE FROM task_tags WHERE task IN ({_placeholders(size)})"  # nosec B608 # placeholders only


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


def tuples(size: int, width: int) -> str:
    """Return the placeholders of rows."""
    return ", ".join([f"({_placeholders(width)})"] * size)
