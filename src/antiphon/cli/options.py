"""Options that several commands share, and how typer converts and shows them.

Every command imports this module, so it imports no other part of the library.
"""

from __future__ import annotations

import os
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperCommand, TyperGroup

from antiphon.cli.exit_codes import CommandError
from antiphon.cli.run import LogLevel

__all__ = [
    "PROGRAM",
    "AccessLogOption",
    "AnswerFileOption",
    "AnswersOption",
    "Command",
    "DefaultAnswer",
    "DefaultAnswerOption",
    "EnvOption",
    "ForceOption",
    "Group",
    "HeadersOption",
    "HostsOption",
    "JsonOption",
    "LogLevelOption",
    "NoInputOption",
    "NoOpenOption",
    "OriginsOption",
    "OtelOption",
    "PathOption",
    "PortOption",
    "ProgramCommand",
    "ProtocolOption",
    "SandboxPortOption",
    "SaveOption",
    "StderrOption",
    "StdioOption",
    "TargetArgument",
    "TargetCommand",
    "TaskToolsOption",
    "TimeoutOption",
    "TokenOption",
    "UrlOption",
    "WorkersOption",
    "change_directory",
    "require_target",
    "split_commas",
]

PROGRAM = "antiphon.program"
"""Where the context of a command has the words after `--`."""

DefaultAnswer = Literal["accept", "decline", "cancel"]
"""The responses of `--default-answer`."""

TargetArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[TARGET]",
        envvar="ANTIPHON_URL",
        help="A URL, or a Python FILE[:NAME]. Or write a command at the end.",
    ),
]
UrlOption = Annotated[str | None, typer.Option("--url", envvar="ANTIPHON_URL", hidden=True)]
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
        help="Pass this variable to the command, or to the process of a Python file. A command gets no other "
        "variables of the environment than those of the login; a Python file gets all but ANTIPHON_TOKEN and "
        "ANTIPHON_URL. Repeatable.",
    ),
]
StderrOption = Annotated[
    bool,
    typer.Option(
        "--stderr",
        help="Show what the command prints to standard error. Default: only the last lines, if it fails.",
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

SaveOption = Annotated[
    str | None,
    typer.Option(
        "--save",
        metavar="FOLDER|FILE",
        help="Save images, audio, files and artifacts in this folder, or the only one of them as this file. "
        "A folder exists, or ends with a slash. - writes to standard output.",
    ),
]
ForceOption = Annotated[bool, typer.Option("--force", help="Let --save replace files.")]

PortOption = Annotated[
    int,
    typer.Option(envvar="ANTIPHON_PORT", min=0, max=65535, help="Listen on this port. 0 picks a free port."),
]
TaskToolsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--task",
        metavar="TOOL",
        help="Let callers run this tool of an adopted server as a task. Repeatable.",
    ),
]
LogLevelOption = Annotated[
    LogLevel, typer.Option(envvar="ANTIPHON_LOG_LEVEL", help="Log messages of this level and above.")
]
OtelOption = Annotated[
    bool,
    typer.Option(
        "--otel",
        envvar="ANTIPHON_OTEL",
        help="Export traces, metrics and logs with OpenTelemetry, as the OTEL_* variables say.",
    ),
]
SandboxPortOption = Annotated[
    int, typer.Option(min=0, max=65535, help="Show MCP Apps from this port. 0 picks a free port.")
]
NoOpenOption = Annotated[bool, typer.Option("--no-open", help="Do not open a browser.")]
PathOption = Annotated[str, typer.Option(help="Serve the MCP endpoint at this path.")]
StdioOption = Annotated[bool, typer.Option("--stdio", help="Serve one client over stdio instead of HTTP.")]
WorkersOption = Annotated[
    int, typer.Option(envvar="ANTIPHON_WORKERS", min=1, help="Serve with this many processes.")
]
HostsOption = Annotated[
    str | None,
    typer.Option(
        envvar="ANTIPHON_HOSTS",
        metavar="A,B",
        help="Accept these Host headers; * accepts all. Default: addresses and localhost, or any name if the "
        "server authenticates its callers.",
    ),
]
OriginsOption = Annotated[
    str | None,
    typer.Option(
        envvar="ANTIPHON_ORIGINS",
        metavar="A,B",
        help="Let web pages of these origins call the server; * lets all. Default: those that the server has "
        "itself, and local ones if the address is local.",
    ),
]
AccessLogOption = Annotated[
    bool, typer.Option("--access-log", help="Log every HTTP request and the outcome of every call.")
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


class TargetCommand(Command):
    """A command whose first argument is a target. `-- COMMAND ARG…` at the end can stand in its place."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words of the command line."""
        if "--" in args:
            from antiphon.cli.command_words import join_command

            end = args.index("--")
            command = args[end + 1 :]
            if not command:
                ctx.fail("The command after -- is missing. For example: -- python server.py")
            args = [join_command(command), *args[:end]]
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the parts of the usage line after the name of the command."""
        return [*super().collect_usage_pieces(ctx), "[-- COMMAND [ARG]...]"]


class ProgramCommand(TargetCommand):
    """A command that takes a file, or a program after `--`. Its words are in `ctx.meta[PROGRAM]`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words of the command line."""
        if "--" in args:
            end = args.index("--")
            args, ctx.meta[PROGRAM] = args[:end], args[end + 1 :]
        parsed = super().parse_args(ctx, args)
        if not ctx.resilient_parsing and bool(ctx.params["target"]) == bool(ctx.meta.get(PROGRAM)):
            ctx.fail("Name one thing to run: a file, such as server.py, or a program after --.")
        return parsed


class Group(TyperGroup):
    """A command that has commands of its own."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, with the one of `--help`."""
        return convert_without_pydantic(super().get_params(ctx))


def require_target(target: str | None) -> str:
    """Return the target, or raise `CommandError` if there is none."""
    if target is None:
        raise CommandError(
            "Missing target: name a URL, a Python file or a command (-- COMMAND), or set ANTIPHON_URL."
        )
    return target


def change_directory(path: str) -> None:
    """Make a directory the working directory of this process. Raises `CommandError`."""
    try:
        os.chdir(path)
    except OSError as error:
        raise CommandError(f"Cannot change to the directory {path}: {error.strerror}.") from None


def split_commas(text: str | None) -> tuple[str, ...] | None:
    """Split a list at its commas. Return `None` for an empty list."""
    items = tuple(item.strip() for item in (text or "").split(",") if item.strip())
    return items or None
