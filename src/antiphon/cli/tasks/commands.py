"""The commands of `antiphon tasks` and their options."""

# No `from __future__ import annotations`: typer would evaluate the annotations of all commands at each start.
from pathlib import Path
from typing import Annotated

import typer

from antiphon.cli.examples import epilog
from antiphon.cli.exit_codes import CommandError, handle_errors
from antiphon.cli.options import (
    AnswerFileOption,
    Command,
    DefaultAnswerOption,
    EnvOption,
    Group,
    HeadersOption,
    JsonOption,
    NoInputOption,
    ProtocolOption,
    StderrOption,
    TargetCommand,
    TimeoutOption,
    TokenOption,
)
from antiphon.cli.tasks.filters import (
    NewerOption,
    OlderOption,
    OutcomeOption,
    PhaseOption,
    PrincipalOption,
    ToolOption,
    task_filter,
)

__all__ = ["app"]

app = typer.Typer(
    cls=Group,
    help="List, watch, answer and cancel tasks. The URL of a server shows your own tasks, a store shows "
    "all tasks.",
    short_help="List, watch, answer and cancel tasks.",
    epilog=epilog("tasks"),
    no_args_is_help=True,
    rich_markup_mode=None,
)

TargetArgument = Annotated[
    str,
    typer.Argument(
        metavar="TARGET",
        help="The URL of a server, or a store such as sqlite:///tasks.db. Or write a command at the end.",
    ),
]
StoreArgument = Annotated[str, typer.Argument(metavar="STORE", help="A store such as sqlite:///tasks.db.")]
IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The ID of the task.")]


@app.command(cls=TargetCommand, epilog=epilog("tasks ls"))
def ls(
    target: TargetArgument,
    limit: Annotated[int, typer.Option(min=1, help="Show at most this many tasks.")] = 100,
    phase: PhaseOption = None,
    tool: ToolOption = None,
    principal: PrincipalOption = None,
    outcome: OutcomeOption = None,
    failed: Annotated[bool, typer.Option("--failed", help="The same as --outcome failed.")] = False,
    older: OlderOption = None,
    newer: NewerOption = None,
    json: JsonOption = False,
    header: HeadersOption = None,
    token: TokenOption = None,
    timeout: TimeoutOption = None,
    protocol: ProtocolOption = None,
    env: EnvOption = None,
    stderr: StderrOption = False,
) -> None:
    """List tasks, newest first.

    With several conditions, lists the tasks to which all of them apply.
    """
    from antiphon.cli.tasks import actions

    with handle_errors():
        if failed and outcome not in (None, "failed"):
            raise CommandError(f"--failed and --outcome {outcome} exclude each other: use one of them.")
        filter = task_filter(
            phase=phase, tool=tool, outcome="failed" if failed else outcome, older=older, newer=newer
        )
        source = actions.task_source(target, header, token, timeout, protocol, env, stderr=stderr)
        actions.list_tasks(source, limit, filter, principal, as_json=json)


@app.command(cls=TargetCommand, epilog=epilog("tasks show"))
def show(
    target: TargetArgument,
    id: IdArgument,
    json: JsonOption = False,
    header: HeadersOption = None,
    token: TokenOption = None,
    timeout: TimeoutOption = None,
    protocol: ProtocolOption = None,
    env: EnvOption = None,
    stderr: StderrOption = False,
) -> None:
    """Show a task. A store also shows the task's log."""
    from antiphon.cli.tasks import actions

    with handle_errors():
        source = actions.task_source(target, header, token, timeout, protocol, env, stderr=stderr)
        actions.show_task(source, id, as_json=json)


@app.command(cls=Command, epilog=epilog("tasks export"))
def export(
    target: StoreArgument,
    id: Annotated[str | None, typer.Argument(metavar="[ID]", help="Write the history of this task.")] = None,
    all: Annotated[bool, typer.Option("--all", help="Write all tasks.")] = False,
    phase: PhaseOption = None,
    tool: ToolOption = None,
    principal: PrincipalOption = None,
    outcome: OutcomeOption = None,
    older: OlderOption = None,
    newer: NewerOption = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write to this file.")
    ] = None,
) -> None:
    """Write the history of one task as JSON, or many tasks for another store.

    A test can replay a history against a new version of your tool. Without an ID, each line is a task with
    its log, for `antiphon tasks import`. Both contain the arguments, the answers and the results of steps, so
    keep private data in mind. Stop the servers and workers of this store before you import into another one.
    """
    from antiphon.cli.tasks import actions, transfer

    with handle_errors():
        filter = task_filter(phase=phase, tool=tool, outcome=outcome, older=older, newer=newer)
        chosen = any(value is not None for value in (phase, tool, principal, outcome, older, newer))
        if [id is not None, all, chosen].count(True) != 1:
            raise CommandError("Name the tasks to export: one ID, or --all, or conditions such as --phase.")
        if id is not None:
            actions.export_history(target, id, output)
        else:
            raise typer.Exit(transfer.export_tasks(target, filter, principal, output))


@app.command("import", cls=Command, epilog=epilog("tasks import"))
def import_(
    target: StoreArgument,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A file of `tasks export`, or - for the input.")
    ],
    json: JsonOption = False,
) -> None:
    """Add the tasks of an export to a store.

    A task that is in the store already stays as it is, so you can run the command again. The exit code is 1
    if the store has another task of the same ID, or if the file is incomplete.
    """
    from antiphon.cli.tasks import transfer

    with handle_errors():
        raise typer.Exit(transfer.import_tasks(target, file, as_json=json))


@app.command(cls=TargetCommand, epilog=epilog("tasks watch"))
def watch(
    target: TargetArgument,
    id: IdArgument,
    json: JsonOption = False,
    header: HeadersOption = None,
    token: TokenOption = None,
    timeout: TimeoutOption = None,
    protocol: ProtocolOption = None,
    env: EnvOption = None,
    stderr: StderrOption = False,
) -> None:
    """Print each change of a task until the task ends.

    The exit code is 1 if the task fails or is cancelled.
    """
    from antiphon.cli.tasks import actions

    with handle_errors():
        source = actions.task_source(target, header, token, timeout, protocol, env, stderr=stderr)
        raise typer.Exit(actions.watch_task(source, id, as_json=json))


@app.command(cls=TargetCommand, epilog=epilog("tasks answer"))
def answer(
    target: TargetArgument,
    id: IdArgument,
    pairs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FIELD=VALUE]...", help="Answer these fields of the questions."),
    ] = None,
    key: Annotated[str | None, typer.Option(help="Answer only the question with this key.")] = None,
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
    """Answer the questions of a task.

    You are prompted for every field that the command line does not answer. In a store, you also answer the
    questions to others than the caller of the task, as an operator.
    """
    from antiphon.cli.call.questions import ElicitationHandler, PreparedAnswers
    from antiphon.cli.tasks import actions

    with handle_errors():
        source = actions.task_source(target, header, token, timeout, protocol, env, stderr=stderr)
        handler = ElicitationHandler(
            PreparedAnswers(pairs or (), answers), default_answer=default_answer, no_input=no_input, option=""
        )
        actions.answer_task(source, id, handler, key, as_json=json)


@app.command(cls=Command, epilog=epilog("tasks send"))
def send(
    target: Annotated[str, typer.Argument(metavar="STORE", help="A store such as sqlite:///tasks.db.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the event.")],
    key: Annotated[str, typer.Argument(metavar="KEY", help="What the event concerns, such as an order.")],
    data: Annotated[str, typer.Argument(metavar="[DATA]", help="The data of the event, as JSON.")] = "null",
    id: Annotated[
        str | None, typer.Option("--id", help="An id. An event that is sent again with it counts once.")
    ] = None,
    server: Annotated[
        str | None,
        typer.Option(help="The name of the server. Default: the only one with tasks in the store."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Send an event to the tasks of a store that wait for it, now or within a week.

    A task waits with ctx.event(NAME, key=KEY).
    """
    from antiphon.cli.tasks import actions

    with handle_errors():
        actions.send_event(target, name, key, data, id=id, server=server, as_json=json)


@app.command(cls=TargetCommand, epilog=epilog("tasks cancel"))
def cancel(
    target: TargetArgument,
    id: IdArgument,
    json: JsonOption = False,
    header: HeadersOption = None,
    token: TokenOption = None,
    timeout: TimeoutOption = None,
    protocol: ProtocolOption = None,
    env: EnvOption = None,
    stderr: StderrOption = False,
) -> None:
    """Cancel a task."""
    from antiphon.cli.tasks import actions

    with handle_errors():
        source = actions.task_source(target, header, token, timeout, protocol, env, stderr=stderr)
        actions.cancel_task(source, id, as_json=json)


@app.command(cls=Command, epilog=epilog("tasks retry"))
def retry(
    target: StoreArgument,
    id: IdArgument,
    json: JsonOption = False,
) -> None:
    """Run a failed or cancelled task of a store again.

    A worker runs the function again. Steps that finished do not run again, and answers are kept. A cancelled
    task stays cancelled: a new task goes on for it, whose id is printed.
    """
    from antiphon.cli.tasks import actions

    with handle_errors():
        actions.retry_task(target, id, as_json=json)


@app.command(cls=Command, epilog=epilog("tasks rm"))
def rm(
    target: StoreArgument,
    expired: Annotated[bool, typer.Option("--expired", help="Remove the expired tasks.")] = False,
    json: JsonOption = False,
) -> None:
    """Remove expired tasks from a store.

    A running server removes expired tasks by itself.
    """
    from antiphon.cli.tasks import actions

    with handle_errors():
        if not expired:
            raise CommandError("Only expired tasks can be removed: add --expired. To stop a task, cancel it.")
        actions.remove_expired(target, as_json=json)
