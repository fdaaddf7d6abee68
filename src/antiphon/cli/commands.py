"""The commands and their options. Each command imports the module that does the work when it runs."""

# No `from __future__ import annotations`: typer would evaluate the annotations of all commands at each start.
from collections.abc import Sequence
from typing import Annotated

import typer

from antiphon.cli.catalog import commands as catalog
from antiphon.cli.console.command import console as console_command
from antiphon.cli.dev.command import dev
from antiphon.cli.examples import epilog
from antiphon.cli.exit_codes import CommandError, handle_errors
from antiphon.cli.gateway.command import gateway
from antiphon.cli.hosts.command import install, mcp_json
from antiphon.cli.new.command import new
from antiphon.cli.options import (
    PROGRAM,
    AccessLogOption,
    AnswerFileOption,
    AnswersOption,
    Command,
    DefaultAnswerOption,
    EnvOption,
    ForceOption,
    Group,
    HeadersOption,
    HostsOption,
    JsonOption,
    LogLevelOption,
    NoInputOption,
    OriginsOption,
    OtelOption,
    PathOption,
    PortOption,
    ProgramCommand,
    ProtocolOption,
    SaveOption,
    StderrOption,
    StdioOption,
    TargetArgument,
    TargetCommand,
    TaskToolsOption,
    TimeoutOption,
    TokenOption,
    UrlOption,
    WorkersOption,
    change_directory,
    require_target,
    split_commas,
)
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
StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        help="Keep tasks in this store, for example sqlite:///tasks.db. Default: the Server's own store, "
        "else ANTIPHON_STORE, else memory.",
    ),
]


@app.callback(invoke_without_command=True, no_args_is_help=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        from antiphon.version import VERSION

        typer.echo(f"antiphon {VERSION}")
        raise typer.Exit


@app.command(cls=ProgramCommand, epilog=epilog("run"))
def run(
    ctx: typer.Context,
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE[:NAME]",
            help="A Python file or dotted module. NAME is the variable that holds the server: "
            "a Server, or one of mcp or fastmcp.",
        ),
    ] = None,
    host: Annotated[str, typer.Option(envvar="ANTIPHON_HOST", help="Listen on this address.")] = "127.0.0.1",
    port: PortOption = 8000,
    path: PathOption = "/mcp",
    stdio: StdioOption = False,
    workers: WorkersOption = 1,
    hosts: HostsOption = None,
    origins: OriginsOption = None,
    store: StoreOption = None,
    task: TaskToolsOption = None,
    allow_anonymous: Annotated[
        bool,
        typer.Option(
            "--allow-anonymous",
            help="Serve a server of mcp or fastmcp without the authentication that it has itself.",
        ),
    ] = False,
    no_worker: Annotated[
        bool,
        typer.Option("--no-worker", help="Do not run tasks. `antiphon worker` runs them in other processes."),
    ] = False,
    console: Annotated[
        bool,
        typer.Option(
            "--console", help="Serve the console too, a web page to look at the server and its tasks."
        ),
    ] = False,
    directory: Annotated[
        str | None, typer.Option("--directory", metavar="DIR", help="Change to this directory first.")
    ] = None,
    log_level: LogLevelOption = "info",
    access_log: AccessLogOption = False,
    otel: OtelOption = False,
) -> None:
    """Serve a Python file over HTTP or stdio, or a program: antiphon run -- COMMAND.

    Serves servers of mcp and fastmcp too. A program must be installed beside Antiphon. Runs until Ctrl-C or
    SIGTERM. Calls that are running then have time to finish.
    """
    from antiphon.cli.run import serve
    from antiphon.cli.run.settings import Settings

    if not path.startswith("/"):
        raise typer.BadParameter("The path must start with a slash.", param_hint="--path")
    settings = Settings(
        target or "",
        path=path,
        hosts=split_commas(hosts),
        origins=split_commas(origins),
        log_level=log_level,
        access_log=access_log,
        store=store,
        tasks=tuple(task or ()),
        allow_anonymous=allow_anonymous,
        run_tasks=not no_worker,
        console=console,
        otel=otel,
    )
    program: Sequence[str] = ctx.meta.get(PROGRAM, ())
    with handle_errors():
        if directory is not None:
            change_directory(directory)
        if console and stdio:
            raise CommandError("The console needs HTTP: remove --stdio or --console.")
        if program:
            from antiphon.cli.run.program import serve_program

            if workers > 1:
                raise CommandError("A program is served by one process: remove --workers.")
            serve_program(program, settings, host=host, port=port, stdio=stdio)
        elif stdio:
            serve.serve_stdio(settings)
        else:
            serve.serve_http(settings, host=host, port=port, workers=workers)


app.command(cls=Command, epilog=epilog("new"))(new)
app.command(cls=Command, epilog=epilog("dev"))(dev)


@app.command(cls=Command, epilog=epilog("worker"))
def worker(
    target: FileArgument,
    store: StoreOption = None,
    task: TaskToolsOption = None,
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
    hosts: HostsOption = None,
    log_level: LogLevelOption = "info",
    otel: OtelOption = False,
) -> None:
    """Run the tasks of a Python file's server, without serving requests.

    Runs until Ctrl-C or SIGTERM. Tasks that are not finished then continue on another worker.
    """
    from antiphon.cli.run.settings import Settings
    from antiphon.cli.run.worker import run_worker

    settings = Settings(
        target,
        hosts=split_commas(hosts),
        log_level=log_level,
        store=store,
        tasks=tuple(task or ()),
        otel=otel,
    )
    with handle_errors():
        run_worker(settings, concurrency=concurrency, tools=split_commas(tools), host=host, port=port)


app.command(cls=TargetCommand, epilog=epilog("gateway"))(gateway)
app.command(cls=TargetCommand, epilog=epilog("console"), name="console")(console_command)
app.command(cls=TargetCommand, epilog=epilog("install"))(install)
app.command(cls=TargetCommand, epilog=epilog("mcp-json"), name="mcp-json")(mcp_json)


@app.command(cls=TargetCommand, epilog=epilog("call"))
def call(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[TARGET] TOOL [KEY=VALUE]...",
            help="TARGET is a URL or a Python FILE[:NAME]. Omit it if ANTIPHON_URL is set, or if you write a "
            "command at the end. KEY=VALUE passes a value of the type in the tool's schema, KEY:=JSON passes "
            "JSON, and KEY=@FILE passes the content of a file.",
            show_default=False,
        ),
    ],
    url: UrlOption = None,
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
    save: SaveOption = None,
    force: ForceOption = False,
    json: JsonOption = False,
    header: HeadersOption = None,
    token: TokenOption = None,
    timeout: TimeoutOption = None,
    protocol: ProtocolOption = None,
    env: EnvOption = None,
    stderr: StderrOption = False,
) -> None:
    """Call a tool and print its result.

    If the tool asks a question, you are prompted for the answer.
    """
    from antiphon.cli.call.command import call_tool, stream_tool
    from antiphon.cli.call.questions import ElicitationHandler, PreparedAnswers
    from antiphon.cli.targets import Target, split_call_words

    with handle_errors():
        place, tool, pairs = split_call_words(words, url)
        target = Target.parse(
            place, headers=header, token=token, timeout=timeout, protocol=protocol, env=env, stderr=stderr
        )
        handler = ElicitationHandler(
            PreparedAnswers(answer or (), answers), default_answer=default_answer, no_input=no_input
        )
        attachments = None
        if save is not None:
            from antiphon.cli.call.attachments import Attachments
            from antiphon.cli.saving import Destination

            attachments = Attachments(Destination(save, force=force, alone=not json and not stream))
        if stream:
            code = stream_tool(
                target, tool, pairs, args, handler, as_json=json, as_task=task, attachments=attachments
            )
        else:
            code = call_tool(
                target, tool, pairs, args, handler, as_json=json, as_task=task, attachments=attachments
            )
        raise typer.Exit(code)


@app.command(cls=TargetCommand, epilog=epilog("tools"))
def tools(
    target: TargetArgument = None,
    json: JsonOption = False,
    header: HeadersOption = None,
    token: TokenOption = None,
    timeout: TimeoutOption = None,
    protocol: ProtocolOption = None,
    env: EnvOption = None,
    stderr: StderrOption = False,
) -> None:
    """List the tools of a server, with their arguments."""
    from antiphon.cli.targets import Target
    from antiphon.cli.tools import list_tools

    with handle_errors():
        target = require_target(target)
        parsed = Target.parse(
            target, headers=header, token=token, timeout=timeout, protocol=protocol, env=env, stderr=stderr
        )
        list_tools(parsed, as_json=json)


app.command(cls=TargetCommand, epilog=epilog("resources"))(catalog.resources)
app.command(cls=TargetCommand, epilog=epilog("read"))(catalog.read)
app.command(cls=TargetCommand, epilog=epilog("prompts"))(catalog.prompts)
app.command(cls=TargetCommand, epilog=epilog("prompt"))(catalog.prompt)
app.command(cls=TargetCommand, epilog=epilog("complete"))(catalog.complete)


@app.command(cls=TargetCommand, epilog=epilog("inbox"))
def inbox(
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="The URL of a server. Or write a command at the end.")
    ],
    id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="Answer the questions of this task only.")
    ] = None,
    pairs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FIELD=VALUE]...", help="Answer these fields of the questions."),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Print questions as they come and go, until Ctrl-C.")
    ] = False,
    answers: AnswerFileOption = None,
    default_answer: DefaultAnswerOption = None,
    no_input: NoInputOption = False,
    json: JsonOption = False,
    header: HeadersOption = None,
    token: TokenOption = None,
    timeout: TimeoutOption = None,
    protocol: ProtocolOption = None,
    env: EnvOption = None,
    stderr: StderrOption = False,
) -> None:
    """Answer the questions of other people's tasks.

    In a terminal, you are asked one question after the other. Otherwise, and with --json or --no-input, the
    questions are listed.
    """
    from antiphon.cli.call.questions import ElicitationHandler, PreparedAnswers
    from antiphon.cli.inbox import KEYS, answer_inbox, answer_task_of_inbox, list_inbox, watch_inbox
    from antiphon.cli.targets import Target

    with handle_errors():
        parsed = Target.parse(
            target, headers=header, token=token, timeout=timeout, protocol=protocol, env=env, stderr=stderr
        )
        prepared = PreparedAnswers(pairs or (), answers)
        handler = ElicitationHandler(
            prepared, default_answer=default_answer, no_input=no_input, keys=KEYS, option=""
        )
        if id is not None:
            answer_task_of_inbox(parsed, id, handler, as_json=json)
        elif answers is not None or default_answer is not None:
            raise CommandError("--answers and --default-answer answer one task: name its ID.")
        elif watch:
            watch_inbox(parsed, as_json=json)
        elif json or not handler.prompts:
            list_inbox(parsed, as_json=json)
        else:
            answer_inbox(parsed, handler)


@app.command(
    cls=TargetCommand,
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
    stderr: StderrOption = False,
) -> None:
    """Check any MCP server: its protocol versions, features and response times.

    Calls no tool and changes nothing.
    """
    from antiphon.cli.doctor.command import run_doctor
    from antiphon.cli.targets import Target

    with handle_errors():
        parsed = Target.parse(
            require_target(target), headers=header, token=token, timeout=timeout, env=env, stderr=stderr
        )
        raise typer.Exit(run_doctor(parsed, as_json=json))


@app.command(cls=TargetCommand, epilog=epilog("login"))
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


@app.command(cls=TargetCommand, epilog=epilog("logout"))
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
