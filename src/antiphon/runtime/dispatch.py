"""Finds the handler of a request, and runs it. Must not know protocol versions, bytes or connections."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any, TypeVar

import msgspec

from antiphon.errors import (
    BodyTooLarge,
    Busy,
    Declined,
    Failure,
    Forbidden,
    InsufficientScope,
    InternalError,
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    NotFound,
    ReplayMismatch,
    RequestError,
    ResourceNotFound,
    StoreUnavailable,
)
from antiphon.model.capabilities import FOR_STRANGER, ServerCapabilities
from antiphon.model.catalog import Kind
from antiphon.model.identity import ANONYMOUS, Implementation, Principal, Stranger
from antiphon.model.notification import Acknowledged
from antiphon.model.outcome import (
    DONE,
    Completion,
    Discovery,
    Done,
    InputRequired,
    Listened,
    Page,
    PromptResult,
    ReadResult,
    Result,
)
from antiphon.model.request import (
    CallTool,
    Complete,
    Discover,
    GetPrompt,
    Initialize,
    Listen,
    ListPrompts,
    ListResources,
    ListTemplates,
    ListTools,
    Ping,
    PromptReference,
    ReadResource,
    SetLogLevel,
    Subscribe,
    Unsubscribe,
)
from antiphon.model.segment import StreamEnd
from antiphon.runtime.artifacts.service import ArtifactService
from antiphon.runtime.authoring.completion import CompletionRegistry
from antiphon.runtime.authoring.prompt import Prompt
from antiphon.runtime.authoring.registry import Registry
from antiphon.runtime.authoring.resource import Resource
from antiphon.runtime.authoring.tool import Tool, prepend_emitted
from antiphon.runtime.budget import Account, MemoryBudget
from antiphon.runtime.change_feed import ChangeFeed, change_filter
from antiphon.runtime.execution.call import Call, SessionState, check_uri, subscription_size
from antiphon.runtime.execution.invoke import Environment
from antiphon.runtime.limits import Limits
from antiphon.runtime.lists import Lists
from antiphon.runtime.scopes import ScopeCheck
from antiphon.runtime.subscriptions import SessionSubscriptions, check_interests, visible_changes
from antiphon.runtime.tasks.handlers import TaskHandlers
from antiphon.runtime.tasks.inbox_handlers import INBOX_REQUESTS
from antiphon.runtime.tasks.scoped_tasks import ScopedTasks
from antiphon.runtime.writable import MAX_NESTING, is_nested_deeply

__all__ = ["Dispatcher"]

T = TypeVar("T")

logger = logging.getLogger("antiphon")

_FOLLOWED_TASK_BYTES = 16 * 1024
"""The memory of a task that a listener follows, about: an asyncio task, a watch and the task's state."""
_CHECKED_BY_HANDLER = (ReadResource, GetPrompt, Complete, Subscribe)
"""Requests whose handlers check scopes, so that one refusal names all that are missing."""


class Dispatcher:
    """Serves requests from the registry of one server."""

    def __init__(
        self,
        info: Implementation,
        registry: Registry,
        completions: CompletionRegistry,
        changes: ChangeFeed,
        limits: Limits,
        budget: MemoryBudget,
        environment: Environment,
        artifacts: ArtifactService,
        scopes: ScopeCheck,
        *,
        instructions: str | None,
        ttl_ms: int,
        hide_forbidden: bool = False,
        protects: Callable[[], bool] = lambda: False,
    ) -> None:
        self._info = info
        self._registry = registry
        self._completions = completions
        self._changes = changes
        self._limits = limits
        self._budget = budget
        self.instructions = instructions
        """A text for the client's model about how to use the server."""
        self._ttl_ms = ttl_ms
        self._protects = protects
        self._artifacts = artifacts
        self._scopes = scopes
        self._subscriptions = SessionSubscriptions(registry)
        self._lists = Lists(registry, artifacts, scopes, ttl_ms=ttl_ms, hide_forbidden=hide_forbidden)
        self.environment = environment
        self.task_handlers: TaskHandlers | None = None
        """The handlers of requests about tasks; `None` while the server does not run."""
        self._handlers: Mapping[type[Any], Callable[[Call[Any]], Any]] = {
            CallTool: self._call_tool,
            ListTools: self._list_tools,
            ListResources: self._list_resources,
            ListTemplates: self._list_templates,
            ListPrompts: self._list_prompts,
            ReadResource: self._read_resource,
            GetPrompt: self._get_prompt,
            Complete: self._complete,
            Initialize: self._initialize,
            Discover: self._discover,
            Ping: self._ping,
            SetLogLevel: self._set_log_level,
            Subscribe: self._subscribe,
            Unsubscribe: self._unsubscribe,
            Listen: self._listen,
        }

    def handle(self, call: Call[Any]) -> Awaitable[Any]:
        """Serve a call: return an awaitable for its outcome. Both may raise, see `error_of`."""
        work = call.work
        work.deadline = work.started + self._limits.call_timeout
        if call.request_meta.raw and FOR_STRANGER in call.request_meta.raw:
            self._check_stranger(call)
        if type(call.request) is CallTool:
            return self._call_tool(call)
        handler = self._handlers.get(type(call.request))
        if handler is None:
            handler = self._task_handler(call)
        elif self._scopes.base and type(call.request) not in _CHECKED_BY_HANDLER:
            self._scopes.check(call.principal, None, {})
        outcome: Awaitable[Any] = handler(call)
        return outcome

    def _check_stranger(self, call: Call[Any]) -> None:
        """Raise `Forbidden` for a request of a caller whom the server would check if it could."""
        if call.principal is ANONYMOUS and self._protects():
            raise Forbidden(
                "It may check who calls, and cannot check the callers of a gateway that has started it. "
                "Serve it over HTTP and name its URL to the gateway."
            )

    def error_of(self, request_id: Any, raised: BaseException) -> RequestError:
        """Return the error response for an exception; details of an unexpected exception go to the log."""
        if isinstance(raised, RequestError):
            return raised
        if isinstance(raised, StoreUnavailable):
            logger.warning("Request %r needs the store, and the store is unavailable: %s", request_id, raised)
            return Busy.without_store()
        if isinstance(raised, ReplayMismatch):
            logger.error("Cannot continue request %r: %s", request_id, raised)
            return InternalError(
                "The server has changed since this call began, and cannot continue it: make the call again, "
                "without its request state."
            )
        logger.error("Request %r failed.", request_id, exc_info=raised)
        return InternalError(
            f"The server failed to serve this request. Its log has the details, under request {request_id!r}."
        )

    async def overdue(self, call: Call[Any]) -> Result | StreamEnd:
        """Return the outcome of a call that took too long; raises `InternalError` if it is no tool call.

        The caller has `Limits.body_timeout` seconds to read it.
        """
        work = call.work
        allowed = work.deadline - work.started
        work.deadline = asyncio.get_running_loop().time() + self._limits.body_timeout
        if not isinstance(call.request, CallTool):
            raise InternalError(f"The server did not finish within {allowed:g} seconds.")
        message = f"The tool {call.request.name!r} did not finish within {allowed:g} seconds."
        return _final_response(call, await prepend_emitted(call, Result(message, is_error=True)))

    @property
    def capabilities(self) -> ServerCapabilities:
        """The capabilities that the server declares."""
        registry = self._registry
        kinds: tuple[Kind, ...] = ("tools", "resources", "prompts")
        lists = {kind: self._lists.offers(kind) for kind in kinds}
        return ServerCapabilities(
            **lists,
            completions=bool(self._completions),
            logging=True,
            list_changes=frozenset(kind for kind, offered in lists.items() if offered),
            resource_subscriptions=lists["resources"],
            tasks=registry.has_task_tools,
            task_list=registry.has_task_tools,
            inbox=registry.has_task_tools,
            streams=lists["tools"],
            apps=registry.has_apps or self._artifacts.enabled,
        )

    def _call_tool(self, call: Call[CallTool]) -> Awaitable[Any]:
        tool = self._registry.tools.get(call.request.name)
        if tool is None:
            self._scopes.check(call.principal, None, {})  # a caller without scopes learns no names
            if self._registry.providers:
                return self._call_unregistered_tool(call)
            raise self._unknown_tool(call)
        return self._call_known_tool(call, tool)

    async def _call_unregistered_tool(self, call: Call[CallTool]) -> Any:
        tool = await self._find("tools", call.request.name, call)
        if not isinstance(tool, Tool):
            raise self._unknown_tool(call)
        return await self._call_known_tool(call, tool)

    def _unknown_tool(self, call: Call[CallTool]) -> NotFound:
        self.environment.telemetry.record_unknown_tool(call)
        return NotFound(f"Unknown tool: {call.request.name!r}.")

    async def _find(self, kind: Kind, key: str, call: Call[Any]) -> Tool | Resource | Prompt | None:
        """Return an item that no provider has registered, and one of them knows."""
        if self._registry.hides(kind, key, call.principal):
            return None
        for provider in self._registry.providers:
            if (found := await provider.find(kind, key, call)) is not None:
                return found if found.offer.is_for(call.principal) else None
        return None

    def _call_known_tool(self, call: Call[CallTool], tool: Tool) -> Awaitable[Any]:
        if tool.is_restricted:
            self._check_tool(call, tool)
        if tool.timeout is not None:
            call.work.deadline = call.work.started + tool.timeout
        if tool.task == "forbidden" and call.request.task is not None and self._registry.has_task_tools:
            raise TaskHandlers.task_forbidden(tool)
        if tool.task == "forbidden" or self.task_handlers is None:
            answer: Awaitable[Any] = tool.run(call, self.environment)
        else:
            answer = self.task_handlers.call(call, tool, self.environment)
        return _stream_response(call, answer) if call.wants_stream else answer

    def _check_tool(self, call: Call[CallTool], tool: Tool) -> None:
        """Raise `NotFound` or `InsufficientScope` if a caller may not call a tool. The refusal is counted."""
        if not tool.offer.is_for(call.principal):
            self._scopes.check(call.principal, None, {})
            raise self._unknown_tool(call)
        try:
            self._scopes.check(call.principal, tool, call.request.arguments)
        except RequestError as error:
            self.environment.telemetry.record_refusal(call, tool.counters, error)
            raise

    def _task_handler(self, call: Call[Any]) -> Callable[[Call[Any]], Any]:
        if self.task_handlers is None or not self._registry.has_task_tools:
            raise MethodNotFound("This server has no tasks.")
        handler = self.task_handlers.handlers[type(call.request)]
        if not self._registry.has_restricted_tools or type(call.request) in INBOX_REQUESTS:
            # A question says who answers it: they need not be allowed to call the tool.
            self._scopes.check(call.principal, None, {})
            return handler
        return self._scoped_tasks(self.task_handlers).guard(call, handler)

    async def allows_task(self, id: str, principal: Principal, tool: str) -> bool:
        """Return whether a caller has the scopes that one of its tasks needs."""
        handlers = self.task_handlers
        return handlers is not None and await self._scoped_tasks(handlers).allows(id, principal, tool)

    def _scoped_tasks(self, handlers: TaskHandlers) -> ScopedTasks:
        return ScopedTasks(handlers, self._registry, self._scopes)

    async def _list_tools(self, call: Call[ListTools]) -> Page:
        return await self._lists.page("tools", call)

    async def _list_resources(self, call: Call[ListResources]) -> Page:
        return await self._lists.page("resources", call)

    async def _list_templates(self, call: Call[ListTemplates]) -> Page:
        return await self._lists.page("templates", call)

    async def _list_prompts(self, call: Call[ListPrompts]) -> Page:
        return await self._lists.page("prompts", call)

    async def _read_resource(self, call: Call[ReadResource]) -> ReadResult | InputRequired:
        uri = call.request.uri
        resource, variables = await self._scoped_resource(call, uri)
        try:
            return await self._run(
                resource, call, lambda own: resource.read(own, variables, uri, self.environment)
            )
        except NotFound as error:  # the function of a template does not know this URI
            data = {"uri": uri} if error.data is None else error.data
            raise ResourceNotFound(error.message, data=data) from None
        except (Failure, Forbidden) as error:
            if isinstance(error, InsufficientScope) and resource in self._artifacts.resources:
                raise  # the client can get more scopes, as for every other request
            raise _request_error(error) from None

    async def _scoped_resource(self, call: Call[Any], uri: str) -> tuple[Resource, dict[str, str]]:
        """Return a resource and its variables; raises `InsufficientScope`, and then `ResourceNotFound`."""
        try:
            resource, variables = self._registry.resource(uri, call.principal)
        except ResourceNotFound:
            self._scopes.check(call.principal, None, {})
            found = await self._find("resources", uri, call)
            if not isinstance(found, Resource):
                raise
            resource, variables = found, {}
        self._scopes.check(call.principal, resource, variables)
        return resource, variables

    async def _get_prompt(self, call: Call[GetPrompt]) -> PromptResult | InputRequired:
        try:
            prompt = self._registry.prompt(call.request.name, call.principal)
        except NotFound:
            self._scopes.check(call.principal, None, {})
            found = await self._find("prompts", call.request.name, call)
            if not isinstance(found, Prompt):
                raise
            prompt = found
        self._scopes.check(call.principal, prompt, call.request.arguments)
        try:
            return await self._run(prompt, call, lambda own: prompt.fill(own, self.environment))
        except (Failure, Forbidden) as error:
            raise _request_error(error) from None

    async def _run(
        self, item: Resource | Prompt, call: Call[Any], perform: Callable[[Call[Any]], Awaitable[T]]
    ) -> T:
        """Run the function of a resource or a prompt. The process holds a run that must not be repeated."""
        held_runs = self.environment.held_runs
        if held_runs is None or not item.holds(call):
            return await perform(call)
        outcome: T = await held_runs.serve(call, perform)
        return outcome

    async def _complete(self, call: Call[Complete]) -> Completion:
        ref, seen = call.request.ref, self._registry.seen
        if isinstance(ref, PromptReference):
            owner = seen("prompts", ref.name, call.principal)
        else:
            owner = seen("templates", ref.uri, call.principal)
        self._scopes.check(call.principal, owner, call.request.context.arguments)
        return await self._completions.suggest(call, self.environment)

    async def _discover(self, call: Call[Any]) -> Discovery:
        capabilities = self.capabilities
        if not call.principal.id:  # nobody has asked an anonymous caller
            capabilities = msgspec.structs.replace(capabilities, inbox=False)
        if isinstance(call.principal, Stranger):
            capabilities = msgspec.structs.replace(capabilities, task_list=False)
        if call.principal is ANONYMOUS and self._protects():  # a gateway must not offer it to others
            capabilities = msgspec.structs.replace(capabilities, protected=True)
        return Discovery(self._info, capabilities, self.instructions, self._ttl_ms)

    async def _initialize(self, call: Call[Initialize]) -> Discovery:
        _check_portable(call.request.capabilities)
        size = len(msgspec.json.encode((call.request.capabilities, call.request.client_info)))
        most = self._limits.max_capabilities_bytes
        if size > most:
            raise BodyTooLarge(
                f"The capabilities and the clientInfo have {size} bytes, and a session at most {most}: "
                "declare less."
            )
        return await self._discover(call)

    async def _ping(self, call: Call[Ping]) -> Done:
        return DONE

    async def _set_log_level(self, call: Call[SetLogLevel]) -> Done:
        _session_state(call).log_level = call.request.level
        return DONE

    async def _subscribe(self, call: Call[Subscribe]) -> Done:
        check_uri(call.request.uri, self._limits)
        await self._scoped_resource(call, call.request.uri)
        await self._subscriptions.add(_session_state(call), call.request.uri, call)
        return DONE

    async def _unsubscribe(self, call: Call[Unsubscribe]) -> Done:
        await self._subscriptions.remove(_session_state(call), call.request.uri)
        return DONE

    async def _listen(self, call: Call[Listen]) -> Listened:
        call.work.deadline = float("inf")
        interests = call.request.notifications
        most = self._limits.max_subscriptions
        if max(len(interests.resource_subscriptions), len(interests.task_ids)) > most:
            raise InvalidParams(f"A listener can name at most {most} resources and as many tasks.")
        for uri in interests.resource_subscriptions:
            check_uri(uri, self._limits)
        if self._registry.has_restricted_resources:
            check_interests(interests.resource_subscriptions, call.principal, self._registry, self._scopes)
        account = Account(self._budget, call.principal.share)
        async with AsyncExitStack() as stack:
            stack.callback(account.close)
            account.reserve(
                sum(map(subscription_size, interests.resource_subscriptions)), "the subscriptions"
            )
            if interests.task_ids:
                named = tuple(dict.fromkeys(interests.task_ids))
                account.reserve(len(named) * _FOLLOWED_TASK_BYTES, "following the tasks")
                ids = await self._visible_tasks(named, call)
                interests = msgspec.structs.replace(interests, task_ids=ids)
            until = call.principal.expires_at
            wanted = visible_changes(change_filter(interests), call.principal, self._registry)
            listener = stack.enter_context(self._changes.listen(wanted, until=until))
            for provider in self._registry.providers:
                for uri in interests.resource_subscriptions:
                    await provider.subscribe(uri, call)
                    stack.push_async_callback(provider.unsubscribe, uri, call)
            await call.caller.notify(Acknowledged(interests))
            if interests.task_ids and self.task_handlers is not None:
                await stack.enter_async_context(self.task_handlers.notifying(interests.task_ids, call))
            async for change in listener:
                await call.caller.notify(change)
        return Listened(call.id)

    async def _visible_tasks(self, ids: tuple[str, ...], call: Call[Any]) -> tuple[str, ...]:
        """Return the ids whose tasks the caller owns, and may see."""
        if self.task_handlers is None:
            return ()
        found = await self.task_handlers.visible_ids(ids, call)
        if not self._registry.has_restricted_tools:
            return found
        scoped = self._scoped_tasks(self.task_handlers)
        return tuple([id for id in found if await scoped.allows(id, call.principal)])


def _request_error(error: Failure | Forbidden) -> RequestError:
    """Return the JSON-RPC error for a prompt or a resource whose function failed on purpose.

    Their results cannot say that they failed, as the result of a tool can. The HTTP status of a `Forbidden`
    is for requests that are refused as a whole, so its message goes into a plain error.
    """
    if isinstance(error, Forbidden):
        return InvalidRequest(error.message, data=error.data)
    data = error.details if error.data is None else error.data
    if isinstance(error, Declined):
        data = {"action": error.action}
    return InternalError(error.message, data=data)


async def _stream_response(call: Call[CallTool], answer: Awaitable[Any]) -> Any:
    """Return the final response of a tool call whose segments were streamed."""
    outcome = await answer
    if type(outcome) is InputRequired:
        outcome.streamed = True
    return _final_response(call, outcome) if type(outcome) is Result else outcome


def _final_response(call: Call[CallTool], result: Result) -> Result | StreamEnd:
    if not call.wants_stream:
        return result
    return StreamEnd(result, 0 if call.output is None else call.output.sent)


def _check_portable(capabilities: Mapping[str, Any]) -> None:
    """Raise `InvalidParams` for capabilities that no session id can hold."""
    if is_nested_deeply(capabilities):
        raise InvalidParams(
            f"The capabilities are nested too deeply: at most {MAX_NESTING} levels are allowed."
        )
    try:
        msgspec.msgpack.encode(capabilities)
    except OverflowError:
        raise InvalidParams("The numbers in the capabilities must fit in 64 bits.") from None


def _session_state(call: Call[Any]) -> SessionState:
    if call.session_state is None:
        raise InvalidParams(
            "This needs a session: send initialize first, and then the session id with every request."
        )
    return call.session_state
