"""The statements, each in a file of its own in `sql/`, and how texts and rows go in and out of them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from antiphon.errors import StoreUnavailable
from antiphon.store.contract import Record

__all__ = ["FORMAT", "keep", "kept", "known", "mark_of", "record_of", "sql", "whole"]

FORMAT = 1
"""How this version writes heads and data: as JSON text."""

_LARGEST = 2**63 - 1


@cache
def sql(name: str) -> str:
    """A statement."""
    return (Path(__file__).parent / "sql" / f"{name}.sql").read_text(encoding="utf-8")


def keep(text: str) -> str:
    """A text as PostgreSQL keeps it, which has no room for the character 0; raises `UnicodeEncodeError`."""
    text.encode()
    if "\0" in text or "\1" in text:
        return text.replace("\1", "\1\1").replace("\0", "\1\2")
    return text


def kept(text: str) -> str:
    """A text as it was given to `keep`."""
    if "\1" in text:
        return "\1".join(part.replace("\1\2", "\0") for part in text.split("\1\1"))
    return text


def whole(number: int) -> int:
    """A number, or one that no task has instead of one that PostgreSQL has no room for."""
    return number if -1 <= number <= _LARGEST else -1


def mark_of(id: str) -> str:
    """A short name of a task, by which notices tell of it; `write.sql` makes the same."""
    return hashlib.sha256(id.encode()).hexdigest()[:16]


def known(format: int) -> None:
    """See that this version knows how something is written; raises `StoreUnavailable`."""
    if format > FORMAT:
        raise StoreUnavailable("The store holds what a newer Antiphon has written: install that.")


def record_of(row: Mapping[str, Any]) -> Record:
    """The record in a row."""
    known(row["format"])
    return Record(
        id=kept(row["id"]),
        principal=kept(row["principal"]),
        tool=kept(row["tool"]),
        phase=row["phase"],
        version=row["version"],
        created=row["created"],
        updated=row["updated"],
        expires=row["expires"],
        head=msgspec.json.decode(row["head"]),
    )
