"""The command `antiphon gateway` and its options."""

# No `from __future__ import annotations`: typer would evaluate the annotations of all commands at each start.
from typing import Annotated

import typer

from antiphon.cli.exit_codes import CommandError, handle_errors
from antiphon.cli.options import (
    AccessLogOption,
    EnvOption,
    HeadersOption,
    HostsOption,
    OriginsOption,
    OtelOption,
    PathOption,
    PortOption,
    ProtocolOption,
    StdioOption,
    WorkersOption,
    split_commas,
)
from antiphon.cli.run import LogLevel

__all__ = ["gateway"]


def gateway(
    targets: Annotated[
        list[str] | None,
        typer.Argument(metavar="[[NAME=]TARGET]...", help="URLs or Python files of servers to offer."),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(metavar="FILE", help='Offer the servers of this file: {"mcpServers": {NAME: {…}}}.'),
    ] = None,
    host: Annotated[str, typer.Option(envvar="ANTIPHON_HOST", help="Listen on this address.")] = "127.0.0.1",
    port: PortOption = 8000,
    path: PathOption = "/mcp",
    stdio: StdioOption = False,
    workers: WorkersOption = 1,
    hosts: HostsOption = None,
    origins: OriginsOption = None,
    task: Annotated[
        list[str] | None,
        typer.Option(
            "--task", metavar="TOOL", help="Let callers run this tool as a task; * for all. Repeatable."
        ),
    ] = None,
    artifacts_over: Annotated[
        int | None,
        typer.Option(min=0, metavar="BYTES", help="Store larger results as artifacts, which callers read."),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(min=0.001, metavar="SECONDS", help="Wait this long for the result of a tool."),
    ] = None,
    name: Annotated[str, typer.Option(help="The name of the gateway, as its clients see it.")] = "gateway",
    header: HeadersOption = None,
    env: EnvOption = None,
    protocol: ProtocolOption = None,
    allow_anonymous: Annotated[
        bool,
        typer.Option(
            "--allow-anonymous",
            help="Offer files and commands that authenticate their callers, or need scopes, to everybody.",
        ),
    ] = False,
    store: Annotated[
        str | None,
        typer.Option("--store", metavar="URL", help="Keep tasks in this store, such as sqlite:///tasks.db."),
    ] = None,
    log_level: Annotated[
        LogLevel, typer.Option(envvar="ANTIPHON_LOG_LEVEL", help="Log messages of this level and above.")
    ] = "info",
    access_log: AccessLogOption = False,
    otel: OtelOption = False,
) -> None:
    """Serve other MCP servers at one endpoint, in every protocol version.

    A single server keeps the names of its tools. The tools of several servers get the names of their servers
    as prefixes.
    """
    from antiphon.cli.gateway.settings import GatewaySettings
    from antiphon.cli.run import serve
    from antiphon.cli.run.settings import Settings

    if not path.startswith("/"):
        raise typer.BadParameter("The path must start with a slash.", param_hint="--path")
    with handle_errors():
        if workers > 1 and store is None:
            raise CommandError(
                "The workers of a gateway need a store that they share, because a question may be answered "
                "through another worker. Name one: --store sqlite:///gateway.db."
            )
        settings = Settings(
            "",
            path=path,
            hosts=split_commas(hosts),
            origins=split_commas(origins),
            log_level=log_level,
            access_log=access_log,
            store=store,
            otel=otel,
            gateway=GatewaySettings(
                targets=tuple(targets or ()),
                config=config,
                name=name,
                tasks=tuple(task or ()),
                artifacts_over=artifacts_over,
                timeout=timeout,
                env=tuple(env or ()),
                headers=tuple(header or ()),
                protocol=protocol,
                allow_anonymous=allow_anonymous,
            ),
        )
        if stdio:
            serve.serve_stdio(settings)
        else:
            serve.serve_http(settings, host=host, port=port, workers=workers)
