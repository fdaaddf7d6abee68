"""The `Context` that an author's function gets: facts about its call, and methods that act on the call.

Owns the public methods and their documentation. It passes questions, steps and segments on to the `Run`, and
must not know which carrier or which transport the call has.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast, overload

from antiphon.errors import Declined, MissingCapability
from antiphon.model.identity import LOG_LEVELS, Implementation, LogLevel, Principal
from antiphon.model.notification import Log, Progress
from antiphon.model.question import Elicit, ElicitResult, ListRoots, OpenUrl, Root, Sample, SampleResult
from antiphon.model.request import RequestId
from antiphon.runtime.authoring import step as steps
from antiphon.runtime.authoring.forms import Form
from antiphon.runtime.execution.executor import is_own_thread
from antiphon.runtime.execution.failures import contain
from antiphon.runtime.execution.fingerprints import step_print
from antiphon.runtime.execution.run import Run, Suspended, current_step
from antiphon.runtime.writable import finite, is_writable, writable, writable_text

if TYPE_CHECKING:
    from antiphon.runtime.execution.invoke import Environment

__all__ = ["Context"]

T = TypeVar("T")
P = ParamSpec("P")


class Context:
    """The call that a function is serving.

    To get the context, annotate a parameter of the function with `Context`. A function that is not `async`
    runs in a thread: there, pass each coroutine to `wait`, as in `ctx.wait(ctx.progress(1))`.
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
        """The caller. The id is empty on a server without authentication."""
        return self._call.principal

    @property
    def request_id(self) -> RequestId:
        """The id of the request, as it appears in the server's log."""
        return self._call.id

    @property
    def client(self) -> Implementation | None:
        """The name and version that the client reports, or `None` if it reports none."""
        return self._call.request_meta.client

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """The capabilities that the client declared."""
        return self._call.request_meta.capabilities

    @property
    def meta(self) -> Mapping[str, Any]:
        """The `_meta` of the request."""
        return self._call.request_meta.raw

    @property
    def streams(self) -> bool:
        """Whether the caller receives segments at once. Other callers get all of them with the result."""
        return self._call.request_meta.wants_stream or "streaming" in (
            self._call.request_meta.response_modes or ()
        )

    @property
    def lifespan(self) -> Any:
        """The value that the server's lifespan yielded."""
        return self._environment.lifespan

    def require(self, *capabilities: str) -> None:
        """Raise `MissingCapability` unless the client declared all of these capabilities."""
        missing = [name for name in capabilities if name not in self.capabilities]
        if missing:
            raise MissingCapability(
                f"This needs a client that can do {' and '.join(missing)}, and this one did not declare it.",
                needs={name: {} for name in missing},
            )

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress to the caller, if the caller asked for progress.

        `progress` must increase with every report; a value that does not, or is not finite, is not sent. In a
        task, the report becomes the status message of the task, for example `3 of 10: fetching`. It is stored
        about once a second.
        """
        token = self._call.request_meta.progress_token
        if not progress > self._progress or (reached := finite(progress)) is None:
            return
        if token is None:
            if self._call.task_id is None:
                return
            token = self._call.task_id
        self._progress = progress
        text = None if message is None else writable_text(message)
        await self._call.caller.notify(Progress(token, reached, finite(total), text))

    report_progress = progress
    """An alias of `progress`, under the name that other libraries use."""

    async def log(self, level: LogLevel, data: Any, *, logger: str | None = None) -> None:
        """Send a log message to the caller, if the caller wants messages of this level.

        The name of its type replaces data that JSON cannot represent, so no message fails the call. In a
        task, the message goes into the server's log, because no caller is connected.
        """
        wanted = "debug" if self._call.task_id is not None else self._call.log_level
        if wanted is not None and LOG_LEVELS[level] >= LOG_LEVELS[wanted]:
            if not is_writable(data):
                data = writable(data)
            name = None if logger is None else writable_text(logger)
            await self._call.caller.notify(Log(level, data, name))

    async def debug(self, data: Any, *, logger: str | None = None) -> None:
        """Send a log message at the level `debug`."""
        await self.log("debug", data, logger=logger)

    async def info(self, data: Any, *, logger: str | None = None) -> None:
        """Send a log message at the level `info`."""
        await self.log("info", data, logger=logger)

    async def warning(self, data: Any, *, logger: str | None = None) -> None:
        """Send a log message at the level `warning`."""
        await self.log("warning", data, logger=logger)

    async def error(self, data: Any, *, logger: str | None = None) -> None:
        """Send a log message at the level `error`."""
        await self.log("error", data, logger=logger)

    # Asking. After a question, the function may run again from its beginning: see `step`.

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
        """Ask the user to fill in a form, or to open a `url`; return the value that the user entered.

        `form` is a pydantic model, a dataclass, a TypedDict, a simple type such as `str`, `int` or
        `Literal`, or a JSON schema. The call may stop at this line. The function then runs again from its
        beginning once the answer has arrived, so put code that must run once into a `step`. `key` names
        the question: the answer is found under the same key even if a new version of the function asks.

        Raises `Declined` if the user declines or dismisses the form, and `MissingCapability` if the client
        cannot show it. A task waits instead, because any client of its owner can answer.
        """
        if url is not None:
            answer = await self._run.ask(OpenUrl(message, url), key)
            _raise_if_declined(answer, message)
            return None
        parsed = Form.of(form)
        value: Any = None

        def check(response: ElicitResult) -> str | None:
            nonlocal value
            if response.action != "accept":
                return None
            value, problem = parsed.read(response.content)
            return problem

        question = Elicit(message, parsed.schema, mode)
        answer = await self._run.ask(question, key or parsed.key(message), check)
        _raise_if_declined(answer, message)
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
        """Ask the client's model for a completion.

        `params` are further parameters of `sampling/createMessage`, named as the protocol names them. As
        with `elicit`, the call may stop at this line and the function run again. Raises `MissingCapability`
        if the client offers no model.
        """
        if isinstance(messages, str):
            messages = [{"role": "user", "content": {"type": "text", "text": messages}}]
        request: dict[str, Any] = {"messages": list(messages), "maxTokens": max_tokens, **params}
        if system is not None:
            request["systemPrompt"] = system
        answer: SampleResult = await self._run.ask(Sample(request), key)
        return answer

    async def roots(self, *, key: str | None = None) -> list[Root]:
        """Ask which folders the client works in.

        As with `elicit`, the call may stop at this line and the function run again. Raises
        `MissingCapability` if the client offers no roots.
        """
        answer = await self._run.ask(ListRoots(), key)
        return list(answer.roots)

    # Steps, tasks and segments

    # A keyword beside those of the function cannot be typed. With `key`, arguments are not checked.
    @overload
    async def step(
        self, function: Callable[..., Awaitable[T]], /, *args: Any, key: str, **kwargs: Any
    ) -> T: ...
    @overload
    async def step(self, function: Callable[..., T], /, *args: Any, key: str, **kwargs: Any) -> T: ...
    @overload
    async def step(self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    async def step(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    async def step(self, function: Callable[..., Any], /, *args: Any, key: Any = None, **kwargs: Any) -> Any:
        """Call a function once and record its result; when the call runs again, return the recorded result.

        Code inside a step runs once. Code outside may run again. The result is stored as JSON, and read
        back as the type that the function's return annotation names. A step is identified by `key`, or
        without one by the function's name and by how many steps of that name came before. If the process
        dies before the result is recorded, the step runs again: pass `idempotency_key` to external services.

        The function and its arguments must be the same in every run: if they are not, the call stops with
        `ReplayMismatch`, which the function does not see. With a `key`, you can rename the function, and
        insert steps before it. Raises `DefinitionError` for a result that JSON cannot represent.
        """
        step = steps.of(function)
        if key is not None:
            step.check_key(key, args, kwargs)
        fingerprint = step_print(
            function, args, kwargs, is_keyed=key is not None, shared=self._environment.lifespan
        )
        work = step.work(self._environment.threads, args, kwargs)
        return step.load(await self._run.step(key or step.name, work, step.dump, fingerprint))

    async def checkpoint(self) -> None:
        """Allow a busy server to stop the call here and have the caller make it again.

        Does nothing unless the server was created with `shed=`.
        """
        await self._run.checkpoint()

    async def promise(self) -> None:
        """Continue as a task: the caller gets a promise now, and the result later.

        For tools with `answer_within`. The store keeps the journal of the call from now on. Does nothing if
        the call is a task already, or if the caller does not accept tasks.
        """
        if self._call.convert is not None:
            await self._call.convert()

    async def emit(self, value: Any) -> None:
        """Send a part of the result now: text, a content block, a model, or a list of these.

        A caller that streams receives the part at once, as a numbered segment. Every other caller receives
        all parts with the result, before the value that the function returns. In a generator, `yield` does
        the same. When the function runs again, parts that were sent before are not sent twice.
        """
        await self._run.emit(value)

    def now(self) -> datetime:
        """Return the current time in UTC. When the function runs again, it gets the same time."""
        return self._run.journal.now()

    def random(self) -> float:
        """Return a random number from 0 to 1. When the function runs again, it gets the same number."""
        return int.from_bytes(self._run.journal.derived("random")[:7], "big") / (1 << 56)

    def uuid(self) -> uuid.UUID:
        """Return a random UUID. When the function runs again, it gets the same UUID."""
        return uuid.UUID(bytes=self._run.journal.derived("uuid")[:16], version=4)

    @property
    def idempotency_key(self) -> str:
        """A key to pass to an external service. It is the same on every attempt at the current step.

        Raises `RuntimeError` outside a step.
        """
        step = current_step.get()
        if step is None:
            raise RuntimeError(
                "ctx.idempotency_key exists only inside a step: read it in the function "
                "that you pass to ctx.step."
            )
        return self._run.journal.digest(step).hex()[:32]

    @property
    def suspending(self) -> bool:
        """Whether the function is being stopped, and runs again later.

        True if it stops at a question, and if its process hands the task over because it shuts down or has
        lost the lease. Then do not clean up what the next run needs.
        """
        return self._run.suspending or self._call.caller.goes_on

    @property
    def elapsed(self) -> float:
        """The seconds since this request of the call began."""
        return self._run.elapsed

    # The explicit style: return `InputRequired`, and read the answers and the state in the next request

    @property
    def input_responses(self) -> Mapping[str, Any]:
        """The caller's answers to the previous `InputRequired`, as the protocol encodes them."""
        return self._run.responses

    @property
    def state(self) -> Any:
        """The `state` of the `InputRequired` that the function returned last, or `None`."""
        return self._run.journal.state

    async def close_stream(self) -> None:
        """Close the caller's connection; the caller reconnects for the rest of the response.

        For long calls behind gateways that cut connections. Does nothing if the protocol version or the
        transport cannot resume a stream.
        """
        await self._call.caller.close_stream()

    def wait(self, awaitable: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine of the context from a function that is not `async`, and return its result.

        Raises `RuntimeError` in an `async` function: use `await` there.
        """
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is self._loop:
            awaitable.close()
            raise RuntimeError("ctx.wait is for functions that are not async: use await here.")
        self._run.note_thread(is_own=is_own_thread())
        try:
            value, error = asyncio.run_coroutine_threadsafe(contain(awaitable), self._loop).result()
        except concurrent.futures.CancelledError:
            raise Suspended from None
        if error is not None:
            raise error
        return cast(T, value)


def _raise_if_declined(answer: ElicitResult, message: str) -> None:
    if answer.action != "accept":
        verb = "declined" if answer.action == "decline" else "dismissed without an answer"
        raise Declined(f"This was {verb}: {message}", action=answer.action)
