"""The commands and their options. Each command imports the module that does the work when it runs."""

# No `from __future__ import annotations`: typer would evaluate the annotations of all commands at each start.
from typing import Annotated

import typer

from antiphon.cli.examples import epilog
from antiphon.cli.exit_codes import CommandError, handle_errors
from antiphon.cli.options import (
    AnswerFileOption,
    AnswersOption,
    Command,
    DefaultAnswerOption,
    EnvOption,
    Group,
    HeadersOption,
    JsonOption,
    NoInputOption,
    ProtocolOption,
    TimeoutOption,
    TokenOption,
    require_target,
    split_commas,
)
from antiphon.cli.run import LogLevel
from antiphon.cli.store import commands as store_commands
from antiphon.cli.tasks import commands as tasks

__all__ = ["app"]

app = typer.Typer(
    cls=Group,
    help="Serve, call and inspect Model Context Protocol (MCP) servers.",
    epilog=epilog("antiphon"),
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.add_typer(tasks.app, name="tasks")
app.add_typer(store_commands.app, name="store")

FileArgument = Annotated[
    str,
    typer.Argument(
        metavar="FILE[:NAME]",
        help="A Python file or dotted module. NAME is the variable that holds the Server.",
    ),
]
TargetArgument = Annotated[
    str | None,
    typer.Argument(metavar="[TARGET]", envvar="ANTIPHON_URL", help="A URL, or a Python FILE[:NAME]."),
]
StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        help="Keep tasks in this store, for example sqlite:///tasks.db. Default: the Server's own store, "
        "else ANTIPHON_STORE, else memory.",
    ),
]
LogLevelOption = Annotated[
    LogLevel, typer.Option(envvar="ANTIPHON_LOG_LEVEL", help="Log messages of this level and above.")
]


@app.callback(invoke_without_command=True, no_args_is_help=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        from antiphon import __version__

        typer.echo(f"antiphon {__version__}")
        raise typer.Exit


@app.command(cls=Command, epilog=epilog("run"))
def run(
    target: FileArgument,
    host: Annotated[str, typer.Option(envvar="ANTIPHON_HOST", help="Listen on this address.")] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(
            envvar="ANTIPHON_PORT", min=0, max=65535, help="Listen on this port. 0 picks a free port."
        ),
    ] = 8000,
    path: Annotated[str, typer.Option(help="Serve the MCP endpoint at this path.")] = "/mcp",
    stdio: Annotated[
        bool, typer.Option("--stdio", help="Serve one client over stdio instead of HTTP.")
    ] = False,
    workers: Annotated[
        int, typer.Option(envvar="ANTIPHON_WORKERS", min=1, help="Serve with this many processes.")
    ] = 1,
    hosts: Annotated[
        str | None,
        typer.Option(
            envvar="ANTIPHON_HOSTS",
            metavar="A,B",
            help="Accept these Host headers; * accepts all. Default: local names, if the address is local.",
        ),
    ] = None,
    origins: Annotated[
        str | None,
        typer.Option(
            envvar="ANTIPHON_ORIGINS",
            metavar="A,B",
            help="Accept these Origin headers; * accepts all. Default: local ones, if the address is local.",
        ),
    ] = None,
    store: StoreOption = None,
    no_worker: Annotated[
        bool,
        typer.Option("--no-worker", help="Do not run tasks. `antiphon worker` runs them in other processes."),
    ] = False,
    log_level: LogLevelOption = "info",
    access_log: Annotated[
        bool, typer.Option("--access-log", help="Log every HTTP request and the outcome of every call.")
    ] = False,
) -> None:
    """Serve a Python file over HTTP or stdio.

    Runs until Ctrl-C or SIGTERM. Calls that are running then have time to finish.
    """
    from antiphon.cli.run import serve
    from antiphon.cli.run.settings import Settings

    if not path.startswith("/"):
        raise typer.BadParameter("The path must start with a slash.", param_hint="--path")
    settings = Settings(
        target,
        path=path,
        hosts=split_commas(hosts),
        origins=split_commas(origins),
        log_level=log_level,
        access_log=access_log,
        store=store,
        run_tasks=not no_worker,
    )
    with handle_errors():
        if stdio:
            serve.serve_stdio(settings)
        else:
            serve.serve_http(settings, host=host, port=port, workers=workers)


@app.command(cls=Command, epilog=epilog("worker"))
def worker(
    target: FileArgument,
    store: StoreOption = None,
    concurrency: Annotated[
        int | None,
        typer.Option(
            envvar="ANTIPHON_CONCURRENCY",
            min=1,
            help="Run at most this many tasks at once. Default: the Server's limit, max_running_tasks.",
        ),
    ] = None,
    tools: Annotated[
        str | None, typer.Option(metavar="A,B", help="Run only the tasks of these tools.")
    ] = None,
    host: Annotated[
        str, typer.Option(envvar="ANTIPHON_HOST", help="Listen on this address, with --port.")
    ] = "127.0.0.1",
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Respond to /healthz, /readyz and /metrics on this port."),
    ] = None,
    log_level: LogLevelOption = "info",
) -> None:
    """Run the tasks of a Python file's server, without serving requests.

    Runs until Ctrl-C or SIGTERM. Tasks that are not finished then continue on another worker.
    """
    from antiphon.cli.run.settings import Settings
    from antiphon.cli.run.worker import run_worker

    settings = Settings(target, log_level=log_level, store=store)
    with handle_errors():
        run_worker(settings, concurrency=concurrency, tools=split_commas(tools), host=host, port=port)


@app.command(cls=Command, epilog=epilog("call"))
def call(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[TARGET] TOOL [KEY=VALUE]...",
            help="TARGET is a URL or a Python FILE[:NAME]. Omit it if ANTIPHON_URL is set. KEY=VALUE passes "
            "a value of the type in the tool's schema, KEY:=JSON passes JSON, and KEY=@FILE passes the "
            "content of a file.",
            show_default=False,
        ),
    ],
    url: Annotated[str | None, typer.Option("--url", envvar="ANTIPHON_URL", hidden=True)] = None,
    args: Annotated[str | None, typer.Option(metavar="JSON", help="Pass arguments as a JSON object.")] = None,
    answer: AnswersOption = None,
    answers: AnswerFileOption = None,
    default_answer: DefaultAnswerOption = None,
    no_input: NoInputOption = False,
    task: Annotated[
        bool, typer.Option("--task", help="Run the call as a task: print its ID, then wait for the result.")
    ] = False,
    stream: Annotated[
        bool, typer.Option("--stream", help="Print each part of the result as it arrives.")
    ] = False,
    json: JsonOption = False,
    header: HeadersOption = None,
    token: TokenOption = None,
    timeout: TimeoutOption = None,
    protocol: ProtocolOption = None,
    env: EnvOption = None,
) -> None:
    """Call a tool and print its result.

    If the tool asks a question, you are prompted for the answer.
    """
    from antiphon.cli.call.command import call_tool, stream_tool
    from antiphon.cli.call.questions import ElicitationHandler, PreparedAnswers
    from antiphon.cli.targets import Target, split_call_words

    with handle_errors():
        if stream and task:
            raise CommandError("--stream and --task exclude each other. Use one of them.")
        place, tool, pairs = split_call_words(words, url)
        target = Target.parse(
            place, headers=header or (), token=token, timeout=timeout, protocol=protocol, env=env or ()
        )
        handler = ElicitationHandler(
            PreparedAnswers(answer or (), answers), default_answer=default_answer, no_input=no_input
        )
        if stream:
            raise typer.Exit(stream_tool(target, tool, pairs, args, handler, as_json=json))
        raise typer.Exit(call_tool(target, tool, pairs, args, handler, as_json=json, as_task=task))


@app.command(cls=Command, epilog=epilog("tools"))
def tools(
    target: TargetArgument = None,
    json: JsonOption = False,
    header: HeadersOption = None,
    token: TokenOption = None,
    timeout: TimeoutOption = None,
    protocol: ProtocolOption = None,
    env: EnvOption = None,
) -> None:
    """List the tools of a server, with their arguments."""
    from antiphon.cli.targets import Target
    from antiphon.cli.tools import list_tools

    with handle_errors():
        parsed = Target.parse(
            require_target(target),
            headers=header or (),
            token=token,
            timeout=timeout,
            protocol=protocol,
            env=env or (),
        )
        list_tools(parsed, as_json=json)


@app.command(
    cls=Command,
    epilog=epilog("doctor"),
    short_help="Check any MCP server: its versions, features and response times.",
)
def doctor(
    target: TargetArgument = None,
    json: JsonOption = False,
    header: HeadersOption = None,
    token: TokenOption = None,
    timeout: TimeoutOption = 10.0,
    env: EnvOption = None,
) -> None:
    """Check any MCP server: its protocol versions, features and response times.

    Calls no tool and changes nothing.
    """
    from antiphon.cli.doctor.checks import run_doctor
    from antiphon.cli.targets import Target

    with handle_errors():
        parsed = Target.parse(
            require_target(target), headers=header or (), token=token, timeout=timeout, env=env or ()
        )
        raise typer.Exit(run_doctor(parsed, as_json=json))


@app.command(cls=Command, epilog=epilog("login"))
def login(
    target: TargetArgument = None,
    device: Annotated[
        bool, typer.Option("--device", help="Log in with another device: show a page and a code.")
    ] = False,
    paste: Annotated[
        bool, typer.Option("--paste", help="Log in with a browser anywhere, and paste its last address.")
    ] = False,
    client_id: Annotated[
        str | None, typer.Option("--client-id", help="The client that you registered at the issuer.")
    ] = None,
    client_secret: Annotated[
        str | None,
        typer.Option(envvar="ANTIPHON_CLIENT_SECRET", hidden=True, help="The secret of the client."),
    ] = None,
    client_metadata_url: Annotated[
        str | None,
        typer.Option("--client-metadata-url", metavar="URL", help="The client's metadata document."),
    ] = None,
    scope: Annotated[
        list[str] | None, typer.Option("--scope", metavar="SCOPE", help="Ask for this scope too. Repeatable.")
    ] = None,
    issuer: Annotated[
        str | None, typer.Option("--issuer", metavar="URL", help="Use this authorization server only.")
    ] = None,
    port: Annotated[
        int,
        typer.Option("--port", min=0, max=65535, help="The loopback port that the browser comes back to."),
    ] = 0,
    timeout: Annotated[
        float | None,
        typer.Option("--timeout", min=0.001, metavar="SECONDS", help="Wait this long for the person."),
    ] = None,
) -> None:
    """Log in at a server that uses OAuth. Other commands then use the login."""
    from antiphon.cli.login.actions import LoginOptions, log_in

    with handle_errors():
        options = LoginOptions(
            device=device,
            paste=paste,
            client_id=client_id,
            client_secret=client_secret,
            client_metadata_url=client_metadata_url,
            scopes=tuple(scope or ()),
            issuer=issuer,
            port=port,
            timeout=300.0 if timeout is None else timeout,
        )
        log_in(require_target(target), options)


@app.command(cls=Command, epilog=epilog("logout"))
def logout(target: TargetArgument = None) -> None:
    """Revoke the tokens of a server, and remove its login."""
    from antiphon.cli.login.actions import log_out

    with handle_errors():
        log_out(require_target(target))


@app.command(cls=Command, epilog=epilog("logins"))
def logins(json: JsonOption = False) -> None:
    """List the servers at which you are logged in."""
    from antiphon.cli.login.actions import list_logins

    with handle_errors():
        list_logins(as_json=json)
