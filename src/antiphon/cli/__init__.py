"""The `antiphon` command line.

`commands` and `options` declare the commands; `run/`, `call/`, `doctor/` and `tasks/` hold the larger ones.
The command line uses the public API of `Server` and `Client` and adds no behaviour of the protocol. A
command imports the modules that it needs when it runs, so that every command starts quickly.
"""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """Run the command that the process was started with."""
    import sys

    from antiphon.cli.commands import app

    # A character that the terminal cannot show is printed as an escape, and does not end the command.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    app(prog_name="antiphon")
