"""`antiphon call`: one call of one tool, and how it ended."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Sequence

from antiphon.cli import render
from antiphon.cli.arguments import read_arguments
from antiphon.cli.asking import Asker
from antiphon.cli.exits import FAILED, CommandError
from antiphon.cli.targets import Target, run
from antiphon.cli.tasks_following import Following
from antiphon.errors import RequestError
from antiphon.model.catalog import ToolDefinition
from antiphon.model.notification import Log, Progress
from antiphon.model.outcome import Result

__all__ = ["call_tool"]


def call_tool(
    target: Target,
    name: str,
    pairs: Sequence[str],
    whole: str | None,
    asker: Asker,
    *,
    as_json: bool,
    as_task: bool = False,
) -> int:
    """Call a tool, answer what it asks, and print its result; the exit code. Raises `CommandError`."""
    following = Following(target) if as_task else None
    result = run(_call(target, name, pairs, whole, asker, following))
    if as_json:
        print(render.as_json(result))
    elif result.is_error:
        render.failure(result)
    else:
        render.result(result)
    return FAILED if result.is_error else 0


async def _call(
    target: Target,
    name: str,
    pairs: Sequence[str],
    whole: str | None,
    asker: Asker,
    following: Following | None,
) -> Result:
    elicit = asker if following is None else following.aside(asker)
    async with target.client(on_progress=_progress, on_log=_log, elicit=elicit) as client:
        if client.server is not None:
            asker.server = client.server.title or client.server.name
        tool = _named(name, await client.tools())
        arguments = read_arguments(pairs, whole, tool.input_schema)
        try:
            if following is None:
                result = await client.call(name, arguments, check=False)
            else:
                result = await following.result(await client.submit(name, arguments))
        except RequestError:
            if asker.stopped is not None:
                raise asker.stopped from None
            raise
        if asker.stopped is not None:
            raise asker.stopped
        return result


def _named(name: str, tools: Sequence[ToolDefinition]) -> ToolDefinition:
    for tool in tools:
        if tool.name == name:
            return tool
    names = [tool.name for tool in tools]
    close = difflib.get_close_matches(name, names, n=1)
    hint = f"Did you mean {close[0]!r}?" if close else f"It offers: {', '.join(names[:20]) or 'none'}."
    raise CommandError(f"The server has no tool {name!r}. {hint}")


def _progress(progress: Progress) -> None:
    """A line on the standard error for each step."""
    done = _number(progress.progress) + (f"/{_number(progress.total)}" if progress.total is not None else "")
    print(render.clean(f"[{done}] {progress.message or ''}".rstrip()), file=sys.stderr, flush=True)


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else f"{value:g}"


def _log(log: Log) -> None:
    text = log.data if isinstance(log.data, str) else render.compact(log.data)
    print(render.clean(f"{log.level}: {text}"), file=sys.stderr, flush=True)
