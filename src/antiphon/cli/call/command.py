"""`antiphon call`: calls one tool, answers its questions, prints its result and returns the exit code."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from antiphon.cli import render
from antiphon.cli.call.arguments import parse_arguments
from antiphon.cli.call.connecting import answering_client, find_by_name
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
from antiphon.cli.saving import SAVE_HINT
from antiphon.cli.targets import Target, run_async
from antiphon.errors import AntiphonError, BadAnswer, MethodNotFound, Unreachable
from antiphon.model.notification import Progress
from antiphon.model.outcome import Result
from antiphon.printable import printable

if TYPE_CHECKING:
    from antiphon.cli.call.attachments import Attachments
    from antiphon.client import Client, Stream, TaskHandle

__all__ = ["call_tool", "stream_tool"]


def call_tool(
    target: Target,
    name: str,
    pairs: Sequence[str],
    args: str | None,
    handler: ElicitationHandler,
    *,
    as_json: bool,
    as_task: bool = False,
    attachments: Attachments | None = None,
) -> int:
    """Call a tool and print its result. Return the exit code. Raises `CommandError`.

    With `attachments`, images, audio, files and artifacts of the result are saved.
    """
    follower = TaskFollower(target) if as_task else None
    result = run_async(_call(target, name, pairs, args, handler, follower, attachments), target)
    if as_json:
        print(render.result_as_json(result))
    elif result.is_error:
        render.print_failure(result)
    elif attachments is None:
        render.print_result(result)
    elif (rest := attachments.without_files(result)) is not None and (rest.content or rest.structured):
        render.print_result(rest)
    return _finish(result, attachments, as_json=as_json)


def stream_tool(
    target: Target,
    name: str,
    pairs: Sequence[str],
    args: str | None,
    handler: ElicitationHandler,
    *,
    as_json: bool,
    as_task: bool = False,
    attachments: Attachments | None = None,
) -> int:
    """Call a tool and print each segment as it arrives. Return the exit code. Raises `CommandError`.

    With `attachments`, images, audio, files and artifacts of the result are saved at the end.
    """
    follower = TaskFollower(target) if as_task else None
    work = _stream(target, name, pairs, args, handler, follower, attachments, as_json=as_json)
    printed, result = run_async(work, target)
    if as_json:
        print(render.result_as_json(result, on_one_line=True))
    elif result.is_error:
        render.print_failure(Result(result.content[printed:] or result.content[-1:]))
    elif not result.content:
        render.print_result(result)
    return _finish(result, attachments, as_json=as_json)


def _finish(result: Result, attachments: Attachments | None, *, as_json: bool) -> int:
    """Save the files of a result that was printed, or say how. Return the exit code of the call."""
    if result.is_error:
        return FAILED
    if attachments is not None:
        attachments.save()
    elif not as_json and any(map(render.is_binary, result.content)):
        print(SAVE_HINT, file=sys.stderr)
    return 0


async def _call(
    target: Target,
    name: str,
    pairs: Sequence[str],
    args: str | None,
    handler: ElicitationHandler,
    follower: TaskFollower | None,
    attachments: Attachments | None,
) -> Result:
    display = ProgressDisplay(live=follower is None)
    elicit = display.hidden_during(handler) if follower is None else follower.hidden_during(handler)
    on_progress = follower.progress if follower is not None and follower.has_line else display.progress
    async with _prepare_call(target, name, pairs, args, handler, elicit, display, on_progress) as prepared:
        client, arguments = prepared
        if follower is None:
            result = await _wait_for_call(target, client, name, arguments)
        else:
            result = await follower.wait_for_result(await client.submit(name, arguments))
        if attachments is not None:
            await attachments.collect(client, result)
        return result


async def _wait_for_call(target: Target, client: Client, name: str, arguments: dict[str, Any]) -> Result:
    """Return the result of a call. If the call becomes a task and is given up, the task is cancelled.

    A task that waits for an answer is left alone: the user has not answered, and can do so later.
    """
    handles: list[TaskHandle] = []
    try:
        return await client.call(name, arguments, timeout=target.limit, check=False, on_task=handles.append)
    except BaseException as error:
        for handle in handles:
            status = await current_status(handle, error)
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
        id = printable(handle.id or "")
        print(f"Cancelled task {id}.", file=sys.stderr)
        print(
            f"To go on where it stopped, as a new task: antiphon tasks retry STORE {id} "
            "(STORE is that of the server, such as sqlite:///tasks.db)",
            file=sys.stderr,
        )
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
    follower: TaskFollower | None,
    attachments: Attachments | None,
    *,
    as_json: bool,
) -> tuple[int, Result]:
    """Return how many segments were printed, and the result."""
    printed = 0

    async def print_all(stream: Stream) -> Result:
        nonlocal printed
        async with stream:
            async for segment in stream:
                render.print_segment(segment, as_json=as_json)
                printed += 1
        return stream.result

    display = ProgressDisplay(live=False)
    async with _prepare_call(target, name, pairs, args, handler, handler, display) as prepared:
        client, arguments = prepared
        if follower is None:
            result = await print_all(client.stream(name, arguments, timeout=target.limit, check=False))
        else:
            handle = await client.submit(name, arguments)
            result = await follower.wait_for_stream(handle, print_all)
        if attachments is not None:
            await attachments.collect(client, result)
    return printed, result


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
    async with answering_client(target, handler, display, elicit, on_progress) as client:
        if not client.offers.tools:
            raise CommandError(f"{handler.server_name} has no tools.")
        yield client, parse_arguments(pairs, args, await _input_schema(client, name))


async def _input_schema(client: Client, name: str) -> Mapping[str, Any]:
    """Return the schema of a tool's arguments; empty for a server that opens no session and has no list."""
    try:
        tools = await client.tools()
    except (MethodNotFound, BadAnswer, Unreachable):
        if client.capabilities:
            raise
        return {}
    return find_by_name("tool", name, tools).input_schema
