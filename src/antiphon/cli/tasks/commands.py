"""`antiphon tasks`: its commands and their options. A URL is asked as a caller, a store as the operator."""

from __future__ import annotations

from typing import Annotated

import typer

from antiphon.cli.examples import epilog
from antiphon.cli.exit_codes import CommandError
from antiphon.cli.options import (
    AnswerFile,
    Headers,
    Json,
    NoInput,
    Otherwises,
    Timeout,
    Token,
    ending,
)

__all__ = ["app"]

app = typer.Typer(
    help="Look at tasks, answer and cancel them: as a caller at a URL, as the operator on a store.",
    epilog=epilog("tasks"),
    no_args_is_help=True,
)

Where = Annotated[
    str,
    typer.Argument(metavar="TARGET", help="A server's URL, or a store such as sqlite:///tasks.db."),
]
Id = Annotated[str, typer.Argument(metavar="ID", help="The task.")]
Protocol = Annotated[
    str | None,
    typer.Option(metavar="VERSION", help="The protocol version to speak with a URL; else the newest."),
]


@app.command(epilog=epilog("tasks ls"))
def ls(
    target: Where,
    limit: Annotated[int, typer.Option(min=1, help="How many to show, newest first.")] = 100,
    json: Json = False,
    header: Headers = None,
    token: Token = None,
    timeout: Timeout = 60.0,
    protocol: Protocol = None,
) -> None:
    """List tasks, newest first: the caller's own at a URL, everyone's on a store."""
    from antiphon.cli.tasks import actions as doing

    with ending():
        place = doing.place(target, header, token, timeout, protocol)
        doing.list_tasks(place, limit, as_json=json)


@app.command(epilog=epilog("tasks show"))
def show(
    target: Where,
    id: Id,
    json: Json = False,
    header: Headers = None,
    token: Token = None,
    timeout: Timeout = 60.0,
    protocol: Protocol = None,
) -> None:
    """Show how a task stands; on a store, with its log."""
    from antiphon.cli.tasks import actions as doing

    with ending():
        place = doing.place(target, header, token, timeout, protocol)
        doing.show_task(place, id, as_json=json)


@app.command(epilog=epilog("tasks watch"))
def watch(
    target: Where,
    id: Id,
    json: Json = False,
    header: Headers = None,
    token: Token = None,
    timeout: Timeout = 60.0,
    protocol: Protocol = None,
) -> None:
    """Follow a task to its end, a line for each change; exit code 1 if it fails or is cancelled."""
    from antiphon.cli.tasks import actions as doing

    with ending():
        place = doing.place(target, header, token, timeout, protocol)
        raise typer.Exit(doing.watch_task(place, id, as_json=json))


@app.command(epilog=epilog("tasks answer"))
def answer(
    target: Where,
    id: Id,
    given: Annotated[
        list[str] | None, typer.Argument(metavar="[FIELD=VALUE]...", help="What to answer, by field.")
    ] = None,
    key: Annotated[str | None, typer.Option(help="Answer only the question of this key.")] = None,
    answers: AnswerFile = None,
    otherwise: Otherwises = None,
    no_input: NoInput = False,
    json: Json = False,
    header: Headers = None,
    token: Token = None,
    timeout: Timeout = 60.0,
    protocol: Protocol = None,
) -> None:
    """Answer what a task asks; what is not given is asked at the terminal."""
    from antiphon.cli.call.questions import Asker, Given
    from antiphon.cli.tasks import actions as doing

    with ending():
        place = doing.place(target, header, token, timeout, protocol)
        asker = Asker(Given(given or (), answers), otherwise=otherwise, no_input=no_input)
        doing.answer_task(place, id, asker, key, as_json=json)


@app.command(epilog=epilog("tasks cancel"))
def cancel(
    target: Where,
    id: Id,
    json: Json = False,
    header: Headers = None,
    token: Token = None,
    timeout: Timeout = 60.0,
    protocol: Protocol = None,
) -> None:
    """Cancel a task."""
    from antiphon.cli.tasks import actions as doing

    with ending():
        place = doing.place(target, header, token, timeout, protocol)
        doing.cancel_task(place, id, as_json=json)


@app.command(epilog=epilog("tasks rm"))
def rm(
    target: Annotated[str, typer.Argument(metavar="STORE", help="A store such as sqlite:///tasks.db.")],
    expired: Annotated[bool, typer.Option("--expired", help="Those whose time is over.")] = False,
    json: Json = False,
) -> None:
    """Forget tasks on a store. A server that runs does this by itself."""
    from antiphon.cli.tasks import actions as doing

    with ending():
        if not expired:
            raise CommandError("Say which: --expired. A task that is still wanted is cancelled, not removed.")
        doing.sweep(target, as_json=json)
