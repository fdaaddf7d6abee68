"""The `antiphon` command line.

`commands` and `options` declare the commands; `run/`, `call/`, `doctor/` and `tasks/` hold the larger ones.
The command line uses the public API of `Server` and `Client` and adds no behaviour of the protocol. A
command imports the modules that it needs when it runs, so that every command starts quickly.
"""

from __future__ import annotations

import os
import sys

__all__ = ["escape_unencodable", "main"]


def main() -> None:
    """Run the command that the process was started with, or complete a line for a shell."""
    escape_unencodable()
    if "_ANTIPHON_LINE" in os.environ:  # a script of `shell_completion` asks
        from antiphon.cli.shell_completion.main import complete_line

        complete_line()
    if {"--install-completion", "--show-completion"} & set(sys.argv[1:2]):
        from antiphon.cli.shell_completion.scripts import use_these_scripts

        use_these_scripts()
    from antiphon.cli.commands import app

    app(prog_name="antiphon")


def escape_unencodable() -> None:
    """Print a character that the terminal cannot show as an escape, so that it does not end the command."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
