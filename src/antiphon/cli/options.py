"""Options that several commands share, and how typer converts and shows them.

Every command imports this module, so it imports no other part of the library.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer
from typer.core import TyperCommand, TyperGroup

from antiphon.cli.exit_codes import CommandError

__all__ = [
    "AnswerFileOption",
    "AnswersOption",
    "Command",
    "DefaultAnswer",
    "DefaultAnswerOption",
    "EnvOption",
    "Group",
    "HeadersOption",
    "JsonOption",
    "NoInputOption",
    "ProtocolOption",
    "TimeoutOption",
    "TokenOption",
    "require_target",
    "split_commas",
]

DefaultAnswer = Literal["accept", "decline", "cancel"]
"""The responses of `--default-answer`."""

HeadersOption = Annotated[
    list[str] | None,
    typer.Option("--header", metavar="'NAME: VALUE'", help="Send an HTTP header. Repeatable."),
]
TokenOption = Annotated[
    str | None,
    typer.Option("--token", envvar="ANTIPHON_TOKEN", help="Send a bearer token.", show_default=False),
]
TimeoutOption = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        min=0.001,
        metavar="SECONDS",
        help="Wait this long to connect, for each response, and for a task to end. Default: 30 s to connect, "
        "60 s for each response, and any time for a task.",
        show_default=False,
    ),
]
EnvOption = Annotated[
    list[str] | None,
    typer.Option(
        "--env",
        metavar="NAME[=VALUE]",
        help="Pass this variable to the process of a Python file. Other variables of the environment are not "
        "passed, except those of the login, PYTHON… and ANTIPHON_…. Repeatable.",
    ),
]
ProtocolOption = Annotated[
    str | None,
    typer.Option("--protocol", metavar="VERSION", help="Use this protocol version. Default: the newest one."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
AnswersOption = Annotated[
    list[str] | None,
    typer.Option(
        "--answer",
        metavar="FIELD=VALUE",
        help="Answer this field of a question. Repeat a field to answer later questions differently.",
    ),
]
AnswerFileOption = Annotated[
    str | None,
    typer.Option("--answers", metavar="FILE", help="Read answers from a JSON object: {field: value}."),
]
DefaultAnswerOption = Annotated[
    DefaultAnswer | None,
    typer.Option(
        "--default-answer",
        help="Answer all other questions: accept the defaults (and agree to open URLs), decline, or cancel.",
    ),
]
NoInputOption = Annotated[
    bool, typer.Option("--no-input", help="Never prompt. A question without an answer is an error.")
]


class Conversion:
    """Converts the value of a parameter. Strings and defaults stay as they are; typer converts the rest."""

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the converted value. Raises typer's `BadParameter`."""
        is_list = param.multiple or param.nargs == -1
        if value is None:
            return () if is_list else None
        annotation = param.type_descriptor.annotation
        if type(value) is annotation:
            return value
        if is_list and annotation == list[str] and not isinstance(value, str):
            return list(value)
        param._runtime_param = None
        return param.get_runtime_param().coerce(value, param=param, ctx=ctx)


def convert_without_pydantic(params: list[Any]) -> list[Any]:
    """Return typer's parameters, which now load pydantic only for a value that needs a conversion.

    typer converts every value with pydantic, even a missing one, and pydantic takes longer to load than the
    rest of a command. The names are private to typer: if they change, commands only start more slowly.
    """
    for param in params:
        if getattr(param, "_runtime_param", param) is None:
            param._runtime_param = Conversion()
    return params


class Command(TyperCommand):
    """A command whose usage line shows its arguments as their metavars are written."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, with the one of `--help`."""
        return convert_without_pydantic(super().get_params(ctx))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the parts of the usage line after the name of the command."""
        arguments = [param for param in self.params if param.param_type_name == "argument"]
        return ["[OPTIONS]", *(str(getattr(argument, "metavar", argument.name)) for argument in arguments)]


class Group(TyperGroup):
    """A command that has commands of its own."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, with the one of `--help`."""
        return convert_without_pydantic(super().get_params(ctx))


def require_target(target: str | None) -> str:
    """Return the target, or raise `CommandError` if there is none."""
    if target is None:
        raise CommandError("Missing target: name a URL or a Python file, or set ANTIPHON_URL.")
    return target


def split_commas(text: str | None) -> tuple[str, ...] | None:
    """Split a list at its commas. Return `None` for an empty list."""
    items = tuple(item.strip() for item in (text or "").split(",") if item.strip())
    return items or None
