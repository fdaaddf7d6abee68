"""Passes one request of a caller on to an upstream server, and its outcome back.

Owns the rounds of such a request, whichever way the server asks, and the errors. It must not know under which
name the caller knows the item, or how the server is connected.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec

from antiphon.errors import (
    AntiphonError,
    ClientError,
    Failure,
    InternalError,
    InvalidParams,
    MethodNotFound,
    MissingCapability,
    RequestError,
    TaskCancelled,
)
from antiphon.gateway.questions import answer_question, current_context, may_be_asked
from antiphon.gateway.upstream import Upstream
from antiphon.gateway.upstream_client import UpstreamClient
from antiphon.model.notification import Progress
from antiphon.model.outcome import InputRequired
from antiphon.model.request import CallTool, GetPrompt, ReadResource, RequestMeta
from antiphon.model.task_status import TaskStatus
from antiphon.model.ui import declare_ui, shows_ui
from antiphon.runtime.execution.call import Call
from antiphon.runtime.execution.context import Context, call_of
from antiphon.wire.client.dialect import forwarded

__all__ = ["forward", "forwarded_meta", "translated_errors"]

R = TypeVar("R", CallTool, GetPrompt, ReadResource)

_MAX_ROUNDS = 100
"""How many rounds a server may ask for in one call."""
_PASSED_ON = (InvalidParams, MethodNotFound, MissingCapability)
"""Errors of an upstream server that the caller gets as they are. Others concern the gateway's own request."""


async def forward(upstream: Upstream, request: R, context: Context) -> Any:
    """Send a request to an upstream server, and return its outcome.

    If the server returns its questions, they are returned too, and the next run continues from the state. If
    not, the caller is asked meanwhile. Raises `Failure` if the server cannot be reached, and the errors that
    the server answers with.
    """
    call = call_of(context)
    upstream.check(call)
    mark = upstream.mark_of(call)
    token = current_context.set(context)
    try:
        with translated_errors(upstream.name):
            if upstream.returns_questions:
                return await _one_round(upstream.client, request, context, mark)
            try:
                async with upstream.connection_for(request, context) as client:
                    return await _all_rounds(client, request, context, mark)
            except InternalError as error:
                if not upstream.must_return_questions(request, error):
                    raise
            # The function returned its questions, so it is written to be run again.
            async with upstream.connection_for(request, context) as client:
                return await _all_rounds(client, request, context, mark)
    except Failure:
        if call.work.is_cancelled:  # the error is the end of the connection, which the cancellation caused
            raise asyncio.CancelledError from None
        raise
    finally:
        current_context.reset(token)


async def _one_round(client: UpstreamClient, request: R, context: Context, mark: Mapping[str, Any]) -> Any:
    """Send one round; the questions and the state of the server become those of the call."""
    state, responses = context.state, dict(context.input_responses)
    if isinstance(state, dict) and "task" in state:
        handle = client.follow(str(state["task"]))
        if responses:
            await handle.answer(responses)
        return await _until_asked(client, handle.id or "", context)
    if state is not None or responses:
        sealed = state.get("sealed") if isinstance(state, dict) else None
        request = msgspec.structs.replace(request, input_responses=responses, request_state=sealed)
    outcome = await client.forward(request, forwarded_meta(context, mark), on_progress=_progress(context))
    if isinstance(outcome, InputRequired):
        return InputRequired(outcome.questions, state={"sealed": outcome.sealed})
    if isinstance(outcome, TaskStatus):
        await context.promise()  # a caller that accepts tasks gets one too
        return await _until_asked(client, outcome, context)
    return outcome


async def _until_asked(client: UpstreamClient, task: TaskStatus | str, context: Context) -> Any:
    """Follow a task of the server, to its end or to its questions."""
    handle = client.follow(task, _progress(context))
    try:
        async for status in handle.updates():
            if status.has_ended:
                return await handle.result(check=False)
            if status.status == "input_required" and status.questions:
                return InputRequired(status.questions, state={"task": handle.id})
            if status.progress is not None:
                await _report(status.progress, context)
    except asyncio.CancelledError:
        with contextlib.suppress(AntiphonError):
            await handle.cancel()
        raise
    raise ClientError("The server stopped reporting on its task.")


async def _all_rounds(client: UpstreamClient, request: R, context: Context, mark: Mapping[str, Any]) -> Any:
    """Send rounds until there is a result. Questions on the connection are answered beside this."""
    meta = forwarded_meta(context, mark)
    if may_be_asked(call_of(context)):  # then it has the connection for itself
        await client.use_log_level(meta.log_level)
    for _ in range(_MAX_ROUNDS):
        outcome = await client.forward(request, meta, on_progress=_progress(context))
        if isinstance(outcome, TaskStatus):
            return await client.follow(outcome, _progress(context)).drive(timeout=None)
        if not isinstance(outcome, InputRequired):
            return outcome
        asking = (answer_question(asked, context, key) for key, asked in outcome.questions.items())
        answers = dict(zip(outcome.questions, await asyncio.gather(*asking), strict=True))
        request = msgspec.structs.replace(request, input_responses=answers, request_state=outcome.sealed)
    raise ClientError(f"The server is still asking after {_MAX_ROUNDS} rounds.")


def forwarded_meta(context: Context, mark: Mapping[str, Any]) -> RequestMeta:
    """Return the metadata of the caller's request that concerns the upstream server too, and a mark."""
    call = call_of(context)
    # The server has to know what this caller can answer, and whether it shows Apps. Which other extensions
    # are used is up to the gateway.
    capabilities: dict[str, Any] = {**call.request_meta.capabilities, "extensions": {}}
    if shows_ui(call.request_meta.capabilities):
        capabilities = declare_ui(capabilities)
    return RequestMeta(
        capabilities=capabilities,
        log_level=call.log_level,
        raw={**forwarded(call.request_meta.raw), **mark},
    )


def _progress(context: Context) -> Any:
    """Return the callback for progress; `None` if nobody wants to know."""
    call: Call[Any] = call_of(context)
    if call.request_meta.progress_token is None and call.task_id is None:
        return None

    async def report(progress: Progress) -> None:
        await _report(progress, context)

    return report


async def _report(progress: Progress, context: Context) -> None:
    await context.progress(progress.progress, progress.total, progress.message)


@contextmanager
def translated_errors(name: str) -> Iterator[None]:
    """Raise errors of the connection as `Failure`, which says which server it is about."""
    try:
        yield
    except _PASSED_ON:
        raise
    except RequestError as error:
        if type(error) is RequestError or type(error) is InternalError:
            raise
        hint = ". Log in at it: antiphon login URL" if error.status == 401 else ""
        raise Failure(
            f"The server {name!r} refused the request: {error.message.rstrip('.')}{hint}."
        ) from error
    except TaskCancelled as error:
        raise Failure(f"The server {name!r} cancelled the task: {error}") from error
    except ClientError as error:
        message = str(error)
        if repr(name) not in message:
            message = f"the server {name!r}: {message}"
        raise Failure(message[:1].upper() + message[1:]) from error
