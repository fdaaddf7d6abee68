"""The SQL statements that change and read tallies. Opens no connection."""

from __future__ import annotations

from functools import cache

from antiphon.store.sqlite.statements import tuples

__all__ = [
    "COUNT_OF_PRINCIPAL",
    "DELETE_OLD_HOURS",
    "EXPIRED_TALLIES",
    "HOURLY_TALLIES",
    "LEASES",
    "TALLIES",
    "add_to_tallies",
]

COUNT_OF_PRINCIPAL = "SELECT count(*) FROM (SELECT 1 FROM task_rows WHERE principal = ? LIMIT ?)"

TALLIES = """
    SELECT json_group_array(json_array(server, tool, status, tasks)) FROM tallies
    WHERE hour = -1 AND (:servers IS NULL OR server IN (SELECT value FROM json_each(:servers)))
"""

EXPIRED_TALLIES = """
    SELECT json_group_array(json_array(server, tool, status, tasks)) FROM (
        SELECT server, tool, status, count(*) AS tasks FROM task_statuses WHERE key IN (
            SELECT key FROM task_rows INDEXED BY tasks_expiring
            WHERE expires IS NOT NULL AND expires <= :now AND phase = 'ended'
                AND (:servers IS NULL OR server IN (SELECT value FROM json_each(:servers)))
            LIMIT :limit
        ) GROUP BY server, tool, status
    )
"""
"""The tasks that have expired and are not deleted yet, which lists leave out."""

HOURLY_TALLIES = """
    SELECT json_group_array(json_array(hour, server, tool, status, tasks)) FROM tallies
    WHERE hour >= :since AND hour <> -1
        AND (:servers IS NULL OR server IN (SELECT value FROM json_each(:servers)))
"""

DELETE_OLD_HOURS = "DELETE FROM tallies WHERE hour > -1 AND hour < ?"

LEASES = """
    SELECT json_group_array(json_array(worker, server, tool, tasks, until)) FROM (
        SELECT worker, server, tool, count(*) AS tasks, min(lease) AS until
        FROM task_rows INDEXED BY tasks_leased WHERE lease > 0 AND worker IS NOT NULL
        GROUP BY worker, server, tool
    )
"""


@cache
def add_to_tallies(size: int) -> str:
    """Return the statement that adds to the numbers of tasks."""
    return f"""
        INSERT INTO tallies SELECT * FROM (VALUES {tuples(size, 5)}) WHERE column1 IS NOT NULL
        ON CONFLICT (hour, server, tool, status) DO UPDATE SET tasks = tasks + excluded.tasks
    """  # nosec B608 # placeholders only
