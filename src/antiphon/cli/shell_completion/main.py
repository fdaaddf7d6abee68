"""Completes a line: prints the candidates for the word at the cursor, one on a line, for a shell's script.

Prints nothing if anything fails. Commands and options come from typer's commands, names and values of a
server from `server_candidates`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from antiphon.cli.shell_completion.command_line import (
    BASH_WORD_BREAKS,
    Candidate,
    Line,
    format_candidates,
    parse_line,
)
from antiphon.cli.shell_completion.scripts import LINE, SHELL, WORD_BREAKS

__all__ = ["candidates", "complete_line"]

TIMEOUT_SECONDS = 1.5
"""How long a press of Tab waits for a server, unless `ANTIPHON_COMPLETION_TIMEOUT` says another time."""
START_SECONDS = 0.5
"""How long a press of Tab may take beside the time for the server."""
SERVER_COMMANDS = ("call", "read", "prompt", "complete")
"""The commands whose words a server completes."""


def complete_line() -> None:
    """Print the candidates for the line in the environment, and exit."""
    shell = os.environ.get(SHELL, "").removeprefix("complete_")
    line = parse_line(os.environ.get(LINE, ""))
    word_breaks = os.environ.get(WORD_BREAKS, BASH_WORD_BREAKS)
    found: list[str] = []

    def work() -> None:
        # An error of any kind, even an exit of typer, must not reach the terminal.
        with contextlib.suppress(Exception, SystemExit):
            found.extend(format_candidates(candidates(line), line, shell, word_breaks))

    logging.disable()
    # A thread can be left behind: the look-up of a host name cannot be stopped.
    thread = threading.Thread(target=work, daemon=True)
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
        thread.start()
        with contextlib.suppress(KeyboardInterrupt):
            thread.join(START_SECONDS + _timeout())
        if found:
            print("\n".join(found), flush=True)
        os._exit(0)


def _timeout() -> float:
    """Return how long a press of Tab waits for a server, in seconds."""
    try:
        return float(os.environ.get("ANTIPHON_COMPLETION_TIMEOUT", TIMEOUT_SECONDS))
    except ValueError:
        return TIMEOUT_SECONDS


def candidates(line: Line) -> Iterator[Candidate]:
    from typer.main import get_command

    from antiphon.cli.commands import app

    command: Any = get_command(app)
    names, words = [], list(line.words[1:])
    while words and hasattr(command, "commands"):
        name = words.pop(0)
        if not name.startswith("-"):
            command = command.commands[name]
            names.append(name)
    if "--" in words:
        return  # the words after it are those of another program
    with command.make_context(names[-1] if names else "antiphon", words, resilient_parsing=True) as context:
        items = _static_items(command, context, line.words, line.incomplete)
        if items is not None:
            yield from (Candidate(item.value, item.help or "") for item in items)
        elif names and names[-1] in SERVER_COMMANDS and len(names) == 1:
            yield from _of_server(names[-1], context.params, line.incomplete)


def _static_items(command: Any, context: Any, words: Sequence[str], incomplete: str) -> list[Any] | None:
    """Return the commands or options for a word, or the values of an option; `None` for other words."""
    option = next((param for param in command.params if words[-1] in param.opts), None)
    if option is not None and option.param_type_name == "option" and not option.is_flag:
        return list(option.shell_complete(context, incomplete))
    if incomplete.startswith("-") or hasattr(command, "commands"):
        return list(command.shell_complete(context, incomplete))
    return None


def _of_server(command: str, options: dict[str, Any], incomplete: str) -> Iterator[Candidate]:
    from antiphon.cli.shell_completion.server_candidates import server_candidates
    from antiphon.cli.shell_completion.server_lists import ServerLists, with_login
    from antiphon.cli.targets import Target, is_python_file, is_url

    words = [*(options["words"] or ())]
    # The line may name the URL by a variable, as in `antiphon call $URL greet`.
    place = os.path.expandvars(words[0]) if words else ""
    if is_url(place):
        del words[0]
    else:
        place = options["url"] or ""
    if not is_url(place) or (words and is_python_file(words[0])):
        return
    target = Target.parse(
        place,
        headers=options["header"],
        token=options["token"],
        timeout=_timeout(),
        protocol=options["protocol"],
    )
    yield from server_candidates(command, words, incomplete, ServerLists(with_login(target)))
