"""The options that several commands have, and how each command ends. Costs next to nothing to import."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from antiphon.cli.exit_codes import INTERRUPTED, CommandError, leave
from antiphon.cli.run.settings import Otherwise

__all__ = [
    "AnswerFile",
    "Answers",
    "Headers",
    "Json",
    "NoInput",
    "Otherwises",
    "Timeout",
    "Token",
    "ending",
    "required",
]

Headers = Annotated[
    list[str] | None, typer.Option("--header", metavar="'NAME: VALUE'", help="Send this header; repeatable.")
]
Token = Annotated[
    str | None,
    typer.Option(envvar="ANTIPHON_TOKEN", help="Send this as the bearer token.", show_default=False),
]
Timeout = Annotated[float, typer.Option(min=0.001, metavar="SECONDS", help="How long to wait for an answer.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Answers = Annotated[
    list[str] | None,
    typer.Option(
        "--answer",
        metavar="FIELD=VALUE",
        help="What to answer where the tool asks for this field; repeatable, one after the other.",
    ),
]
AnswerFile = Annotated[
    str | None,
    typer.Option("--answers", metavar="FILE", help="Answers by field, as a JSON object in a file."),
]
Otherwises = Annotated[
    Otherwise | None,
    typer.Option(
        "--otherwise",
        help="What to do with other questions. accept takes defaults, and agrees to go to addresses.",
    ),
]
NoInput = Annotated[
    bool, typer.Option("--no-input", help="Do not ask at the terminal: fail where an answer is missing.")
]


@contextmanager
def ending() -> Iterator[None]:
    """Turn what ends a command early into a message and an exit code."""
    try:
        yield
    except CommandError as error:
        leave(error)
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None


def required(target: str | None) -> str:
    """The target that was named; raises `CommandError`."""
    if target is None:
        raise CommandError("Say which server: a URL, or a Python file. Or set ANTIPHON_URL.")
    return target
