"""The commands of `antiphon store` and their options."""

# No `from __future__ import annotations`: typer would evaluate the annotations of all commands at each start.
from pathlib import Path
from typing import Annotated

import typer

from antiphon.cli.examples import epilog
from antiphon.cli.exit_codes import handle_errors
from antiphon.cli.options import Command, Group, JsonOption

__all__ = ["app"]

app = typer.Typer(
    cls=Group,
    help="Maintain the store of a server: make a backup, or give free space back.",
    short_help="Back up or compact a store.",
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
