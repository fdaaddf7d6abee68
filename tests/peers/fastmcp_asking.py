"""A server of FastMCP that asks. Run it with "stdio", or with the port to serve HTTP on.

On 2025-11-25 it asks in the middle of a tool; on 2026-07-28, where its `ctx.elicit` raises, it returns an
`InputRequiredResult` and is run again, as its documentation says. How its tools end is written in
`tests/interop/asking.py`.
"""

import os
import sys
from typing import Any, Literal

os.environ.setdefault("FASTMCP_LOG_LEVEL", "ERROR")
os.environ.setdefault("FASTMCP_CHECK_FOR_UPDATES", "off")

from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from mcp_types import (
    CreateMessageRequest,
    CreateMessageRequestParams,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    InputRequiredResult,
    ListRootsRequest,
    SamplingMessage,
    TextContent,
)
from pydantic import BaseModel, Field

LOGIN = "https://example.com/login"

server = FastMCP("peer", version="1.2.3")


class Name(BaseModel):
    """One field."""

    name: str


class Order(BaseModel):
    """A field of each kind."""

    size: Literal["small", "large"]
    count: int = Field(ge=1, le=9)
    price: float
    gift: bool = False
    note: str = "none"


def form_of(message: str, model: type[BaseModel]) -> ElicitRequest:
    """A question, as it goes on the wire."""
    return ElicitRequest(
        params=ElicitRequestFormParams(message=message, requested_schema=model.model_json_schema())
    )


def asks_for(state: str | None = None, **requests: Any) -> InputRequiredResult:
    """What ends a round."""
    return InputRequiredResult(input_requests=requests, request_state=state)


def answers_of(ctx: Context) -> dict[str, Any]:
    """What was answered in this round."""
    return dict(ctx.input_responses or {})


def modern(ctx: Context) -> bool:
    """Whether this call is one of a version with rounds."""
    return ctx.request_context is not None and ctx.request_context.protocol_version == "2026-07-28"


@server.tool
async def one_round(ctx: Context) -> str | InputRequiredResult:
    """Asks once."""
    if not modern(ctx):
        return f"Hello, {(await ctx.elicit('Name?', Name)).data.name}!"
    given = answers_of(ctx)
    if "name" not in given:
        return asks_for(name=form_of("Name?", Name))
    return f"Hello, {given['name'].content['name']}!"


@server.tool
async def two_rounds(ctx: Context) -> str | InputRequiredResult:
    """Asks twice, one after the other; the first answer travels in the state."""
    if not modern(ctx):
        first = (await ctx.elicit("Name?", Name)).data.name
        return f"Hello, {first} {(await ctx.elicit('Surname?', Name)).data.name}!"
    given = answers_of(ctx)
    if "name" in given:
        return asks_for(given["name"].content["name"], surname=form_of("Surname?", Name))
    if "surname" in given:
        return f"Hello, {ctx.request_state} {given['surname'].content['name']}!"
    return asks_for(name=form_of("Name?", Name))


@server.tool
async def at_once(ctx: Context) -> str | InputRequiredResult:
    """Asks two questions in one round, where there are rounds."""
    if not modern(ctx):
        first = (await ctx.elicit("Name?", Name)).data.name
        return f"Hello, {first} {(await ctx.elicit('Surname?', Name)).data.name}!"
    given = answers_of(ctx)
    if not given:
        return asks_for(name=form_of("Name?", Name), surname=form_of("Surname?", Name))
    return f"Hello, {given['name'].content['name']} {given['surname'].content['name']}!"


@server.tool
async def form(ctx: Context) -> str | InputRequiredResult:
    """Asks for something of each kind."""
    if modern(ctx):
        given = answers_of(ctx)
        if not given:
            return asks_for(order=form_of("Order?", Order))
        order = Order.model_validate(given["order"].content)
    else:
        order = (await ctx.elicit("Order?", Order)).data
    return f"{order.count} {order.size}, {order.price} each, gift: {order.gift}, note: {order.note}"


async def _action(question: str, ctx: Context) -> str | InputRequiredResult:
    if not modern(ctx):
        return str((await ctx.elicit(question, Name)).action)
    given = answers_of(ctx)
    return given["q"].action if given else asks_for(q=form_of(question, Name))


@server.tool
async def persuade(ctx: Context) -> str | InputRequiredResult:
    """Takes a no for an answer."""
    action = await _action("Please?", ctx)
    return f"so be it: {action}" if isinstance(action, str) else action


@server.tool
async def give_up(ctx: Context) -> str | InputRequiredResult:
    """Takes no answer for an answer."""
    action = await _action("Sure?", ctx)
    return f"so be it: {action}" if isinstance(action, str) else action


@server.tool
async def insist(ctx: Context) -> str | InputRequiredResult:
    """Does not expect a no."""
    action = await _action("Please?", ctx)
    if isinstance(action, str):
        raise ToolError(f"This was answered with {action}.")
    return action


@server.tool
async def log_in(ctx: Context) -> str | InputRequiredResult:
    """Sends a person to a page."""
    if not modern(ctx):
        answer: Any = await ctx.session.elicit_url("Log in", LOGIN, "login-1", ctx.request_id)
    else:
        answer = answers_of(ctx).get("login")
        if answer is None:
            page = ElicitRequestURLParams(message="Log in", url=LOGIN)
            return asks_for(login=ElicitRequest(params=page))
    return "logged in" if answer.action == "accept" else "not logged in"


@server.tool
async def think(ctx: Context) -> str | InputRequiredResult:
    """Asks a model."""
    said = SamplingMessage(role="user", content=TextContent(type="text", text="Say something"))
    params = CreateMessageRequestParams(messages=[said], max_tokens=50)
    if not modern(ctx):
        answer: Any = await ctx.session.create_message(
            [said], max_tokens=50, related_request_id=ctx.request_id
        )
        return f"I think: {answer.content.text}"
    given = answers_of(ctx)
    if not given:
        return asks_for(said=CreateMessageRequest(params=params))
    return f"I think: {given['said'].content.text}"


@server.tool
async def folders(ctx: Context) -> str | InputRequiredResult:
    """Asks where the client works."""
    given = answers_of(ctx) if modern(ctx) else {"roots": await ctx.session.list_roots()}
    if not given:
        return asks_for(roots=ListRootsRequest())
    return " ".join(str(root.uri) for root in given["roots"].roots)


@server.prompt
async def story(ctx: Context) -> str | InputRequiredResult:
    """A prompt that asks."""
    given = answers_of(ctx)
    return f"Tell of {given['name'].content['name']}." if given else asks_for(name=form_of("Name?", Name))


@server.resource("story://{place}")
async def told(place: str, ctx: Context) -> str | InputRequiredResult:
    """A resource that asks."""
    given = answers_of(ctx)
    return f"{given['name'].content['name']} in {place}" if given else asks_for(name=form_of("Name?", Name))


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run(show_banner=False)
    else:
        server.run("http", port=int(sys.argv[1]), show_banner=False)
