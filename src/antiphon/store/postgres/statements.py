"""Reads the SQL statements in `sql/`, one file each, and converts values and rows for them.

This module opens no connection.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from antiphon.store import rules, unavailable
from antiphon.store.contract import Record
from antiphon.store.rules import MAX_INT64

__all__ = [
    "FORMAT",
    "check_format",
    "columns",
    "count_sql",
    "escape_tags",
    "escape_text",
    "escape_texts",
    "index_key",
    "list_sql",
    "record_of",
    "sql",
    "task_digest",
    "to_bigint",
    "unescape_text",
]

FORMAT = 1
"""The format of heads and data that this version writes: 1 is JSON text."""

_MAX_INDEXED_BYTES = 500
"""The longest text in an index; `schema/6.sql` has the same number. PostgreSQL allows about 2700 bytes."""
_NO_NUMBER = -1
"""A version and a token that no task has."""


@cache
def sql(name: str) -> str:
    """Return the statement in the file of this name."""
    return (Path(__file__).parent / "sql" / f"{name}.sql").read_text(encoding="utf-8")


@cache
def list_sql(name: str, *, oldest_first: bool) -> str:
    """Return the statement of a list. The files have the statements of the lists that are newest first."""
    statement = sql(name)
    if not oldest_first:
        return statement
    statement = statement.replace("(created, key) < (", "(created, key) > (")
    statement = statement.replace("created >= coalesce(", "created <= coalesce(")
    statement = statement.replace("min(place.created)", "max(place.created)")
    return statement.replace("created >= $10", "created < $10").replace(" DESC", "")


@cache
def count_sql(name: str) -> str:
    """Return the statement that counts the tasks of a list."""
    return f"SELECT count(*) FROM ({sql(name)}) AS listed"  # nosec B608 # a statement of ours


def escape_text(text: str) -> str:
    """Escape the character 0, which PostgreSQL cannot store; raises `UnicodeEncodeError`."""
    text.encode()
    if "\0" in text or "\1" in text:
        return text.replace("\1", "\1\1").replace("\0", "\1\2")
    return text


def escape_texts(texts: Iterable[str] | None) -> list[str] | None:
    """Escape several texts; `None` stays `None`."""
    return None if texts is None else list(map(escape_text, texts))


def unescape_text(text: str) -> str:
    """Return the text that was given to `escape_text`."""
    if "\1" in text:
        return "\1".join(part.replace("\1\2", "\0") for part in text.split("\1\1"))
    return text


def index_key(text: str) -> str:
    """Escape a text for an index: a long text is replaced by its digest, as the trigger of tags does."""
    escaped = escape_text(text)
    encoded = escaped.encode()
    if len(encoded) <= _MAX_INDEXED_BYTES:
        return escaped
    return f"\1#{hashlib.sha256(encoded).hexdigest()}"


def escape_tags(tags: str | None) -> str | None:
    """Escape the texts in a JSON list."""
    return None if tags is None else rules.encode_json(escape_texts(rules.decode_tags(tags)))


def columns(rows: Any, width: int) -> list[list[Any]]:
    """Turn rows of `width` values into the arrays that a statement takes, one for each column."""
    found = [list(column) for column in zip(*rows, strict=True)]
    return found or [[] for _ in range(width)]


def to_bigint(number: int) -> int:
    """Return the number, or -1 if it does not fit into a `bigint`. No task has the version or token -1."""
    return number if _NO_NUMBER <= number <= MAX_INT64 else _NO_NUMBER


def task_digest(id: str) -> str:
    """Return the short digest of an escaped id that notifications carry; `write.sql` computes the same."""
    return hashlib.sha256(id.encode()).hexdigest()[:16]


def check_format(format: int) -> None:
    """Raise `StoreUnavailable` if a newer version wrote a row."""
    if format > FORMAT:
        raise unavailable.newer_format("in PostgreSQL")


def record_of(row: Mapping[str, Any]) -> Record:
    """Return the record in a row; raises `StoreUnavailable` if a newer version wrote it.

    A statement that finds no waiting tasks leaves out the columns of their waits.
    """
    check_format(row["format"])
    return Record(
        id=unescape_text(row["id"]),
        principal=unescape_text(row["principal"]),
        tool=unescape_text(row["tool"]),
        phase=row["phase"],
        version=row["version"],
        created=row["created"],
        updated=row["updated"],
        expires=row["expires"],
        head=msgspec.json.decode(row["head"]),
        server=unescape_text(row["server"]),
        wakes=row.get("wakes"),
        tags=tuple(map(unescape_text, rules.decode_tags(row.get("tags")))),
        sharer=unescape_text(row.get("sharer") or ""),
    )
