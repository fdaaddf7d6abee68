"""The command `antiphon new` and its options."""

# No `from __future__ import annotations`: typer would evaluate the annotations of all commands at each start.
from typing import Annotated

import typer

from antiphon.cli.exit_codes import handle_errors

__all__ = ["new"]


def new(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The name of the project, of its folder and of its server.")
    ],
    here: Annotated[
        bool, typer.Option("--here", help="Create the files in this folder, and not in a new one.")
    ] = False,
) -> None:
    """Create a project: a server with a tool that asks, streams and runs as a task, and its test.

    Never overwrites a file.
    """
    from pathlib import Path

    from antiphon.cli.new.project import create_project

    with handle_errors():
        create_project(name, Path() if here else Path(name))
