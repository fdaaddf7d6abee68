"""The command `antiphon dev` and its options."""

# No `from __future__ import annotations`: typer would evaluate the annotations of all commands at each start.
from typing import Annotated

import typer

from antiphon.cli.exit_codes import handle_errors
from antiphon.cli.options import (
    LogLevelOption,
    NoOpenOption,
    PathOption,
    PortOption,
    SandboxPortOption,
    TaskToolsOption,
)

__all__ = ["dev"]


def dev(
    target: Annotated[
        str,
        typer.Argument(
            metavar="FILE[:NAME]",
            help="A Python file or dotted module. NAME is the variable that holds the server: "
            "a Server, or one of mcp or fastmcp.",
        ),
    ],
    host: Annotated[str, typer.Option(help="Listen on this loopback address.")] = "127.0.0.1",
    port: PortOption = 8000,
    path: PathOption = "/mcp",
    console_port: Annotated[
        int, typer.Option(min=0, max=65535, help="Serve the console on this port. 0 picks a free port.")
    ] = 8900,
    sandbox_port: SandboxPortOption = 0,
    no_open: NoOpenOption = False,
    store: Annotated[
        str | None,
        typer.Option(
            "--store",
            metavar="URL",
            help="Keep tasks in this store. Default: the Server's own store, else ANTIPHON_STORE, else "
            "the folder .antiphon beside the file.",
        ),
    ] = None,
    task: TaskToolsOption = None,
    log_level: LogLevelOption = "info",
) -> None:
    """Serve a Python file, load it again when it changes, and show it in the console.

    Tasks and sessions survive. Runs until Ctrl-C.
    """
    from antiphon.cli.dev.serve import serve_dev
    from antiphon.cli.run.settings import Settings

    if not path.startswith("/"):
        raise typer.BadParameter("The path must start with a slash.", param_hint="--path")
    settings = Settings(
        target, path=path, log_level=log_level, store=store, tasks=tuple(task or ()), access_log=False
    )
    with handle_errors():
        serve_dev(
            settings,
            host=host,
            port=port,
            console_port=console_port,
            sandbox_port=sandbox_port,
            opens_browser=not no_open,
        )
