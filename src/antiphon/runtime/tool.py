"""A tool: a function, what it takes and gives, and one run of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pydantic

from antiphon.errors import Failure, RequestError, StoreError
from antiphon.model.catalog import ToolAnnotations, ToolDefinition
from antiphon.model.content import Icon, Text
from antiphon.model.outcome import InputRequired, Result
from antiphon.model.request import CallTool
from antiphon.runtime.call import Call
from antiphon.runtime.functions import Threads
from antiphon.runtime.options import TaskPolicy
from antiphon.runtime.output import Output, yielding
from antiphon.runtime.signature import explain, name_of
from antiphon.runtime.stage import Function, Stage

__all__ = ["Tool", "failed", "merged"]

logger = logging.getLogger("antiphon")


class Tool:
    """A function that a caller can run by name."""

    __slots__ = (
        "_bind",
        "_convert",
        "_invoke",
        "_is_plain",
        "answer_within",
        "definition",
        "function",
        "name",
        "poll_interval",
        "resume",
        "streams",
        "task",
        "timeout",
        "ttl",
    )

    def __init__(
        self,
        function: Callable[..., Any],
        threads: Threads,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        annotations: ToolAnnotations | None = None,
        icons: Sequence[Icon] | None = None,
        meta: Mapping[str, Any] | None = None,
        input_schema: Mapping[str, Any] | None = None,
        structured: bool | None = None,
        timeout: float | None = None,
        task: TaskPolicy = "forbidden",
        ttl: float | None = 3600.0,
        poll_interval: float = 1.0,
        answer_within: float | None = None,
        resume: bool = True,
        streams: bool | None = None,
    ) -> None:
        self.function = Function(function, threads, may_emit=True)
        signature = self.function.signature
        self._is_plain = signature.context is None and not self.function.emits
        self.streams = self.function.emits if streams is None else streams
        self._invoke = self.function.invoke
        self._bind = self.function.bind
        self.name = name or name_of(function)
        self.timeout = timeout
        self.task = task
        self.ttl = ttl
        self.poll_interval = poll_interval
        self.answer_within = answer_within
        self.resume = resume
        returns = yielding(signature.returns) if self.function.emits else signature.returns
        output = Output(self.name, returns, structured=structured)
        self._convert = output.convert
        self.definition = ToolDefinition(
            name=self.name,
            title=title,
            description=description or signature.description,
            input_schema=dict(input_schema) if input_schema is not None else signature.schema,
            output_schema=output.schema,
            annotations=annotations,
            icons=tuple(icons) if icons else None,
            meta=dict(meta) if meta else None,
            execution=None if task == "forbidden" else {"taskSupport": task},
        )

    async def run(self, call: Call[CallTool], stage: Stage) -> Result | InputRequired:
        """Run it once; raises only `RequestError` and cancellation."""
        try:
            arguments = self._bind(call.request.arguments)
        except pydantic.ValidationError as error:
            problems = explain(error, self.function.names)
            return Result(f"Invalid arguments for the tool {self.name!r}:\n{problems}", is_error=True)
        try:
            if self._is_plain and call.request.request_state is None:
                return self._convert(await self._invoke(**arguments))
            value = await self.function.run(call, arguments, stage)
            if type(value) is InputRequired:
                return value
            if call.emissions is None or not call.emissions.begun:
                return self._convert(value)
            return await merged(call, self._after_segments(value))
        except Failure as failure:
            return await merged(call, failed(failure))
        except (RequestError, StoreError):
            if call.emissions is not None:
                await call.emissions.flush()
            raise
        except Exception:
            logger.exception("The tool %r failed in request %r.", self.name, call.id)
            result = Result(
                f"The tool {self.name!r} failed with an internal error. "
                f"The server's log has the details, under request {call.id!r}.",
                is_error=True,
            )
            return await merged(call, result)

    def _after_segments(self, value: Any) -> Result:
        """What is returned after segments: data is not written out a second time, as text."""
        if value is None:
            return Result()
        result = self._convert(value)
        if result.structured and not isinstance(value, Result):
            result.content = ()
        return result


async def merged(call: Call[CallTool], result: Result) -> Result:
    """The result, after what was emitted before it."""
    if call.emissions is not None:
        emitted = await call.emissions.rest()
        result.content = (*emitted, *result.content)
        result.emitted = len(emitted)
    return result


def failed(failure: Failure) -> Result:
    """The result of a call that failed in a way its author foresaw."""
    content = failure.content or (Text(failure.message),)
    if failure.data is None:
        return Result(content, is_error=True)
    return Result(content, data=failure.data, is_error=True)
