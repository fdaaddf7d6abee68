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
    Group,
    HeadersOption,
    JsonOption,
    NoInputOption,
    ProtocolOption,
    TimeoutOption,
    TokenOption,
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
    typer.Argument(metavar="TARGET", help="The URL of a server, or a store such as sqlite:///tasks.db."),
]
IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The ID of the task.")]


@app.command(cls=Command, epilog=epilog("tasks ls"))
def ls(
    target: TargetArgument,
    limit: Annotated[int, typer.Option(min=1, help="Show at most this many tasks.")] = 100,
    failed: Annotated[bool, typer.Option("--failed", help="Show only tasks that have failed.")] = False,
    json: JsonOption = False,
    header: HeadersOption = None,
    token: TokenOption = None,
    timeout: TimeoutOption = None,
    protocol: ProtocolOption = None,
) -> None:
    """List tasks, newest first."""
    from antiphon.cli.tasks import actions

    with handle_errors():
        source = actions.task_source(target, header, token, timeout, protocol)
        actions.list_tasks(source, limit, failed=failed, as_json=json)


@app.command(cls=Command, epilog=epilog("tasks show"))
def show(
    target: TargetArgument,
    id: IdArgument,
    json: JsonOption = False,
    header: HeadersOption = None,
    token: TokenOption = None,
    timeout: TimeoutOption = None,
    protocol: ProtocolOption = None,
) -> None:
    """Show a task. A store also shows the task's log."""
    from antiphon.cli.tasks import actions

    with handle_errors():
        source = actions.task_source(target, header, token, timeout, protocol)
        actions.show_task(source, id, as_json=json)


@app.command(cls=Command, epilog=epilog("tasks export"))
def export(
    target: Annotated[str, typer.Argument(metavar="STORE", help="A store such as sqlite:///tasks.db.")],
    id: IdArgument,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write to this file.")
    ] = None,
) -> None:
    """Write the history of a task as JSON.

    A test can replay the history against a new version of your tool. It contains the arguments, the answers
    and the results of steps, so keep private data in mind.
    """
    from antiphon.cli.tasks import actions

    with handle_errors():
        actions.export_history(target, id, output)


@app.command(cls=Command, epilog=epilog("tasks watch"))
def watch(
    target: TargetArgument,
    id: IdArgument,
    json: JsonOption = False,
    header: HeadersOption = None,
    token: TokenOption = None,
    timeout: TimeoutOption = None,
    protocol: ProtocolOption = None,
) -> None:
    """Print each change of a task until the task ends.

    The exit code is 1 if the task fails or is cancelled.
    """
    from antiphon.cli.tasks import actions

    with handle_errors():
        source = actions.task_source(target, header, token, timeout, protocol)
        raise typer.Exit(actions.watch_task(source, id, as_json=json))


@app.command(cls=Command, epilog=epilog("tasks answer"))
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
) -> None:
    """Answer the questions of a task.

    You are prompted for every field that the command line does not answer.
    """
    from antiphon.cli.call.questions import ElicitationHandler, PreparedAnswers
    from antiphon.cli.tasks import actions

    with handle_errors():
        source = actions.task_source(target, header, token, timeout, protocol)
        handler = ElicitationHandler(
            PreparedAnswers(pairs or (), answers), default_answer=default_answer, no_input=no_input
        )
        actions.answer_task(source, id, handler, key, as_json=json)


@app.command(cls=Command, epilog=epilog("tasks cancel"))
def cancel(
    target: TargetArgument,
    id: IdArgument,
    json: JsonOption = False,
    header: HeadersOption = None,
    token: TokenOption = None,
    timeout: TimeoutOption = None,
    protocol: ProtocolOption = None,
) -> None:
    """Cancel a task."""
    from antiphon.cli.tasks import actions

    with handle_errors():
        source = actions.task_source(target, header, token, timeout, protocol)
        actions.cancel_task(source, id, as_json=json)


@app.command(cls=Command, epilog=epilog("tasks retry"))
def retry(
    target: Annotated[str, typer.Argument(metavar="STORE", help="A store such as sqlite:///tasks.db.")],
    id: IdArgument,
    json: JsonOption = False,
) -> None:
    """Run a failed task of a store again.

    A worker runs the function again. Steps that finished do not run again, and answers are kept.
    """
    from antiphon.cli.tasks import actions

    with handle_errors():
        actions.retry_task(target, id, as_json=json)


@app.command(cls=Command, epilog=epilog("tasks rm"))
def rm(
    target: Annotated[str, typer.Argument(metavar="STORE", help="A store such as sqlite:///tasks.db.")],
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
