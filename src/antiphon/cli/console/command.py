"""The command `antiphon console` and its options."""

# No `from __future__ import annotations`: typer would evaluate the annotations of all commands at each start.
from typing import Annotated

import typer

from antiphon.cli.exit_codes import handle_errors
from antiphon.cli.options import (
    EnvOption,
    HeadersOption,
    HostsOption,
    LogLevelOption,
    NoOpenOption,
    SandboxPortOption,
    TokenOption,
    split_commas,
)

__all__ = ["console"]


def console(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TARGET]...",
            help="URLs or Python files of servers to look at. Or write a command at the end.",
        ),
    ] = None,
    store: Annotated[
        list[str] | None,
        typer.Option("--store", metavar="URL", help="Look at the tasks of this store. Repeatable."),
    ] = None,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Show everything, and change nothing.")
    ] = False,
    host: Annotated[str, typer.Option(help="Listen on this loopback address.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Listen on this port. 0 picks a free port.")
    ] = 8900,
    sandbox_port: SandboxPortOption = 0,
    no_open: NoOpenOption = False,
    hosts: HostsOption = None,
    header: HeadersOption = None,
    token: TokenOption = None,
    env: EnvOption = None,
    log_level: LogLevelOption = "warning",
) -> None:
    """Answer questions, operate tasks and try servers in the browser.

    Prints an address that signs one browser in. Runs until Ctrl-C.
    """
    from antiphon.cli.console.serve import ConsoleSettings, serve_console

    with handle_errors():
        serve_console(
            ConsoleSettings(
                targets=tuple(targets or ()),
                stores=tuple(store or ()),
                read_only=read_only,
                host=host,
                port=port,
                sandbox_port=sandbox_port,
                opens_browser=not no_open,
                hosts=split_commas(hosts),
                headers=tuple(header or ()),
                token=token,
                env=tuple(env or ()),
                log_level=log_level,
            )
        )
