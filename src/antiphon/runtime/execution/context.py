"""The one `Context` an author sees: what a function may know of its call, say, ask and do during it."""

from __future__ import annotations

import asyncio
import concurrent.futures
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from antiphon.errors import Declined, MissingCapability
from antiphon.model.identity import LOG_LEVELS, Implementation, LogLevel, Principal
from antiphon.model.notification import Log, Progress
from antiphon.model.question import Elicit, ElicitResult, ListRoots, OpenUrl, Root, Sample, SampleResult
from antiphon.model.request import RequestId
from antiphon.runtime.authoring import step as steps
from antiphon.runtime.authoring.forms import Form
from antiphon.runtime.execution.run import Run, Suspended, current_step

if TYPE_CHECKING:
    from antiphon.runtime.execution.invoke import Environment

__all__ = ["Context"]

T = TypeVar("T")
P = ParamSpec("P")


class Context:
    """One call, as the function that serves it sees it.

    A function gets it by having a parameter annotated `Context`. In a function that is not `async`,
    which runs in a thread, wrap what would be awaited: `ctx.wait(ctx.progress(1))`.
    """

    __slots__ = ("_call", "_environment", "_loop", "_progress", "_run")

    def __init__(self, run: Run, environment: Environment) -> None:
        self._run = run
        self._call = run.call
        self._environment = environment
        self._progress = float("-inf")
        self._loop = asyncio.get_running_loop()

    @property
    def principal(self) -> Principal:
        """Who is calling; its id is empty on a server that does not ask."""
        return self._call.principal

    @property
    def request_id(self) -> RequestId:
        """The id of the request, as the log has it."""
        return self._call.id

    @property
    def client(self) -> Implementation | None:
        """What the client says of itself."""
        return self._call.request_meta.client

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """What the client declared that it can do."""
        return self._call.request_meta.capabilities

    @property
    def meta(self) -> Mapping[str, Any]:
        """The `_meta` of the request."""
        return self._call.request_meta.raw

    @property
    def streams(self) -> bool:
        """Whether the caller takes what is emitted as it comes; the others get all of it at the end."""
        return self._call.request_meta.wants_stream or "streaming" in (
            self._call.request_meta.response_modes or ()
        )

    @property
    def lifespan(self) -> Any:
        """What the server's lifespan yielded."""
        return self._environment.lifespan

    def require(self, *capabilities: str) -> None:
        """Raise `MissingCapability` unless the client declared all of these."""
        missing = [name for name in capabilities if name not in self.capabilities]
        if missing:
            raise MissingCapability(
                f"This needs a client that can do {' and '.join(missing)}, and this one did not declare it.",
                needs={name: {} for name in missing},
            )

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Say how far the call has come. Nothing is sent to a caller that did not ask for it.

        `progress` must rise; a value that does not is not sent.
        """
        token = self._call.request_meta.progress_token
        if token is None or progress <= self._progress:
            return
        self._progress = progress
        await self._call.caller.notify(Progress(token, progress, total, message))

    report_progress = progress
    """The same, by the name that it has in other libraries."""

    async def log(self, level: LogLevel, data: Any, *, logger: str | None = None) -> None:
        """Send a log message to the caller, if it wants to hear of this level."""
        wanted = self._call.log_level
        if wanted is not None and LOG_LEVELS[level] >= LOG_LEVELS[wanted]:
            await self._call.caller.notify(Log(level, data, logger))

    async def debug(self, data: Any, *, logger: str | None = None) -> None:
        """Log at the level `debug`."""
        await self.log("debug", data, logger=logger)

    async def info(self, data: Any, *, logger: str | None = None) -> None:
        """Log at the level `info`."""
        await self.log("info", data, logger=logger)

    async def warning(self, data: Any, *, logger: str | None = None) -> None:
        """Log at the level `warning`."""
        await self.log("warning", data, logger=logger)

    async def error(self, data: Any, *, logger: str | None = None) -> None:
        """Log at the level `error`."""
        await self.log("error", data, logger=logger)

    # Asking. What a function does outside of a step may happen again after a question: see `step`.

    @overload
    async def elicit(
        self, message: str, form: type[T], *, key: str | None = None, mode: Any = "form"
    ) -> T: ...
    @overload
    async def elicit(
        self, message: str, form: Mapping[str, Any], *, key: str | None = None, mode: Any = "form"
    ) -> dict[str, Any]: ...
    @overload
    async def elicit(self, message: str, *, url: str, key: str | None = None) -> None: ...
    async def elicit(
        self,
        message: str,
        form: Any = None,
        *,
        url: str | None = None,
        key: str | None = None,
        mode: Any = "form",
    ) -> Any:
        """Ask a person to fill in a form, or to go to a `url`.

        `form` is a model, a dataclass, a TypedDict, a string, number or choice, or a JSON schema. The
        call may stop here, and the function be run again from its beginning when the answer is there;
        what must not happen twice stands in a `step`. `key` names the question; the same key gets the
        same answer in every version of the function. Raises `Declined`, and `MissingCapability`.
        """
        if url is not None:
            answer = await self._run.ask(OpenUrl(message, url), key)
            _agreed(answer, message)
            return None
        shown = Form.of(form)

        value: Any = None

        def fits(given: ElicitResult) -> str | None:
            nonlocal value
            if given.action != "accept":
                return None
            value, wrong = shown.read(given.content)
            return wrong

        asked = Elicit(message, shown.schema, mode)
        answer = await self._run.ask(asked, key or shown.key(message), fits)
        _agreed(answer, message)
        return value

    async def sample(
        self,
        messages: str | Sequence[Mapping[str, Any]],
        *,
        max_tokens: int = 1000,
        system: str | None = None,
        key: str | None = None,
        **params: Any,
    ) -> SampleResult:
        """Ask the client's model. `params` are further ones of `sampling/createMessage`, as on the wire.

        Raises `MissingCapability`. As with `elicit`, the call may stop here and be run again.
        """
        if isinstance(messages, str):
            messages = [{"role": "user", "content": {"type": "text", "text": messages}}]
        asked: dict[str, Any] = {"messages": list(messages), "maxTokens": max_tokens, **params}
        if system is not None:
            asked["systemPrompt"] = system
        answer: SampleResult = await self._run.ask(Sample(asked), key)
        return answer

    async def roots(self, *, key: str | None = None) -> list[Root]:
        """Ask which folders the client works in. As with `elicit`, the call may stop here."""
        answer = await self._run.ask(ListRoots(), key)
        return list(answer.roots)

    # Doing

    @overload
    async def step(self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    async def step(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    async def step(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call a function once, whatever happens: its result is recorded, and found again in a replay.

        The result is written as JSON and read back through the function's return annotation. Steps
        are found by the function's name, and by how often it was called before.
        """
        step = steps.of(function)
        key = self._run.journal.key("step", step.name)
        work = step.work(self._environment.threads, args, kwargs)
        return step.load(await self._run.step(key, work, step.dump))

    async def checkpoint(self) -> None:
        """A point at which a server that is told to shed may hand the call back to its caller."""
        await self._run.checkpoint()

    async def promise(self) -> None:
        """Go on as a task, if the caller takes a promise in place of an answer.

        For tools with `answer_within`. What was asked so far moves from the caller into the store. Does
        nothing where the call is a task already, or cannot become one.
        """
        if self._call.convert is not None:
            await self._call.convert()

    async def emit(self, value: Any) -> None:
        """Give the caller something of the result already: text, a block, a model, or a list of these.

        A caller that wants to see a tool at work gets it as it comes, by number; every other caller gets
        all of it at the end, before what the function returns. In a generator, `yield` does the same. In
        a replay, what was emitted before is not sent again.
        """
        await self._run.emit(value)

    def now(self) -> datetime:
        """The time, in UTC; the same in every replay."""
        return self._run.journal.now()

    def random(self) -> float:
        """A random number from 0 up to 1; the same in every replay."""
        return int.from_bytes(self._run.journal.derived("random")[:7], "big") / (1 << 56)

    def uuid(self) -> uuid.UUID:
        """A random UUID; the same in every replay."""
        return uuid.UUID(bytes=self._run.journal.derived("uuid")[:16], version=4)

    @property
    def idempotency_key(self) -> str:
        """Inside a step, a key for the outside world that is the same however often the step is tried."""
        step = current_step.get()
        if step is None:
            raise RuntimeError(
                "ctx.idempotency_key is there inside a step: call it in the function of the step."
            )
        return self._run.journal.digest(step).hex()[:32]

    @property
    def suspending(self) -> bool:
        """Whether the function is being unwound to wait for an answer, and not because it ends."""
        return self._run.suspending

    @property
    def elapsed(self) -> float:
        """The seconds spent in this call, in this round."""
        return self._run.elapsed

    # The explicit style: return `InputRequired`, and find the answers and the state here

    @property
    def input_responses(self) -> Mapping[str, Any]:
        """What the caller answered to the questions of the round before, as on the wire."""
        return self._run.responses

    @property
    def state(self) -> Any:
        """The `state` of the `InputRequired` that the round before returned."""
        return self._run.journal.state

    async def close_stream(self) -> None:
        """Let go of the caller's connection; it comes back for the rest.

        For long calls behind gateways that cut connections. Does nothing where the protocol version or
        the transport has no streams that can be taken up again.
        """
        await self._call.caller.close_stream()

    def wait(self, awaitable: Coroutine[Any, Any, T]) -> T:
        """Wait for something of the context's in a function that is not `async`.

        Raises `RuntimeError` in one that is: there, use `await`.
        """
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is self._loop:
            awaitable.close()
            raise RuntimeError("ctx.wait is for functions that are not async: here, use await.")
        try:
            return asyncio.run_coroutine_threadsafe(awaitable, self._loop).result()
        except concurrent.futures.CancelledError:
            raise Suspended from None


def _agreed(answer: ElicitResult, message: str) -> None:
    if answer.action != "accept":
        verb = "declined" if answer.action == "decline" else "dismissed without an answer"
        raise Declined(f"This was {verb}: {message}", action=answer.action)
