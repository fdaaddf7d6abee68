"""`antiphon prompts` lists the prompts of a server; `antiphon prompt` fills in one of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from antiphon.cli import render
from antiphon.cli.call.arguments import parse_arguments
from antiphon.cli.call.connecting import answering_client, find_by_name
from antiphon.cli.call.progress import ProgressDisplay
from antiphon.cli.call.questions import ElicitationHandler
from antiphon.cli.exit_codes import CommandError
from antiphon.cli.targets import Target, run_async
from antiphon.model.catalog import PromptArgument, PromptDefinition, PromptMessage
from antiphon.model.outcome import PromptResult, Result

__all__ = ["fill_in_prompt", "list_prompts"]

MAX_SHOWN_ARGUMENTS = 100
"""How many arguments a signature and an error message show."""


def list_prompts(target: Target, *, as_json: bool) -> None:
    """Print the prompts of a server. Raises `CommandError`."""
    prompts = run_async(_fetch_prompts(target), target)
    if as_json:
        print(render.pretty(prompts))
    elif not prompts:
        print("This server has no prompts.")
    else:
        render.print_signatures(
            [(_signature(each), render.first_line(each.description or each.title)) for each in prompts]
        )


def fill_in_prompt(
    target: Target, name: str, pairs: Sequence[str], handler: ElicitationHandler, *, as_json: bool
) -> None:
    """Fill in a prompt and print its messages. Raises `CommandError`."""
    result = run_async(_fill_in(target, name, pairs, handler), target)
    if as_json:
        value: dict[str, Any] = {"messages": result.messages}
        if result.description is not None:
            value = {"description": result.description, **value}
        print(render.pretty(value))
    else:
        _print_messages(result.messages)


def _print_messages(messages: Sequence[PromptMessage]) -> None:
    """Print messages, with their roles unless all there is is one message of the user."""
    has_roles = len(messages) > 1 or any(message.role != "user" for message in messages)
    for number, message in enumerate(messages):
        if has_roles:
            render.print_heading(f"{message.role}:")
        render.print_result(Result(message.content))
        if number < len(messages) - 1:
            print()


def _signature(prompt: PromptDefinition) -> str:
    """Return a prompt as a function, required arguments first: `review(code, [language])`."""
    arguments = sorted(prompt.arguments or (), key=lambda argument: not argument.required)
    shown = [each.name if each.required else f"[{each.name}]" for each in arguments[:MAX_SHOWN_ARGUMENTS]]
    return f"{prompt.name}({', '.join(shown)}{', …' if len(arguments) > len(shown) else ''})"


def _parse_texts(pairs: Sequence[str], prompt: PromptDefinition) -> dict[str, str]:
    """Return the arguments of a prompt, which are texts. Raises `CommandError`."""
    keys = [pair.partition("=")[0].removesuffix(":") for pair in pairs]
    given = parse_arguments(pairs, None, {"properties": {key: {"type": "string"} for key in keys}})
    for key, value in given.items():
        if not isinstance(value, str):
            raise CommandError(f"The arguments of prompts are texts: write {key}=value.")
    _check_names(given, prompt, prompt.arguments or ())
    return given


def _check_names(
    given: dict[str, str], prompt: PromptDefinition, arguments: Sequence[PromptArgument]
) -> None:
    """Raise `CommandError` for a missing argument, and for an unknown one."""
    names = [argument.name for argument in arguments]
    missing = [each.name for each in arguments if each.required and each.name not in given]
    if missing:
        raise CommandError(f"Missing argument: {missing[0]}=…. The prompt is {_signature(prompt)}.")
    for key in given:
        if key not in names:
            listed = ", ".join(names[:MAX_SHOWN_ARGUMENTS]) or "none"
            raise CommandError(
                f"The prompt {prompt.name!r} has no argument {key!r}. Its arguments: {listed}."
            )


async def _fetch_prompts(target: Target) -> list[PromptDefinition]:
    async with target.client() as client:
        # A server without prompts need not implement prompts/list.
        return await client.prompts() if "prompts" in client.capabilities else []


async def _fill_in(
    target: Target, name: str, pairs: Sequence[str], handler: ElicitationHandler
) -> PromptResult:
    async with answering_client(target, handler, ProgressDisplay()) as client:
        if "prompts" not in client.capabilities:
            raise CommandError(f"{handler.server_name} has no prompts.")
        definition = find_by_name("prompt", name, await client.prompts())
        return await client.prompt(name, _parse_texts(pairs, definition))
