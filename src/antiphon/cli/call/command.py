"""`antiphon call`: calls one tool, answers its questions, prints its result and returns the exit code."""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from antiphon.cli import render
from antiphon.cli.call.arguments import parse_arguments
from antiphon.cli.call.follow_task import (
    GIVE_UP_SECONDS,
    TaskFollower,
    current_status,
    print_question_hint,
    print_task_hint,
    raise_if_failed,
)
from antiphon.cli.call.progress import ProgressDisplay
from antiphon.cli.call.questions import ElicitationHandler
from antiphon.cli.exit_codes import FAILED, CommandError
from antiphon.cli.targets import Target, run_async
from antiphon.errors import AntiphonError, RequestError
from antiphon.model.catalog import ToolDefinition
from antiphon.model.notification import Progress
from antiphon.model.outcome import Result
from antiphon.printable import printable

if TYPE_CHECKING:
    from antiphon.client import Client, TaskHandle

__all__ = ["call_tool", "stream_tool"]

MAX_SUGGESTED_TOOLS = 20
"""How many tools the message about an unknown tool lists."""


def call_tool(
    target: Target,
    name: str,
    pairs: Sequence[str],
    args: str | None,
    handler: ElicitationHandler,
    *,
    as_json: bool,
    as_task: bool = False,
) -> int:
    """Call a tool and print its result. Return the exit code. Raises `CommandError`."""
    follower = TaskFollower(target) if as_task else None
    result = run_async(_call(target, name, pairs, args, handler, follower), target)
    if as_json:
        print(render.result_as_json(result))
    elif result.is_error:
        render.print_failure(result)
    else:
        render.print_result(result)
    return FAILED if result.is_error else 0


def stream_tool(
    target: Target,
    name: str,
    pairs: Sequence[str],
    args: str | None,
    handler: ElicitationHandler,
    *,
    as_json: bool,
) -> int:
    """Call a tool and print each segment as it arrives. Return the exit code. Raises `CommandError`."""
    printed, result = run_async(_stream(target, name, pairs, args, handler, as_json=as_json), target)
    if as_json:
        print(render.result_as_json(result, on_one_line=True))
    elif result.is_error:
        render.print_failure(Result(result.content[printed:] or result.content[-1:]))
    elif not result.content:
        render.print_result(result)
    return FAILED if result.is_error else 0


async def _call(
    target: Target,
    name: str,
    pairs: Sequence[str],
    args: str | None,
    handler: ElicitationHandler,
    follower: TaskFollower | None,
) -> Result:
    display = ProgressDisplay(live=follower is None)
    elicit = display.hidden_during(handler) if follower is None else follower.hidden_during(handler)
    on_progress = follower.progress if follower is not None and follower.has_line else display.progress
    async with _prepare_call(target, name, pairs, args, handler, elicit, display, on_progress) as prepared:
        client, arguments = prepared
        if follower is None:
            return await _wait_for_call(target, client, name, arguments)
        return await follower.wait_for_result(await client.submit(name, arguments))


async def _wait_for_call(target: Target, client: Client, name: str, arguments: dict[str, Any]) -> Result:
    """Return the result of a call. If the call becomes a task and is given up, the task is cancelled.

    A task that waits for an answer is left alone: the user has not answered, and can do so later.
    """
    handles: list[TaskHandle] = []
    try:
        return await client.call(name, arguments, timeout=target.limit, check=False, on_task=handles.append)
    except BaseException as error:
        for handle in handles:
            status = await current_status(handle)
            raise_if_failed(status, error)
            await _leave(target, handle, status)
        raise


async def _leave(target: Target, handle: TaskHandle, status: str | None) -> None:
    """Cancel the task of a call that was given up, and say so.

    A task that waits for an answer of the user is left alone, and so is one whose server does not respond.
    """
    if target.is_remote and status == "input_required":
        print_question_hint(target, handle)
    elif status in ("working", "input_required") and await _cancel(handle):
        print(f"Cancelled task {printable(handle.id or '')}.", file=sys.stderr)
    elif target.is_remote and status in ("working", None):
        print_task_hint(target, handle, "The call became a task, which may still be running.")


async def _cancel(handle: TaskHandle) -> bool:
    """Cancel a task; return false if the server does not respond."""
    with contextlib.suppress(AntiphonError, TimeoutError):
        async with asyncio.timeout(GIVE_UP_SECONDS):
            await handle.cancel()
            return True
    return False


async def _stream(
    target: Target,
    name: str,
    pairs: Sequence[str],
    args: str | None,
    handler: ElicitationHandler,
    *,
    as_json: bool,
) -> tuple[int, Result]:
    """Return how many segments were printed, and the result."""
    printed = 0
    display = ProgressDisplay(live=False)
    async with (
        _prepare_call(target, name, pairs, args, handler, handler, display) as (client, arguments),
        client.stream(name, arguments, timeout=target.limit, check=False) as stream,
    ):
        async for segment in stream:
            render.print_segment(segment, as_json=as_json)
            printed += 1
    return printed, stream.result


@asynccontextmanager
async def _prepare_call(
    target: Target,
    name: str,
    pairs: Sequence[str],
    args: str | None,
    handler: ElicitationHandler,
    elicit: Any,
    display: ProgressDisplay,
    on_progress: Callable[[Progress], None] | None = None,
) -> AsyncIterator[tuple[Client, dict[str, Any]]]:
    """Connect and parse the arguments. On exit, raise the handler's error if a question had no answer."""
    on_progress = on_progress or display.progress
    async with target.client(on_progress=on_progress, on_log=display.log, elicit=elicit) as client:
        if client.server is not None:
            handler.server_name = client.server.title or client.server.name
        if "tools" not in client.capabilities:
            raise CommandError(f"{handler.server_name} has no tools.")
        tool = _find_tool(name, await client.tools())
        arguments = parse_arguments(pairs, args, tool.input_schema)
        try:
            yield client, arguments
        except RequestError:
            if handler.error is not None:
                raise handler.error from None
            raise
        finally:
            display.close()
        if handler.error is not None:
            raise handler.error


def _find_tool(name: str, tools: Sequence[ToolDefinition]) -> ToolDefinition:
    for tool in tools:
        if tool.name == name:
            return tool
    names = [tool.name for tool in tools]
    close = difflib.get_close_matches(name, names, n=1)
    listed = ", ".join(names[:MAX_SUGGESTED_TOOLS]) or "none"
    hint = f"Did you mean {close[0]!r}?" if close else f"Its tools: {listed}."
    raise CommandError(f"The server has no tool {name!r}. {hint}")
