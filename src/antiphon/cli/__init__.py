"""The `antiphon` command. What a command needs is imported when it is run, so that each starts quickly."""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """Run the command that the process was started with."""
    from antiphon.cli.commands import app

    app(prog_name="antiphon")
