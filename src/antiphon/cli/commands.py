"""The commands and their options. What each of them does is in the module that it imports."""

from __future__ import annotations

from typing import Annotated

import typer

from antiphon.cli.examples import epilog
from antiphon.cli.exit_codes import CommandError
from antiphon.cli.options import (
    AnswerFile,
    Answers,
    Headers,
    Json,
    NoInput,
    Otherwises,
    Timeout,
    Token,
    ending,
    required,
)
from antiphon.cli.run.settings import Level
from antiphon.cli.tasks import commands as tasks

__all__ = ["app"]

app = typer.Typer(
    help="Antiphon: serve and call tools over the Model Context Protocol.",
    epilog=epilog("antiphon"),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(tasks.app, name="tasks")

Where = Annotated[
    str | None,
    typer.Argument(metavar="[TARGET]", envvar="ANTIPHON_URL", help="A URL, or a Python FILE[:name]."),
]
Kept = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        help="Where tasks are kept, sqlite:///tasks.db for example; else ANTIPHON_STORE says, or the file.",
    ),
]
LogLevel = Annotated[Level, typer.Option(envvar="ANTIPHON_LOG_LEVEL", help="What to log.")]


@app.callback(invoke_without_command=True, no_args_is_help=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        from antiphon import __version__

        typer.echo(f"antiphon {__version__}")
        raise typer.Exit


@app.command(epilog=epilog("run"))
def run(
    target: Annotated[str, typer.Argument(metavar="FILE[:NAME]", help="A Python file or module.")],
    host: Annotated[
        str, typer.Option(envvar="ANTIPHON_HOST", help="The address to listen at.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(envvar="ANTIPHON_PORT", min=0, max=65535, help="The port; 0 for any that is free.")
    ] = 8000,
    path: Annotated[str, typer.Option(help="Where the MCP endpoint is.")] = "/mcp",
    stdio: Annotated[
        bool, typer.Option("--stdio", help="Serve one client on the standard streams instead of HTTP.")
    ] = False,
    workers: Annotated[
        int, typer.Option(envvar="ANTIPHON_WORKERS", min=1, help="Processes to serve with.")
    ] = 1,
    hosts: Annotated[
        str | None,
        typer.Option(envvar="ANTIPHON_HOSTS", metavar="A,B", help="Host headers to trust; * for all."),
    ] = None,
    origins: Annotated[
        str | None,
        typer.Option(envvar="ANTIPHON_ORIGINS", metavar="A,B", help="Origin headers to trust; * for all."),
    ] = None,
    store: Kept = None,
    no_worker: Annotated[
        bool, typer.Option("--no-worker", help="Only serve: leave tasks to those who run `antiphon worker`.")
    ] = False,
    log_level: LogLevel = "info",
    access_log: Annotated[
        bool, typer.Option("--access-log", help="Log every request, and how every call ended.")
    ] = False,
) -> None:
    """Serve the Server in a Python file, until Ctrl-C or SIGTERM."""
    from antiphon.cli.run import serve
    from antiphon.cli.run.settings import Settings, words

    if not path.startswith("/"):
        raise typer.BadParameter("A path begins with a slash.", param_hint="--path")
    settings = Settings(
        target, path, words(hosts), words(origins), log_level, access_log, store, not no_worker
    )
    with ending():
        if stdio:
            serve.over_stdio(settings)
        else:
            serve.over_http(settings, host=host, port=port, workers=workers)


@app.command(epilog=epilog("worker"))
def worker(
    target: Annotated[str, typer.Argument(metavar="FILE[:NAME]", help="A Python file or module.")],
    store: Kept = None,
    concurrency: Annotated[
        int | None,
        typer.Option(
            envvar="ANTIPHON_CONCURRENCY",
            min=1,
            help="Tasks to run at once; else what the file says, or 100.",
        ),
    ] = None,
    tools: Annotated[
        str | None, typer.Option(metavar="A,B", help="The tools whose tasks to run; all, unless given.")
    ] = None,
    host: Annotated[
        str, typer.Option(envvar="ANTIPHON_HOST", help="The address of the probes, with --port.")
    ] = "127.0.0.1",
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Answer /healthz, /readyz and /metrics at this port."),
    ] = None,
    log_level: LogLevel = "info",
) -> None:
    """Run the tasks of the Server in a Python file, without serving anybody, until Ctrl-C or SIGTERM."""
    from antiphon.cli.run.settings import Settings, words
    from antiphon.cli.run.worker import work

    settings = Settings(target, log_level=log_level, store=store)
    with ending():
        work(settings, concurrency=concurrency, tools=words(tools), host=host, port=port)


@app.command(epilog=epilog("call"))
def call(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[TARGET] TOOL [KEY=VALUE]...",
            help="TARGET is a URL or a Python FILE[:name]; it can be left out where ANTIPHON_URL is set. "
            "KEY=VALUE is read as the tool's schema says; KEY:=JSON as JSON; KEY=@FILE from a file.",
            show_default=False,
        ),
    ],
    url: Annotated[str | None, typer.Option("--url", envvar="ANTIPHON_URL", hidden=True)] = None,
    args: Annotated[str | None, typer.Option(metavar="JSON", help="All arguments, as a JSON object.")] = None,
    answer: Answers = None,
    answers: AnswerFile = None,
    otherwise: Otherwises = None,
    no_input: NoInput = False,
    task: Annotated[
        bool, typer.Option("--task", help="Ask for a promise: print the task's id at once, and follow it.")
    ] = False,
    stream: Annotated[
        bool, typer.Option("--stream", help="Print what the tool gives piece by piece, as it comes.")
    ] = False,
    json: Json = False,
    header: Headers = None,
    token: Token = None,
    timeout: Timeout = 60.0,
) -> None:
    """Call a tool and print what it gives. What it asks is asked at the terminal."""
    from antiphon.cli.call.command import call_tool, stream_tool
    from antiphon.cli.call.questions import Asker, Given
    from antiphon.cli.targets import Target, split_words

    with ending():
        if stream and task:
            raise CommandError("--stream and --task do not go together: one prints, the other waits.")
        place, tool, pairs = split_words(words, url)
        target = Target.of(place, headers=header or (), token=token, timeout=timeout)
        asker = Asker(Given(answer or (), answers), otherwise=otherwise, no_input=no_input)
        if stream:
            raise typer.Exit(stream_tool(target, tool, pairs, args, asker, as_json=json))
        raise typer.Exit(call_tool(target, tool, pairs, args, asker, as_json=json, as_task=task))


@app.command(epilog=epilog("tools"))
def tools(
    target: Where = None,
    json: Json = False,
    header: Headers = None,
    token: Token = None,
    timeout: Timeout = 60.0,
) -> None:
    """List the tools of a server: their names, what they take and what they are for."""
    from antiphon.cli.targets import Target
    from antiphon.cli.tools import list_tools

    with ending():
        place = Target.of(required(target), headers=header or (), token=token, timeout=timeout)
        list_tools(place, as_json=json)


@app.command(epilog=epilog("doctor"))
def doctor(
    target: Where = None,
    json: Json = False,
    header: Headers = None,
    token: Token = None,
    timeout: Timeout = 10.0,
) -> None:
    """Look at a server, anybody's: what it speaks, offers and lacks, and how quickly it answers."""
    from antiphon.cli.doctor.checks import examine_server
    from antiphon.cli.targets import Target

    with ending():
        place = Target.of(required(target), headers=header or (), token=token, timeout=timeout)
        raise typer.Exit(examine_server(place, as_json=json))
