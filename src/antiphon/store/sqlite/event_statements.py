"""The SQL statements for events that `batch.py` and `reader.py` execute, in the form of `statements.py`."""

from __future__ import annotations

__all__ = [
    "DELETE_EXPIRED_EVENT",
    "DELETE_OLD_EVENTS",
    "HAS_EVENT_NUMBER",
    "INSERT_EVENT",
    "LAST_EVENT_NUMBER",
    "LIST_EVENTS",
    "READ_EVENTS",
]

INSERT_EVENT = """
    INSERT INTO events (number, topic, id, at, until, format, data) VALUES (?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (topic, id) DO NOTHING
"""

LAST_EVENT_NUMBER = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'events'"
"""The largest number that was ever used, also by an event that was deleted."""

HAS_EVENT_NUMBER = "SELECT EXISTS (SELECT 1 FROM events WHERE number = ?)"

DELETE_EXPIRED_EVENT = "DELETE FROM events WHERE topic = ? AND id = ? AND until <= ?"

DELETE_OLD_EVENTS = """
    DELETE FROM events WHERE number IN (
        SELECT number FROM events WHERE until <= :now ORDER BY until LIMIT :limit
    )
"""

READ_EVENTS = """
    SELECT json_group_array(json_array(number, id, at, data)), max(format) FROM (
        SELECT * FROM events WHERE topic = :topic AND number > :after AND until > :now
        ORDER BY number LIMIT :limit
    )
"""

LIST_EVENTS = """
    SELECT json_group_array(json_array(topic, until, number, id, at, data)), max(format) FROM (
        SELECT * FROM events WHERE (topic, number) > (:topic, :number) AND until > :now
        ORDER BY topic, number LIMIT :limit
    )
"""
