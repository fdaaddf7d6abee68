"""The `antiphon` command: it runs servers and workers, calls tools, examines servers and manages tasks.

Each command imports what it needs when it runs, so that every command starts quickly. This package uses the
public members of `Server`, `Client` and the stores, and must not reach into their inside.
"""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """Run the command that the process was started with."""
    from antiphon.cli.commands import app

    app(prog_name="antiphon")
