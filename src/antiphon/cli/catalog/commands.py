"""The commands for resources, prompts and completions, and their options."""

# No `from __future__ import annotations`: typer would evaluate the annotations of all commands at each start.
from typing import Annotated

import typer

from antiphon.cli.exit_codes import handle_errors
from antiphon.cli.options import (
    AnswerFileOption,
    AnswersOption,
    DefaultAnswerOption,
    EnvOption,
    ForceOption,
    HeadersOption,
    JsonOption,
    NoInputOption,
    ProtocolOption,
    SaveOption,
    StderrOption,
    TargetArgument,
    TimeoutOption,
    TokenOption,
    UrlOption,
    require_target,
)

__all__ = ["complete", "prompt", "prompts", "read", "resources"]


def resources(
    target: TargetArgument = None,
    json: JsonOption = False,
    header: HeadersOption = None,
    token: TokenOption = None,
    timeout: TimeoutOption = None,
    protocol: ProtocolOption = None,
    env: EnvOption = None,
    stderr: StderrOption = False,
) -> None:
    """List the resources of a server, and its resource templates."""
    from antiphon.cli.catalog.resources import list_resources
    from antiphon.cli.targets import Target

    with handle_errors():
        parsed = Target.parse(
            require_target(target),
            headers=header,
            token=token,
            timeout=timeout,
            protocol=protocol,
            env=env,
            stderr=stderr,
        )
        list_resources(parsed, as_json=json)


def read(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[TARGET] URI",
            help="TARGET is a URL or a Python FILE[:NAME]. Omit it if ANTIPHON_URL is set, or if you write a "
            "command at the end. URI is the URI of a resource, or one that matches a template.",
            show_default=False,
        ),
    ],
    url: UrlOption = None,
    answer: AnswersOption = None,
    answers: AnswerFileOption = None,
    default_answer: DefaultAnswerOption = None,
    no_input: NoInputOption = False,
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
    """Read a resource and print its contents.

    If the server asks a question, you are prompted for the answer.
    """
    from antiphon.cli.call.questions import ElicitationHandler, PreparedAnswers
    from antiphon.cli.catalog.resources import read_resource
    from antiphon.cli.saving import Destination
    from antiphon.cli.targets import Target, split_read_words

    with handle_errors():
        place, uri = split_read_words(words, url)
        target = Target.parse(
            place, headers=header, token=token, timeout=timeout, protocol=protocol, env=env, stderr=stderr
        )
        handler = ElicitationHandler(
            PreparedAnswers(answer or (), answers), default_answer=default_answer, no_input=no_input
        )
        destination = None if save is None else Destination(save, force=force, alone=not json)
        read_resource(target, uri, handler, as_json=json, save=destination)


def prompts(
    target: TargetArgument = None,
    json: JsonOption = False,
    header: HeadersOption = None,
    token: TokenOption = None,
    timeout: TimeoutOption = None,
    protocol: ProtocolOption = None,
    env: EnvOption = None,
    stderr: StderrOption = False,
) -> None:
    """List the prompts of a server, with their arguments. Arguments in [brackets] are optional."""
    from antiphon.cli.catalog.prompts import list_prompts
    from antiphon.cli.targets import Target

    with handle_errors():
        parsed = Target.parse(
            require_target(target),
            headers=header,
            token=token,
            timeout=timeout,
            protocol=protocol,
            env=env,
            stderr=stderr,
        )
        list_prompts(parsed, as_json=json)


def prompt(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[TARGET] PROMPT [KEY=VALUE]...",
            help="TARGET is a URL or a Python FILE[:NAME]. Omit it if ANTIPHON_URL is set, or if you write a "
            "command at the end. KEY=VALUE passes a text, and KEY=@FILE passes the content of a file.",
            show_default=False,
        ),
    ],
    url: UrlOption = None,
    answer: AnswersOption = None,
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
    """Fill in a prompt and print its messages.

    If the server asks a question, you are prompted for the answer.
    """
    from antiphon.cli.call.questions import ElicitationHandler, PreparedAnswers
    from antiphon.cli.catalog.prompts import fill_in_prompt
    from antiphon.cli.targets import Target, split_call_words

    with handle_errors():
        place, name, pairs = split_call_words(words, url, command="prompt", noun="prompt")
        target = Target.parse(
            place, headers=header, token=token, timeout=timeout, protocol=protocol, env=env, stderr=stderr
        )
        handler = ElicitationHandler(
            PreparedAnswers(answer or (), answers), default_answer=default_answer, no_input=no_input
        )
        fill_in_prompt(target, name, pairs, handler, as_json=json)


def complete(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[TARGET] PROMPT|TEMPLATE ARGUMENT [VALUE] [KEY=VALUE]...",
            help="The name of a prompt or a resource template such as notes://{day}, one of its arguments, "
            "the start of a value, and the values of other arguments.",
            show_default=False,
        ),
    ],
    url: UrlOption = None,
    json: JsonOption = False,
    header: HeadersOption = None,
    token: TokenOption = None,
    timeout: TimeoutOption = None,
    protocol: ProtocolOption = None,
    env: EnvOption = None,
    stderr: StderrOption = False,
) -> None:
    """List the values that a server suggests for an argument of a prompt or a resource template."""
    from antiphon.cli.catalog.suggestions import list_suggestions
    from antiphon.cli.targets import Target, split_call_words

    with handle_errors():
        place, reference, rest = split_call_words(words, url, command="complete", noun="prompt")
        target = Target.parse(
            place, headers=header, token=token, timeout=timeout, protocol=protocol, env=env, stderr=stderr
        )
        list_suggestions(target, reference, rest, as_json=json)
