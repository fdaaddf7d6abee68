"""The commands `antiphon install` and `antiphon mcp-json`, and their options."""

# No `from __future__ import annotations`: typer would evaluate the annotations of all commands at each start.
from typing import Annotated

import typer

from antiphon.cli.exit_codes import CommandError, handle_errors
from antiphon.cli.hosts import HostName
from antiphon.cli.options import HeadersOption

__all__ = ["install", "mcp_json"]

ServerArgument = Annotated[
    str,
    typer.Argument(metavar="TARGET", help="A Python FILE[:NAME], or a URL. Or write a command at the end."),
]
NameOption = Annotated[
    str | None, typer.Option("--name", help="The name of the server in the host. Default: its own name.")
]
VariablesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--env", metavar="NAME[=VALUE]", help="Pass this variable to the server's process. Repeatable."
    ),
]
EnvFileOption = Annotated[
    str | None,
    typer.Option("--env-file", metavar="FILE", help="Pass the variables of this file, such as .env."),
]


def install(
    target: ServerArgument,
    host: Annotated[HostName, typer.Option("--host", help="The program that is to use the server.")],
    name: NameOption = None,
    env: VariablesOption = None,
    env_file: EnvFileOption = None,
    header: HeadersOption = None,
    project: Annotated[
        bool, typer.Option("--project", help="Install it for the project in this folder only.")
    ] = False,
    config: Annotated[
        str | None, typer.Option("--config", metavar="FILE", help="Write this file, in the host's format.")
    ] = None,
    print_only: Annotated[
        bool, typer.Option("--print", help="Print the configuration, and write nothing.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a server of the same name.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask whether to write the change.")] = False,
) -> None:
    """Install a server into Claude Desktop, Claude Code, Cursor or VS Code.

    Shows the change of the host's configuration file, asks whether to make it, and keeps a backup.
    """
    from pathlib import Path

    from antiphon.cli.hosts.hosted_server import describe_server
    from antiphon.cli.hosts.hosts import HOSTS
    from antiphon.cli.hosts.install import install_server, print_entry

    with handle_errors():
        if project and config is not None:
            raise CommandError("--project and --config both name the file. Use one of them.")
        chosen = HOSTS[host]
        path = chosen.file(in_project=project) if config is None else Path(config)
        server = describe_server(target, name=name, env=env, env_file=env_file, headers=header)
        if print_only:
            print_entry(chosen, server)
            return
        if not project and config is None and not path.parent.is_dir():
            raise CommandError(
                f"There is no folder {path.parent}. Is {chosen.title} installed? Start it once, or use "
                "--print."
            )
        install_server(chosen, server, path, force=force, yes=yes)


def mcp_json(
    target: ServerArgument,
    name: NameOption = None,
    env: VariablesOption = None,
    env_file: EnvFileOption = None,
    header: HeadersOption = None,
) -> None:
    """Print the JSON with which most MCP hosts start or reach a server.

    The values of variables and headers are printed too.
    """
    from antiphon.cli.hosts.hosted_server import describe_server
    from antiphon.cli.hosts.install import print_portable

    with handle_errors():
        print_portable(describe_server(target, name=name, env=env, env_file=env_file, headers=header))
