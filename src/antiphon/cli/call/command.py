"""`antiphon call`: one call of one tool, and how it ended."""

from __future__ import annotations

import difflib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from antiphon.cli import render
from antiphon.cli.call.arguments import read_arguments
from antiphon.cli.call.follow_task import Following
from antiphon.cli.call.progress import Meter
from antiphon.cli.call.questions import Asker
from antiphon.cli.exit_codes import FAILED, CommandError
from antiphon.cli.targets import Target, run
from antiphon.errors import RequestError
from antiphon.model.catalog import ToolDefinition
from antiphon.model.outcome import Result

if TYPE_CHECKING:
    from antiphon.client import Client

__all__ = ["call_tool", "stream_tool"]


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


def stream_tool(
    target: Target, name: str, pairs: Sequence[str], whole: str | None, asker: Asker, *, as_json: bool
) -> int:
    """Call a tool and print each segment as it comes; the exit code. Raises `CommandError`."""
    shown, result = run(_stream(target, name, pairs, whole, asker, as_json=as_json))
    if as_json:
        print(render.as_json(result, on_one_line=True))
    elif result.is_error:
        render.failure(Result(result.content[shown:] or result.content[-1:]))
    elif not result.content:
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
    meter = Meter(live=following is None)
    elicit = meter.aside(asker) if following is None else following.aside(asker)
    async with _prepared(target, name, pairs, whole, asker, elicit, meter) as (client, arguments):
        if following is None:
            return await client.call(name, arguments, check=False)
        return await following.result(await client.submit(name, arguments))


async def _stream(
    target: Target, name: str, pairs: Sequence[str], whole: str | None, asker: Asker, *, as_json: bool
) -> tuple[int, Result]:
    """How many segments were shown, and the result."""
    shown = 0
    async with (
        _prepared(target, name, pairs, whole, asker, asker, Meter(live=False)) as (client, arguments),
        client.stream(name, arguments, check=False) as stream,
    ):
        async for segment in stream:
            render.segment(segment, as_json=as_json)
            shown += 1
    return shown, stream.result


@asynccontextmanager
async def _prepared(
    target: Target,
    name: str,
    pairs: Sequence[str],
    whole: str | None,
    asker: Asker,
    elicit: Any,
    meter: Meter,
) -> AsyncIterator[tuple[Client, dict[str, Any]]]:
    """A client, and the arguments for the tool; raises what stopped the asker, where something did."""
    async with target.client(on_progress=meter.progress, on_log=meter.log, elicit=elicit) as client:
        if client.server is not None:
            asker.server = client.server.title or client.server.name
        if "tools" not in client.capabilities:
            raise CommandError(f"{asker.server} has no tools at all.")
        tool = _named(name, await client.tools())
        arguments = read_arguments(pairs, whole, tool.input_schema)
        try:
            yield client, arguments
        except RequestError:
            if asker.stopped is not None:
                raise asker.stopped from None
            raise
        finally:
            meter.close()
        if asker.stopped is not None:
            raise asker.stopped


def _named(name: str, tools: Sequence[ToolDefinition]) -> ToolDefinition:
    for tool in tools:
        if tool.name == name:
            return tool
    names = [tool.name for tool in tools]
    close = difflib.get_close_matches(name, names, n=1)
    hint = f"Did you mean {close[0]!r}?" if close else f"It offers: {', '.join(names[:20]) or 'none'}."
    raise CommandError(f"The server has no tool {name!r}. {hint}")
