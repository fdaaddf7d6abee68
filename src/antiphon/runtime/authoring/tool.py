"""Tools: functions that callers run by name.

Owns the definition of a tool and the path of one run: bind the arguments, run the function, convert its
value. It must not know tasks or transports.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pydantic

from antiphon.errors import Failure, Forbidden, InternalError, ReplayMismatch, RequestError, StoreError
from antiphon.model.catalog import ToolAnnotations, ToolDefinition
from antiphon.model.content import Icon, Text
from antiphon.model.outcome import InputRequired, Result, text_result
from antiphon.model.request import CallTool
from antiphon.model.ui import Visibility
from antiphon.runtime.authoring.offer import Visible, read_offer
from antiphon.runtime.authoring.options import TaskPolicy
from antiphon.runtime.authoring.results import (
    InvalidReturnValue,
    ResultBuilder,
    UnserializableReturnValue,
    blocks,
    generator_return_type,
    is_block,
)
from antiphon.runtime.authoring.signature import explain, name_of
from antiphon.runtime.execution.call import Call
from antiphon.runtime.execution.executor import ThreadExecutor, share_threads
from antiphon.runtime.execution.failures import SelfCancelled, is_failure
from antiphon.runtime.execution.invoke import AuthorFunction, Environment
from antiphon.runtime.observability.telemetry import ToolCounters, call_log, classify
from antiphon.runtime.scopes import ScopesOption, meta_with_scopes, read_option
from antiphon.runtime.writable import writable

if TYPE_CHECKING:
    from antiphon.runtime.held.registry import HeldRuns

__all__ = ["Tool", "failure_result", "prepend_emitted"]

logger = logging.getLogger("antiphon")
_is_logged, _INFO = call_log.isEnabledFor, logging.INFO


class Tool:
    """A tool with its options."""

    __slots__ = (
        "_artifact_over",
        "_bind",
        "_convert",
        "_invoke",
        "_is_plain",
        "_is_text_only",
        "_is_threaded",
        "answer_within",
        "counters",
        "definition",
        "function",
        "has_artifacts",
        "is_restricted",
        "max_attempts",
        "max_queued",
        "max_running",
        "name",
        "offer",
        "poll_interval",
        "resume",
        "scopes",
        "streams",
        "task",
        "task_ttl",
        "timeout",
        "ui",
    )

    def __init__(
        self,
        function: Callable[..., Any] | AuthorFunction,
        threads: ThreadExecutor,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        annotations: ToolAnnotations | None = None,
        icons: Sequence[Icon] | None = None,
        meta: Mapping[str, Any] | None = None,
        scopes: ScopesOption | None = None,
        tags: Collection[str] = (),
        enabled: bool = True,
        visible: Visible | None = None,
        input_schema: Mapping[str, Any] | None = None,
        output_schema: Mapping[str, Any] | None = None,
        structured: bool | None = None,
        artifact_over: int | None = None,
        timeout: float | None = None,
        task: TaskPolicy = "forbidden",
        task_ttl: float | None = 3600.0,
        poll_interval: float = 1.0,
        answer_within: float | None = None,
        resume: bool = True,
        replay: bool = True,
        max_attempts: int = 5,
        max_running: int | None = None,
        max_queued: int | None = None,
        streams: bool | None = None,
        ui: str | None = None,
        visibility: Sequence[Visibility] | None = None,
    ) -> None:
        if not isinstance(function, AuthorFunction):
            name = name or name_of(function)
            function = AuthorFunction(function, threads, may_emit=True, replay=replay)
        assert name, "a function that is ready to run comes with a name"
        self.function = function
        signature = self.function.signature
        self._is_plain = (
            signature.context is None
            and artifact_over is None
            and not self.function.emits
            and not self.function.takes_artifacts
            and not self.function.has_dependencies
        )
        self._artifact_over = artifact_over
        self.counters = ToolCounters()
        self.streams = self.function.emits if streams is None else streams
        self._invoke = self.function.invoke
        self._is_threaded = self.function.is_threaded
        self._bind = self.function.bind
        self.name = name
        self.scopes = read_option(self.name, scopes)
        self.offer = read_offer(self.name, tags, enabled, visible)
        self.is_restricted = self.scopes is not None or visible is not None
        """Whether a call has to be checked: not every caller sees the tool, or callers need scopes."""
        if ui is not None or visibility is not None or (meta is not None and "ui" in meta):
            from antiphon.runtime.authoring.ui import meta_with_ui  # most servers have no Apps

            meta = meta_with_ui(self.name, meta, ui, visibility)
        self.ui = ui
        """The URI of the App that shows the results; the server has to have it when it starts."""
        self.timeout = timeout
        self.task = task
        self.task_ttl = task_ttl
        self.poll_interval = poll_interval
        self.answer_within = answer_within
        self.resume = resume and self.function.replays  # a lost worker cannot be continued either
        self.max_attempts = max_attempts
        self.max_running = max_running
        self.max_queued = max_queued
        returns = generator_return_type(signature.returns) if self.function.emits else signature.returns
        output = ResultBuilder(
            self.name,
            returns,
            structured=structured,
            output_schema=output_schema,
            may_be_artifact=artifact_over is not None,
        )
        self._convert = output.convert
        self._is_text_only = output.is_text_only
        self.has_artifacts = (
            output.returns_artifact or self.function.takes_artifacts or artifact_over is not None
        )
        self.definition = ToolDefinition(
            name=self.name,
            title=title,
            description=description or signature.description,
            input_schema=dict(input_schema) if input_schema is not None else signature.schema,
            output_schema=output.schema,
            annotations=annotations,
            icons=tuple(icons) if icons else None,
            meta=meta_with_scopes(meta, self.scopes),
            execution=ToolDefinition.execution_for(task),
        )

    async def run(self, call: Call[CallTool], environment: Environment) -> Result | InputRequired:
        """Run the function and return its outcome.

        Raises only `RequestError`, `StoreError` and `ReplayMismatch`.
        """
        if environment.telemetry.observes or _is_logged(_INFO):
            observed: Result | InputRequired = await environment.telemetry.observe(
                call, self.counters, lambda: self._perform(call, environment)
            )
            return observed
        result: Result | InputRequired
        try:
            if not self._is_plain or call.request.request_state is not None:
                result = await self._perform(call, environment)
                if isinstance(result, InputRequired):
                    self.counters.questions += 1
                elif result.is_error or call.task_id is not None or call.wants_stream:
                    self.counters.add(*classify(call, result), None)
                else:
                    self.counters.answers += 1
                return result
            # The fast path of a plain call: no context, no artifacts, no telemetry.
            try:
                arguments = self._bind(call.request.arguments)
            except pydantic.ValidationError as error:
                result = self._invalid_arguments(error)
            except BaseException as error:  # a validator of the author's raised it
                result = await self._failed(call, error)
            else:
                try:
                    if self._is_threaded:
                        share_threads(call.principal.share)
                    value = await self._invoke(**arguments)
                    if type(value) is str and self._is_text_only:
                        self.counters.answers += 1
                        return text_result(value)
                    given = self._convert(value)
                    if given.artifact is None and not given.is_error:
                        self.counters.answers += 1
                        return given
                    result = await self._store_artifact(given, call, environment)
                except BaseException as error:
                    result = await self._failed(call, error)
        except BaseException as error:
            self.counters.add(*classify(call, error), None)
            raise
        self.counters.add(*classify(call, result), None)
        return result

    async def _perform(self, call: Call[CallTool], environment: Environment) -> Result | InputRequired:
        if not self.function.replays and self.function.holds(call) and environment.held_runs is not None:
            return await self._perform_held(call, environment, environment.held_runs)
        try:
            arguments = self._bind(call.request.arguments)
        except pydantic.ValidationError as error:
            return self._invalid_arguments(error)
        except BaseException as error:  # a validator of the author's raised it
            return await self._failed(call, error)
        try:
            value = await self.function.run(call, arguments, environment)
            if type(value) is InputRequired:
                return value
            if call.output is None or not call.output.has_emitted:
                if type(value) is str and self._is_text_only and self._artifact_over is None:
                    return text_result(value)
                return await self._store_artifact(self._convert(value), call, environment)
            return await prepend_emitted(
                call, await self._store_artifact(self._after_segments(value), call, environment)
            )
        except BaseException as error:
            return await self._failed(call, error)

    async def _perform_held(
        self, call: Call[CallTool], environment: Environment, held_runs: HeldRuns
    ) -> Result | InputRequired:
        """Run the function in this process through all its questions, or continue such a run."""
        try:
            outcome: Result | InputRequired = await held_runs.serve(
                call, lambda own: self._perform(own, environment)
            )
            return outcome
        except BaseException as error:
            return await self._failed(call, error)

    def problems_of(self, arguments: Mapping[str, Any]) -> str | None:
        """Return what is wrong with arguments, or `None` if they fit the function's signature."""
        try:
            self._bind(arguments)
        except pydantic.ValidationError as error:
            return explain(error, self.function.names)
        except BaseException as error:  # a validator of the author's raised it
            return f"- checking them raised {type(error).__name__}"
        return None

    def _invalid_arguments(self, error: pydantic.ValidationError) -> Result:
        problems = explain(error, self.function.names)
        return Result(f"Invalid arguments for the tool {self.name!r}:\n{problems}", is_error=True)

    async def _failed(self, call: Call[CallTool], error: BaseException) -> Result:
        """Return the result of a call that raised.

        Raises errors that belong in a JSON-RPC error response, and the cancellation of the call.
        """
        if not is_failure(error, call.work):
            raise error
        if isinstance(error, Failure):
            return await prepend_emitted(call, failure_result(error))
        if isinstance(error, Forbidden):  # clients do not show an HTTP 403, but they show a failed tool
            return await prepend_emitted(call, Result(error.message, is_error=True))
        if isinstance(error, RequestError | StoreError | ReplayMismatch):
            if isinstance(error, RequestError) and error.data is not None:
                error.data = writable(error.data)
            if call.output is not None:
                await call.output.flush()
            raise error
        if isinstance(error, InvalidReturnValue):
            fault = (
                "returned a value that does not match its declared output, which is an error of the server"
            )
        elif isinstance(error, SelfCancelled | asyncio.CancelledError):
            what = "call" if call.task_id is None else "task"
            fault = f"stopped itself: it raised CancelledError, though nobody cancelled the {what}"
        else:
            fault = "failed with an internal error"
        logger.error("The tool %r %s, in request %r.", self.name, fault, call.id, exc_info=error)
        message = (
            f"The tool {self.name!r} {fault}. The server's log has the details, under request {call.id!r}."
        )
        if isinstance(error, UnserializableReturnValue):
            raise InternalError(message) from None
        return await prepend_emitted(call, Result(message, is_error=True))

    async def _store_artifact(self, result: Result, call: Call[CallTool], environment: Environment) -> Result:
        """Store the artifact of a result, or a result that is too large; return a result with its id."""
        if (result.artifact is None and self._artifact_over is None) or environment.artifacts is None:
            return result
        return await environment.artifacts.store_result(result, call, self, self._artifact_over)

    def _after_segments(self, value: Any) -> Result:
        """Convert the value returned after segments, without repeating its data as text."""
        if value is None:
            return Result()
        content = value.content if isinstance(value, Result) else ()
        result = self._convert(value)
        if result.structured:
            result.content = content
        return result


async def prepend_emitted(call: Call[CallTool], result: Result) -> Result:
    """Return the result with the emitted segments before its content."""
    if call.output is not None:
        emitted = await call.output.remaining()
        result.content = (*emitted, *result.content)
        result.emitted = len(emitted)
    return result


def failure_result(failure: Failure) -> Result:
    """Return the result of a call whose function raised `Failure`, with its partial results.

    Partial results that are text or blocks follow the message as content; others go into the data.
    """
    content = failure.content or (Text(failure.message),)
    data, partial = failure.data, failure.partial
    if isinstance(partial, str) or is_block(partial):
        content, partial = (*content, *blocks(partial)), None
    if data is None and (failure.details is not None or partial is not None):
        data = {"status": "error", "error": failure.message, **(failure.details or {})}
    if data is None:
        return Result(content, is_error=True)
    if partial is not None and isinstance(data, Mapping):
        data = {**data, "partial_results": partial}
    data = writable(data)
    result: Result = Result(content, data=data, is_error=True)
    result.boxed = not isinstance(data, dict)
    return result
