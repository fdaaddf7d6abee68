"""The `Context` that an author's function gets: it asks questions, runs steps and streams segments.

Owns the public methods and their documentation. It passes questions, steps and segments on to the `Run`, and
must not know which carrier or which transport the call has.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast, overload

import msgspec

from antiphon.errors import StoreUnavailable
from antiphon.model.question import (
    Answer,
    Elicit,
    ElicitResult,
    ListRoots,
    OpenUrl,
    Question,
    Root,
    Sample,
    SampleResult,
)
from antiphon.model.ui import asks_in_ui
from antiphon.runtime.authoring import step as steps
from antiphon.runtime.authoring.forms import Form
from antiphon.runtime.execution import waiting
from antiphon.runtime.execution.asking import raise_if_declined
from antiphon.runtime.execution.call import Call
from antiphon.runtime.execution.call_context import State
from antiphon.runtime.execution.executor import is_own_thread, share_threads
from antiphon.runtime.execution.failures import contain
from antiphon.runtime.execution.fingerprints import step_print
from antiphon.runtime.execution.nested_steps import current_step
from antiphon.runtime.execution.retrying import Retry, run_with_retries
from antiphon.runtime.execution.run import Suspended
from antiphon.runtime.execution.waiting import Duration, Recipient
from antiphon.runtime.execution.waiting_context import WaitingContext

if TYPE_CHECKING:
    from antiphon.runtime.execution.invoke import Environment

__all__ = ["Context", "call_of", "environment_of"]

T = TypeVar("T")
P = ParamSpec("P")


class Context(WaitingContext[State]):
    """The call that a function is serving.

    To get the context, annotate a parameter of the function with `Context`, or with `Context[State]` if the
    lifespan of the server yields a `State`. A function that is not `async` runs in a thread: there, pass each
    coroutine to `wait`, as in `ctx.wait(ctx.progress(1))`.
    """

    __slots__ = ()

    # Asking. After a question, the function may run again from its beginning: see `step`.

    @overload
    async def elicit(
        self,
        message: str,
        form: type[T],
        *,
        key: str | None = None,
        mode: Any = "form",
        ui: str | None = None,
        to: Recipient | Sequence[Recipient] | None = None,
        within: Duration | None = None,
        remind: Duration | None = None,
    ) -> T: ...
    @overload
    async def elicit(
        self,
        message: str,
        form: type[T],
        *,
        to: Recipient | Sequence[Recipient],
        approvals: int,
        key: str | None = None,
        within: Duration | None = None,
        remind: Duration | None = None,
    ) -> list[T]: ...
    @overload
    async def elicit(
        self,
        message: str,
        form: Mapping[str, Any],
        *,
        key: str | None = None,
        mode: Any = "form",
        ui: str | None = None,
        to: Recipient | Sequence[Recipient] | None = None,
        within: Duration | None = None,
        remind: Duration | None = None,
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
        ui: str | None = None,
        to: Recipient | Sequence[Recipient] | None = None,
        approvals: int | None = None,
        within: Duration | None = None,
        remind: Duration | None = None,
    ) -> Any:
        """Ask the user to fill in a form, or to open a `url`; return the value that the user entered.

        `form` is a pydantic model, a dataclass, a TypedDict, a simple type such as `str`, `int` or
        `Literal`, or a JSON schema. The call may stop at this line. The function then runs again from its
        beginning once the answer has arrived, so put code that must run once into a `step`. `key` names
        the question: the answer is found under the same key even if a new version of the function asks.

        `to` asks somebody else than the caller: the members of a group or scope, by its name, or one person,
        as `Principal("bob")`. The first of them who answers decides; with `approvals`, so many different ones
        have to answer, and the result is the list of their values. The owner of the task cannot answer for a
        group. `within` limits the time, in seconds or as a `timedelta`, and `remind` notifies those who can
        answer again after each such time. All of these need a task.

        `ui` is the URI of an MCP App that asks in place of the form, in clients that let Apps ask. Other
        clients show the form. This is experimental: the protocol is a draft (SEP-3118).

        Raises `Declined` if the user declines or dismisses the form, `Unanswered` if nobody answers in time,
        and `MissingCapability` if the client cannot show the form. A task waits instead, because any client
        of its owner can answer. Raises `Failure` if the call has to be a task and cannot be one.
        """
        if url is not None:
            if any(option is not None for option in (to, approvals, within, remind)):
                raise ValueError("ctx.elicit(url=) asks the caller: to=, within= and remind= need a form.")
            answer = await self._run.ask(OpenUrl(message, url), key)
            raise_if_declined(answer, message)
            return None
        parsed = Form.of(form)
        value: Any = None

        def check(response: ElicitResult) -> str | None:
            nonlocal value
            if response.action != "accept":
                return None
            value, problem = parsed.read(response.content)
            return problem

        shown_ui = msgspec.UNSET if ui is None else self._shown_ui(ui, to)
        question = Elicit(message, parsed.schema, mode, shown_ui)
        if to is not None:
            answers = await waiting.ask_others(
                self._run, question, key, check, to=to, approvals=approvals, within=within, remind=remind
            )
            for given in answers:
                raise_if_declined(given, waiting.question_to(to))
            values = [parsed.read(given.content)[0] for given in answers]
            return values[0] if approvals is None else values
        if approvals is not None:
            raise ValueError("ctx.elicit(approvals=) needs to=: who can approve.")
        deadline = None
        if within is not None or remind is not None:
            deadline = await waiting.question_deadline(self._run, message, within=within, remind=remind)
        answer = await self._run.ask(question, key or parsed.key(message), check, deadline)
        raise_if_declined(answer, message)
        return value

    def _shown_ui(self, ui: str, to: Any) -> str | msgspec.UnsetType:
        """Return the App that asks a question, unless the caller is asked and does not let Apps ask."""
        if to is None and not asks_in_ui(self._call.request_meta.capabilities):
            return msgspec.UNSET
        return ui

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

    async def ask(self, question: Question, *, key: str | None = None) -> Answer:
        """Ask a question as it is, and return the answer as it came, also if a person declined.

        For code that passes on the questions of another program. The answer is not checked against the
        schema of a form. As with `elicit`, the call may stop at this line and the function run again. Raises
        `MissingCapability` if the client cannot answer this kind of question.
        """
        answer: Answer = await self._run.ask(question, key)
        return answer

    # Steps, tasks and segments

    # A keyword beside those of the function cannot be typed. With `key`, arguments are not checked.
    @overload
    async def step(
        self,
        function: Callable[..., Awaitable[T]],
        /,
        *args: Any,
        key: str,
        retry: Retry | None = None,
        **kwargs: Any,
    ) -> T: ...
    @overload
    async def step(
        self, function: Callable[..., T], /, *args: Any, key: str, retry: Retry | None = None, **kwargs: Any
    ) -> T: ...
    @overload
    async def step(
        self, function: Callable[..., Awaitable[T]], /, *args: Any, retry: Retry, **kwargs: Any
    ) -> T: ...
    @overload
    async def step(self, function: Callable[..., T], /, *args: Any, retry: Retry, **kwargs: Any) -> T: ...
    @overload
    async def step(self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    async def step(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    async def step(
        self,
        function: Callable[..., Any],
        /,
        *args: Any,
        key: Any = None,
        retry: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Call a function once and record its result; when the call runs again, return the recorded result.

        Code inside a step runs once. Code outside may run again. The result is stored as JSON, and read
        back as the type that the function's return annotation names. A step is identified by `key`, or
        without one by the function's name and by how many steps of that name came before. If the process
        dies before the result is recorded, the step runs again: pass `idempotency_key` to external services.

        The function and its arguments must be the same in every run: if they are not, the call stops with
        `ReplayMismatch`, which the function does not see. So does a call whose recorded result does not fit
        the return annotation any more. With a `key`, you can rename the function, and insert steps before it.
        Raises `DefinitionError` for a result that JSON cannot represent.

        With `retry`, a step that raises is tried again. A task that waits long for the next attempt is
        parked. Raises `RetriesExhausted` after the last attempt.
        """
        step = steps.of(function)
        if key is not None:
            step.check_key(key, args, kwargs)
        fingerprint = step_print(
            function, args, kwargs, is_keyed=key is not None, shared=self._environment.lifespan
        )
        share_threads(self._call.principal.share)
        work = step.work(self._environment.threads, args, kwargs)
        name = key or step.name
        if (tracing := self._environment.telemetry.tracing) is not None:
            work = tracing.step(step.name, work)
        if retry is None:
            return await self._run.step(name, work, step, fingerprint)
        step.check_retry(retry)

        async def attempt() -> Any:
            return await self._run.step(name, work, step, fingerprint)

        return await run_with_retries(self._run, name, fingerprint.digest, retry, attempt)

    async def checkpoint(self) -> None:
        """Allow a busy server to stop the call here and have the caller make it again.

        Does nothing unless the server was created with `shed=`.
        """
        await self._run.checkpoint()

    async def promise(self) -> None:
        """Continue as a task: the caller gets a promise now, and the result later.

        For tools with `answer_within`. The store keeps the journal of the call from now on. Does nothing if
        the call is a task already, if the caller does not accept tasks, or if the store is away.
        """
        if self._call.convert is not None:
            with contextlib.suppress(StoreUnavailable):
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
        return {key: given for key, given in self._run.responses.items() if isinstance(given, Mapping)}

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


def call_of(context: Context) -> Call[Any]:
    """Return the call of a context, for functions that pass the call on to another program."""
    return context._call


def environment_of(context: Context) -> Environment:
    """Return the objects that all runs of the server share, for functions that run others in a call."""
    return context._environment
