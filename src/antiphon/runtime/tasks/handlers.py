"""Handles requests about tasks: get, list, cancel, answer, redeem, stream and listen.

Also decides whether a tool call is answered or becomes a task. `TaskService` knows the store, and
`InboxHandlers` serves those who answer the questions of other people's tasks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from antiphon.errors import (
    AlreadyAnswered,
    Failure,
    InternalError,
    InvalidParams,
    MethodNotFound,
    StoreUnavailable,
    TaskForbidden,
    TaskNotFound,
    TaskNotWaiting,
    TaskRequired,
)
from antiphon.model.capabilities import can_answer
from antiphon.model.identity import Principal, Stranger
from antiphon.model.outcome import DONE, Done, InputRequired, Result
from antiphon.model.question import Question, place_answers
from antiphon.model.request import (
    AnswerQuestion,
    AnswerTask,
    CallTool,
    CancelTask,
    GetTask,
    ListTasks,
    RedeemTask,
    StreamTask,
)
from antiphon.model.segment import MODES, SegmentPage
from antiphon.model.task import Promise, Task, TaskChanged, TaskPage, TaskResult, TaskView, load_questions
from antiphon.runtime.authoring.tool import Tool
from antiphon.runtime.carriers.connection import ask_until_valid
from antiphon.runtime.execution.call import Call
from antiphon.runtime.execution.invoke import Environment
from antiphon.runtime.tasks.inbox_handlers import InboxHandlers
from antiphon.runtime.tasks.requested_ttl import requested_ttl
from antiphon.runtime.tasks.segment_streams import SegmentStreams
from antiphon.runtime.tasks.service import TaskService, result_of

__all__ = ["TaskHandlers"]


IMMEDIATE_ANSWER_SECONDS = 0.1
"""How long a caller that prefers an immediate answer waits for it, if the tool has no `answer_within`.

Not a setting: authors set `answer_within` for each tool.
"""

STORE_RETRY_SECONDS = 1.0
"""How long a listener's notifications pause after the store did not respond."""
_ANSWER_GRACE_SECONDS = 1.0
"""How long an open question outlives its caller's connection: the answer may have arrived just before."""


class TaskHandlers:
    """The handlers of one server, by type of request."""

    def __init__(self, service: TaskService, inbox: InboxHandlers | None = None) -> None:
        self._service = service
        self._segments = SegmentStreams(service, self._ask_caller)
        self._writes: set[asyncio.Task[Task]] = set()
        self.handlers: Mapping[type[Any], Callable[[Call[Any]], Awaitable[Any]]] = {
            GetTask: self._get,
            RedeemTask: self._redeem,
            StreamTask: self._segments.follow,
            ListTasks: self._list,
            CancelTask: self._cancel,
            AnswerTask: self._answer,
            AnswerQuestion: self._answer_question,
            **({} if inbox is None else inbox.handlers),
        }

    def call(
        self, call: Call[CallTool], tool: Tool, environment: Environment
    ) -> Awaitable[Result | InputRequired | Promise | SegmentPage]:
        """Run a tool that may run as a task; return its answer, or the promise of a task.

        Raises `TaskRequired` if the tool only runs as a task and the caller does not accept tasks.
        """
        if not call.request_meta.accepts_tasks:
            if tool.task == "required":
                raise TaskRequired(f"The tool {tool.name!r} only runs as a task: call it with a task.")
            return tool.run(call, environment)
        if call.request.task is not None:
            return self._counted_call(
                call, tool, environment, self._run_as_requested(call, tool, environment)
            )
        if tool.answer_within is None:
            return self._counted_call(call, tool, environment, self._service.start(call, tool))
        return self._counted_call(
            call, tool, environment, self._service.answer_or_promise(call, tool, environment)
        )

    async def _counted_call(
        self, call: Call[CallTool], tool: Tool, environment: Environment, answer: Awaitable[Any]
    ) -> Any:
        """Await an answer, and count it if it is a promise or a stream. `Tool.run` counts the others."""
        outcome = await answer
        if isinstance(outcome, Promise | SegmentPage):
            environment.telemetry.record_task(call, tool.counters, outcome)
        return outcome

    async def _run_as_requested(
        self, call: Call[CallTool], tool: Tool, environment: Environment
    ) -> Result | InputRequired | Promise | SegmentPage:
        """Run a tool for a caller that requested a task, in the best response mode that the caller offers.

        Raises `InvalidParams` for an invalid `ttl`.
        """
        requested_ttl(call.request)  # also if the call is answered at once and needs no task
        if (
            call.carrier.returns_questions
            and call.request_meta.response_modes is None
            and tool.answer_within is not None
        ):
            return await self._service.answer_or_promise(call, tool, environment)
        offered = call.request_meta.response_modes or (("streaming",) if call.wants_stream else ())
        modes = [
            mode for mode in MODES if mode in offered and (mode != "streaming" or call.caller.takes_streams)
        ]
        if modes[:1] == ["immediate"]:
            within = IMMEDIATE_ANSWER_SECONDS if tool.answer_within is None else tool.answer_within
            outcome = await self._service.answer_or_promise(call, tool, environment, within=within)
            if not (isinstance(outcome, Promise) and tool.streams and "streaming" in modes):
                return outcome
        else:
            outcome = await self._service.start(call, tool)
            if modes[:1] != ["streaming"]:
                return Promise(outcome.task, fell_back=bool(offered) and not modes)
        return await self._segments.stream(call, outcome.task.id, 0, outcome.task)

    @staticmethod
    def task_forbidden(tool: Tool) -> TaskForbidden:
        """Return the error for a caller that requests a task of a tool that does not run as one."""
        return TaskForbidden(f"The tool {tool.name!r} does not run as a task: call it without a task.")

    async def tool_of(self, id: str, principal: Principal) -> str:
        """Return the name of a task's tool; raises `TaskNotFound`."""
        return (await self._service.get(id, principal)).tool

    async def arguments_of(self, id: str) -> Mapping[str, Any]:
        """Return the arguments of a task, from its log; raises `TaskNotFound`."""
        arguments: Mapping[str, Any] = (await self._created(id))["arguments"]
        return arguments

    async def scopes_of(self, id: str) -> tuple[str, ...]:
        """Return the scopes with which a task was submitted, from its log; raises `TaskNotFound`."""
        return tuple(sorted((await self._created(id))["principal"].get("scopes", ())))

    async def _created(self, id: str) -> Mapping[str, Any]:
        entries = await self._service.store.read(id, limit=1)
        if not entries:
            raise TaskNotFound(f"Task {id} has expired.")
        created: Mapping[str, Any] = entries[0].data
        return created

    async def _get(self, call: Call[GetTask]) -> TaskView:
        task = await self._service.get(call.request.task_id, call.principal)
        return TaskView(await self._service.with_content(task) if call.request_meta.inlines_results else task)

    async def _list(self, call: Call[ListTasks]) -> TaskPage:
        if isinstance(call.principal, Stranger):
            raise MethodNotFound(
                "A list of tasks needs authentication, and this server has none: all callers would see each "
                "other's tasks. Ask for a task by its id."
            )
        tasks, cursor = await self._service.list(call.principal, call.request.cursor)
        return TaskPage(tuple(tasks), cursor)

    async def _cancel(self, call: Call[CancelTask]) -> TaskView:
        return TaskView(await self._service.cancel(call.request.task_id, call.principal))

    async def _answer(self, call: Call[AnswerTask]) -> Done:
        request, keys_are_unique = call.request, call.request_meta.keys_are_unique
        await self._service.answer(
            request.task_id, call.principal, request.input_responses, keys_are_unique=keys_are_unique
        )
        return DONE

    async def _answer_question(self, call: Call[AnswerQuestion]) -> Done:
        request = call.request
        if request.key is not None:
            responses: Mapping[str, Any] = {request.key: request.response}
        else:
            responses = await self._place_response(call, request)
        await self._service.answer(request.task_id, call.principal, responses)
        return DONE

    async def _place_response(self, call: Call[AnswerQuestion], request: AnswerQuestion) -> Mapping[str, Any]:
        """Return a response without a key by the key of the question that it answers."""
        task = await self._service.get(request.task_id, call.principal)
        # Without an open question, the answer may be a repeated one.
        keys = list(task.questions) or await self._service.last_answered(task.id, call.principal)
        if len(keys) == 1:
            return dict.fromkeys(keys, request.response)
        if task.questions and request.in_order:
            return place_answers(load_questions(task.questions), [request.response])
        if not task.questions:
            raise InvalidParams(f"The task {task.id} asks nothing now. Get the task to see how it goes on.")
        raise InvalidParams(
            f"The task {task.id} has {len(task.questions)} open questions. Name the one that you answer by "
            f'its key, as "dev.antiphon/question" in _meta: {", ".join(map(repr, keys))}.'
        )

    async def _redeem(self, call: Call[RedeemTask]) -> TaskResult | SegmentPage:
        call.work.deadline = float("inf")
        id, shown, after = call.request.task_id, None, call.request.last_seq_nr
        if call.request.input_responses and call.carrier.returns_questions:
            await self._answer_first(id, call)
        if call.request.stream is not None and call.wants_stream:
            return await self._segments.stream(call, id, after)
        if after:
            return await self._segments.page(call, id, after)
        async for task in self._service.follow(id, call.principal):
            if task.has_ended or task.visible_state == shown:
                continue
            if shown is not None and call.session_state is not None:
                await call.caller.notify(TaskChanged(task))
            shown = task.visible_state
            if task.state == "waiting":
                if call.carrier.returns_questions:
                    return TaskResult(InputRequired(task.open_questions), id)
                if call.caller.can_ask:
                    await self._ask_caller(call, task)
        return TaskResult(result_of(await self._service.with_content(task)), id)

    async def _answer_first(self, id: str, call: Call[RedeemTask]) -> None:
        """Write the answers that came with a request for the result. A task that has ended needs none."""
        try:
            await self._service.answer(id, call.principal, call.request.input_responses)
        except AlreadyAnswered:
            raise
        except TaskNotWaiting:
            if not (await self._service.get(id, call.principal)).has_ended:
                raise

    async def _ask_caller(self, call: Call[Any], task: Task) -> None:
        """Ask a task's questions on the caller's connection, until the task no longer waits for an answer.

        Questions that the caller cannot answer are left to other clients. Raises `AlreadyAnswered` if another
        client gave another answer first.
        """
        capabilities = call.request_meta.capabilities
        questions = {
            key: question
            for key, question in load_questions(task.questions).items()
            if can_answer(capabilities, question)
        }
        if not questions:
            return
        writes: set[asyncio.Task[Task]] = set()
        asking = asyncio.gather(
            *(self._ask(call, task, key, question, writes) for key, question in questions.items())
        )
        # The task may be cancelled meanwhile, or answered on another connection.
        changed = asyncio.create_task(self._wait_until_answered(task.id, call.principal))
        waiting_for: set[asyncio.Future[Any]] = {asking, changed}
        try:
            await asyncio.wait(waiting_for, return_when=asyncio.FIRST_COMPLETED)
            if asking.done():
                asking.result()
            for written in await asyncio.gather(*writes, return_exceptions=True):
                if isinstance(written, AlreadyAnswered):
                    raise written
        finally:
            asking.cancel()
            changed.cancel()
            await asyncio.gather(asking, changed, return_exceptions=True)

    async def _ask(
        self, call: Call[Any], task: Task, key: str, question: Question, writes: set[asyncio.Task[Task]]
    ) -> None:
        """Ask one question. An answer that has arrived is written even if the caller has disconnected."""
        asking = asyncio.create_task(self._ask_until_valid(call, task, key, question, writes))
        try:
            await asyncio.shield(asking)
        except asyncio.CancelledError:
            asking.add_done_callback(lambda done: done.cancelled() or done.exception())
            asyncio.get_running_loop().call_later(_ANSWER_GRACE_SECONDS, asking.cancel)
            raise

    async def _ask_until_valid(
        self, call: Call[Any], task: Task, key: str, question: Question, writes: set[asyncio.Task[Task]]
    ) -> None:
        async def write_answer(response: Any) -> str | None:
            write = asyncio.create_task(self._service.answer(task.id, call.principal, {key: response}))
            writes.add(write)
            self._writes.add(write)
            write.add_done_callback(self._writes.discard)
            try:
                answered = await asyncio.shield(write)
            except AlreadyAnswered:
                raise
            except TaskNotWaiting:  # the task was cancelled, or the time to answer is over
                return None
            return answered.problems.get(key)

        async def ask(asked: Question) -> Any:
            try:
                return await call.caller.ask(key, asked, task.id)
            except Failure as failure:
                raise InternalError(failure.message) from None

        try:
            await ask_until_valid(key, question, ask, write_answer, task.problems.get(key))
        except Failure as failure:
            raise InvalidParams(failure.message) from None

    async def _wait_until_answered(self, id: str, principal: Principal) -> None:
        async for task in self._service.follow(id, principal):
            if task.state != "waiting":
                return

    async def visible_ids(self, ids: tuple[str, ...], call: Call[Any]) -> tuple[str, ...]:
        """Return those of the ids whose tasks the caller owns."""
        found = []
        for id in ids:
            try:
                await self._service.get(id, call.principal)
            except TaskNotFound:
                continue
            found.append(id)
        return tuple(found)

    @asynccontextmanager
    async def notifying(self, ids: tuple[str, ...], call: Call[Any]) -> Any:
        """Notify a listener of changes of these tasks while the context is open."""
        followers = [asyncio.create_task(self._notify_changes(id, call)) for id in ids]
        try:
            yield
        finally:
            for follower in followers:
                follower.cancel()

    async def _notify_changes(self, id: str, call: Call[Any]) -> None:
        notified: Task | None = None
        while True:
            try:
                async for task in self._service.follow(id, call.principal):
                    if notified is None or task.visible_state != notified.visible_state:
                        await call.caller.notify(TaskChanged(await self._service.with_content(task)))
                    notified = task
                return
            except TaskNotFound:
                return
            except StoreUnavailable:
                await asyncio.sleep(STORE_RETRY_SECONDS)
