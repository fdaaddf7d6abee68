"""Reads the numbered SQL scripts of a database schema. Does not know what is in them."""

from __future__ import annotations

from pathlib import Path

__all__ = ["read_scripts"]


def read_scripts(folder: Path) -> list[str]:
    """Return the scripts `1.sql`, `2.sql`, … of a folder, in the order of their numbers."""
    paths = sorted(folder.glob("*.sql"), key=lambda path: int(path.stem))
    return [path.read_text(encoding="utf-8") for path in paths]
