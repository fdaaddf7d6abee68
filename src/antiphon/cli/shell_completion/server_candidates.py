"""Candidates for a word of `call`, `read`, `prompt` and `complete`, from the lists of the server.

A target that is a command or a Python file is never started: a press of Tab must not run programs. A name or
value that the command line would take for a target or a file of the user is not offered.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from urllib.parse import quote, unquote

from antiphon.cli.shell_completion.command_line import Candidate
from antiphon.cli.shell_completion.list_cache import Argument, Offer
from antiphon.cli.shell_completion.server_lists import ServerLists
from antiphon.cli.targets import names_target

__all__ = ["server_candidates"]

_VARIABLE = re.compile(r"\{(\w+)\}")


def server_candidates(
    command: str, words: Sequence[str], incomplete: str, lists: ServerLists
) -> Iterator[Candidate]:
    """Yield the candidates for the word that follows `words`, the words after the target."""
    if command == "call":
        return _tool_candidates(words, incomplete, lists)
    if command == "prompt":
        return _prompt_candidates(words, incomplete, lists)
    if command == "complete":
        return _reference_candidates(words, incomplete, lists)
    return _uri_candidates(incomplete, lists) if command == "read" and not words else iter(())


def _tool_candidates(words: Sequence[str], incomplete: str, lists: ServerLists) -> Iterator[Candidate]:
    tools = lists.get("tools")
    if not words:
        yield from _names(tools)
    elif (tool := _find(tools, words[0])) is not None:
        if "=" not in incomplete:
            yield from _argument_names(tool, words[1:])
            return
        for argument in filter(_is_plain_argument, tool.arguments):
            for value in filter(_is_plain_value, argument.values):
                yield Candidate(f"{argument.name}={value}")


def _prompt_candidates(words: Sequence[str], incomplete: str, lists: ServerLists) -> Iterator[Candidate]:
    prompts = lists.get("prompts")
    if not words:
        yield from _names(prompts)
    elif (prompt := _find(prompts, words[0])) is not None:
        key, equals, typed = incomplete.partition("=")
        if not equals:
            yield from _argument_names(prompt, words[1:])
        elif any(argument.name == key for argument in prompt.arguments):
            for value in filter(_is_plain_value, lists.values(prompt.name, key, typed, _pairs(words[1:]))):
                yield Candidate(f"{key}={value}")


def _reference_candidates(words: Sequence[str], incomplete: str, lists: ServerLists) -> Iterator[Candidate]:
    if not words:
        yield from _names(lists.get("prompts"))
        yield from _names(lists.get("templates"))
        return
    names = _VARIABLE.findall(words[0])
    if not names and (prompt := _find(lists.get("prompts"), words[0])) is not None:
        names = [argument.name for argument in prompt.arguments]
    if len(words) == 1:
        yield from map(Candidate, names)
    elif len(words) == 2 and words[1] in names:
        found = lists.values(words[0], words[1], incomplete, {})
        yield from map(Candidate, filter(_is_plain_value, found))
    elif len(words) > 2:
        used = {words[1], *_pairs(words[3:])}
        yield from (Candidate(f"{name}=") for name in names if name not in used)


def _uri_candidates(incomplete: str, lists: ServerLists) -> Iterator[Candidate]:
    # A URI may look like a target: `read` tells them apart by the number of words.
    yield from (Candidate(offer.name, offer.help) for offer in lists.get("resources"))
    for template in lists.get("templates"):
        yield from _expansions(template, incomplete, lists)


def _expansions(template: Offer, incomplete: str, lists: ServerLists) -> Iterator[Candidate]:
    """Yield the URIs of a template that continue what was typed, up to the end of the next variable."""
    # Parts at even positions are literal, parts at odd positions are names of variables.
    parts = _VARIABLE.split(template.name)
    if any("{" in literal for literal in parts[::2]):
        return  # an expression that has more than a name
    done = parts[0]
    known: dict[str, str] = {}
    if not incomplete.startswith(done):
        yield Candidate(done, template.help)
        return
    for name, literal in zip(parts[1::2], parts[2::2], strict=True):
        rest = incomplete[len(done) :]
        typed, end, _ = rest.partition(literal) if literal else (rest, "", "")
        if not end:
            typed = unquote(rest)
            for value in lists.values(template.name, name, typed, known):
                yield Candidate(done + quote(value, safe="") + literal, template.help)
            return
        known[name] = unquote(typed)
        done += typed + literal


def _argument_names(offer: Offer, pairs: Sequence[str]) -> Iterator[Candidate]:
    """Yield the arguments that the user has not given yet."""
    given = {pair.partition("=")[0].removesuffix(":") for pair in pairs}
    for argument in filter(_is_plain_argument, offer.arguments):
        if argument.name not in given:
            yield Candidate(f"{argument.name}=", argument.help)


def _names(offers: Sequence[Offer]) -> Iterator[Candidate]:
    """Yield the names that no command takes for another server, or for a file to start."""
    for offer in offers:
        if not names_target(offer.name):
            yield Candidate(offer.name, offer.help)


def _is_plain_argument(argument: Argument) -> bool:
    """Return whether `NAME=` means this argument: `NAME:=` takes JSON, and the first `=` ends the name."""
    return not argument.name.endswith(":") and "=" not in argument.name


def _is_plain_value(value: str) -> bool:
    """Return whether a value means itself: `NAME=@FILE` sends a file of the user."""
    return not value.startswith("@")


def _find(offers: Sequence[Offer], name: str) -> Offer | None:
    return next((offer for offer in offers if offer.name == name), None)


def _pairs(words: Sequence[str]) -> dict[str, str]:
    found = (word.partition("=") for word in words)
    return {key: value for key, equals, value in found if equals}
