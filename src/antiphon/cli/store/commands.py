"""The commands of `antiphon store` and their options."""

# No `from __future__ import annotations`: typer would evaluate the annotations of all commands at each start.
from pathlib import Path
from typing import Annotated

import typer

from antiphon.cli.examples import epilog
from antiphon.cli.exit_codes import handle_errors
from antiphon.cli.options import Command, Group, JsonOption
from antiphon.cli.tasks.filters import (
    OutcomeOption,
    PrincipalOption,
    ToolOption,
    age_milliseconds,
    task_filter,
)

__all__ = ["app"]

app = typer.Typer(
    cls=Group,
    help="Maintain the store of a server: make a backup, check it, delete old tasks, give free space back.",
    short_help="Back up, check, prune or compact a store.",
    epilog=epilog("store"),
    no_args_is_help=True,
    rich_markup_mode=None,
)

UrlArgument = Annotated[
    str, typer.Argument(metavar="STORE", help="The URL of a store, such as sqlite:///tasks.db.")
]


@app.command(cls=Command, epilog=epilog("store backup"))
def backup(
    url: UrlArgument,
    target: Annotated[Path, typer.Argument(metavar="FILE", help="The new file for the backup.")],
    json: JsonOption = False,
) -> None:
    """Copy an SQLite store to a new file, while servers use it.

    The copy has the state of one moment. A server can use the file as it is.
    """
    from antiphon.cli.store import actions

    with handle_errors():
        actions.back_up(url, target, as_json=json)


@app.command(cls=Command, epilog=epilog("store compact"))
def compact(url: UrlArgument, json: JsonOption = False) -> None:
    """Rewrite the file of an SQLite store without free space.

    Servers can read meanwhile, but not write, so use this when they have little to do. Files that this
    version creates give free space back by themselves.
    """
    from antiphon.cli.store import actions

    with handle_errors():
        actions.compact(url, as_json=json)


@app.command(cls=Command, epilog=epilog("store prune"))
def prune(
    url: UrlArgument,
    ended_before: Annotated[
        str,
        typer.Option(
            "--ended-before", metavar="AGE", help="Delete tasks that ended longer ago: 2h, 30d, 4w."
        ),
    ],
    outcome: OutcomeOption = None,
    tool: ToolOption = None,
    principal: PrincipalOption = None,
    json: JsonOption = False,
) -> None:
    """Delete ended tasks, with their logs and results, before their lifetime is over.

    Tasks that have not ended are never deleted. An SQLite file becomes smaller afterwards.
    """
    from antiphon.cli.store import actions

    with handle_errors():
        age = age_milliseconds(ended_before, "--ended-before")
        actions.prune_store(url, age, task_filter(outcome=outcome, tool=tool), principal, as_json=json)


@app.command("check", cls=Command, epilog=epilog("store check"))
def check_(url: UrlArgument, json: JsonOption = False) -> None:
    """Read a whole store, and name everything that is damaged or contradictory.

    Computes each task from its log and compares the two. Changes nothing, and shows the state of one moment
    while servers use the store. The exit code is 1 if there is a problem.
    """
    from antiphon.cli.store import check

    with handle_errors():
        raise typer.Exit(check.check(url, as_json=json))
