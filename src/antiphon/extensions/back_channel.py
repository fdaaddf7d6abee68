"""The request and the connection that a tool sees while a task runs it, as version 2 of `mcp` has them.

Questions of the tool become questions of the task, and its reports become the status of the task. FastMCP 4
is built on `mcp` 2, so both extensions use this module. It must not know `MCPServer` or `FastMCP`.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeAlias

import msgspec
from mcp.server.auth.middleware.auth_context import auth_context_var
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken, principal_components
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, InputRequiredResult, TextContent
from mcp_types.version import LATEST_HANDSHAKE_VERSION

from antiphon.adoption.exchange import Exchange
from antiphon.adoption.mcp2_dispatch import Dispatch
from antiphon.errors import Failure, RequestError
from antiphon.model.identity import STRANGER, Principal
from antiphon.model.notification import ListChanged, ResourceUpdated
from antiphon.model.outcome import Result
from antiphon.runtime.execution.context import Context, call_of
from antiphon.runtime.execution.plain_questions import ask
from antiphon.wire.client.results import result as read_result
from antiphon.wire.questions import plain_answer, read_questions

__all__ = ["STORED_CLAIMS", "authenticated_as", "failed", "principal_of", "request_of", "run_rounds"]

logger = logging.getLogger("antiphon")

Invoke: TypeAlias = Callable[[Mapping[str, Any]], Awaitable[CallToolResult | InputRequiredResult]]
"""Runs a tool once: gets the `inputResponses` and the `requestState` of the round."""

_MAX_ROUNDS = 1000
"""How often a function may return an `InputRequiredResult` in one task."""


@asynccontextmanager
async def request_of(
    ctx: Context, name: str, arguments: Mapping[str, Any], round: Mapping[str, Any], lifespan_state: Any
) -> AsyncIterator[ServerRequestContext[Any, Any]]:
    """Make the request that a tool sees in one round of a task.

    The connection has the newest version in which servers ask in the middle of a call, because the tool can.
    """
    channel = Dispatch(Exchange(call_of(ctx), _drop, ctx, ask))
    connection = Connection.from_envelope(
        LATEST_HANDSHAKE_VERSION,
        None if ctx.client is None else msgspec.to_builtins(ctx.client),
        dict(ctx.capabilities),
        outbound=channel,
    )
    connection.session_id = str(ctx.request_id)
    try:
        yield ServerRequestContext(
            session=ServerSession(channel, connection),
            lifespan_context=lifespan_state,
            protocol_version=LATEST_HANDSHAKE_VERSION,
            method="tools/call",
            params={"name": name, "arguments": dict(arguments), **round},
            request_id=ctx.request_id,
            meta={"progress_token": ctx.request_id},
        )
    finally:
        await connection.exit_stack.aclose()


def _drop(change: ListChanged | ResourceUpdated) -> None:
    """Drop a change that a tool reports in a task: no client is connected."""
    logger.debug("Dropped %r of a task: no client is connected.", change)


async def run_rounds(ctx: Context, invoke: Invoke) -> Result:
    """Run a tool, and run it again with the answers each time it returns an `InputRequiredResult`.

    Raises `RequestError` for an `MCPError` of the tool, and `Failure` if it asks without end.
    """
    round: dict[str, Any] = {}
    for _ in range(_MAX_ROUNDS):
        try:
            outcome = await invoke(round)
        except MCPError as error:
            raise RequestError(error.message, code=error.code, data=error.data) from error
        fields = outcome.model_dump(by_alias=True, mode="json", exclude_none=True)
        if not isinstance(outcome, InputRequiredResult):
            return read_result(fields)
        questions = read_questions(fields.get("inputRequests", {}))
        answers = await asyncio.gather(*(ask(ctx, question, key) for key, question in questions.items()))
        round = {"inputResponses": dict(zip(questions, map(plain_answer, answers), strict=True))}
        if outcome.request_state is not None:
            round["requestState"] = outcome.request_state
    raise Failure(f"The function returned an InputRequiredResult {_MAX_ROUNDS} times in one task.")


def failed(text: str) -> CallToolResult:
    """Return the result of a tool that failed."""
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=True)


# Callers. A task stores who called it, and never the access token itself.

_CLIENT, _SUBJECT = "client_id", "sub"
STORED_CLAIMS = (_CLIENT, _SUBJECT, "iss")
"""The claims of a caller that every task stores, so that its tool can see them in another process."""


def principal_of(token: AccessToken | None) -> Principal:
    """Return the caller whose request has an access token, or has none."""
    if token is None:
        return STRANGER
    claims = {**(token.claims or {}), _CLIENT: token.client_id}
    client, issuer, subject = principal_components(token)
    if subject is None and claims.get(_SUBJECT) is not None:
        subject = str(claims[_SUBJECT])
    claims[_SUBJECT] = subject
    id = json.dumps([client, issuer, subject], separators=(",", ":"))
    return Principal(id, frozenset(token.scopes), claims, token.expires_at)


@contextmanager
def authenticated_as(caller: Principal) -> Iterator[None]:
    """Let `get_access_token` return the caller of a task, without the token, while the context is open."""
    user = None
    if caller.id:
        claims = dict(caller.claims)
        user = AuthenticatedUser(
            AccessToken(
                token="",  # nosec B106 # no task stores the token
                client_id=str(claims.pop(_CLIENT, "")),
                scopes=sorted(caller.scopes),
                subject=claims.get(_SUBJECT),
                claims=claims,
            )
        )
    previous = auth_context_var.set(user)
    try:
        yield
    finally:
        auth_context_var.reset(previous)
