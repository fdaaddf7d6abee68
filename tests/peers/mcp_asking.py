"""A server of the official SDK that asks. Run it with "stdio", or with the port to serve HTTP on.

It asks as its documentation says: with resolvers, which work on every version, and by returning an
`InputRequiredResult` where there is no resolver for it. How its tools end is written in
`tests/interop/asking.py`.
"""

import sys
from typing import Annotated, Any, Literal

from mcp.server.mcpserver import (
    Context,
    Elicit,
    ElicitationResult,
    ListRoots,
    MCPServer,
    Resolve,
    Sample,
)
from mcp.server.mcpserver.prompts.base import UserMessage
from mcp.types import (
    CreateMessageResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ElicitResult,
    InputRequiredResult,
    ListRootsResult,
    SamplingMessage,
    TextContent,
)
from pydantic import BaseModel, Field

LOGIN = "https://example.com/login"

server = MCPServer("peer", version="1.2.3", log_level="ERROR")


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


async def ask_name() -> Elicit[Name]:
    return Elicit("Name?", Name)


async def ask_surname() -> Elicit[Name]:
    return Elicit("Surname?", Name)


async def ask_surname_later(first: Annotated[Name, Resolve(ask_name)]) -> Elicit[Name]:
    return Elicit("Surname?", Name)


async def ask_order() -> Elicit[Order]:
    return Elicit("Order?", Order)


async def ask_please() -> Elicit[Name]:
    return Elicit("Please?", Name)


async def ask_sure() -> Elicit[Name]:
    return Elicit("Sure?", Name)


async def ask_model() -> Sample:
    said = TextContent(type="text", text="Say something")
    return Sample([SamplingMessage(role="user", content=said)], max_tokens=50)


async def ask_roots() -> ListRoots:
    return ListRoots()


@server.tool()
async def one_round(name: Annotated[Name, Resolve(ask_name)]) -> str:
    """Asks once."""
    return f"Hello, {name.name}!"


@server.tool()
async def two_rounds(
    first: Annotated[Name, Resolve(ask_name)], second: Annotated[Name, Resolve(ask_surname_later)]
) -> str:
    """Asks twice, one after the other."""
    return f"Hello, {first.name} {second.name}!"


@server.tool()
async def at_once(
    first: Annotated[Name, Resolve(ask_name)], second: Annotated[Name, Resolve(ask_surname)]
) -> str:
    """Asks two questions in one round."""
    return f"Hello, {first.name} {second.name}!"


@server.tool()
async def form(order: Annotated[Order, Resolve(ask_order)]) -> str:
    """Asks for something of each kind."""
    return f"{order.count} {order.size}, {order.price} each, gift: {order.gift}, note: {order.note}"


@server.tool()
async def persuade(answer: Annotated[ElicitationResult[Name], Resolve(ask_please)]) -> str:
    """Takes a no for an answer."""
    return f"so be it: {answer.action}"


@server.tool()
async def give_up(answer: Annotated[ElicitationResult[Name], Resolve(ask_sure)]) -> str:
    """Takes no answer for an answer."""
    return f"so be it: {answer.action}"


@server.tool()
async def insist(name: Annotated[Name, Resolve(ask_please)]) -> str:
    """Does not expect a no."""
    return name.name


@server.tool()
async def log_in(ctx: Context) -> str | InputRequiredResult:
    """Sends a person to a page: there is no resolver for it."""
    if ctx.protocol_version != "2026-07-28":
        answered: Any = await ctx.elicit_url("Log in", LOGIN, "login-1")
    else:
        answered = (ctx.input_responses or {}).get("login")
        if answered is None:
            page = ElicitRequestURLParams(message="Log in", url=LOGIN)
            return InputRequiredResult(
                input_requests={"login": ElicitRequest(params=page)}, request_state="on the page"
            )
        if ctx.request_state != "on the page":
            return f"the state was {ctx.request_state}"
    return "logged in" if answered.action == "accept" else "not logged in"


@server.tool()
async def think(said: Annotated[CreateMessageResult, Resolve(ask_model)]) -> str:
    """Asks a model."""
    return f"I think: {said.content.text}"  # type: ignore[union-attr]


@server.tool()
async def folders(roots: Annotated[ListRootsResult, Resolve(ask_roots)]) -> str:
    """Asks where the client works."""
    return " ".join(str(root.uri) for root in roots.roots)


@server.prompt()
async def story(ctx: Context) -> list[UserMessage] | InputRequiredResult:
    """A prompt that asks."""
    name = _name(ctx)
    return name if isinstance(name, InputRequiredResult) else [UserMessage(f"Tell of {name}.")]


@server.resource("story://{place}")
async def told(place: str, ctx: Context) -> str | InputRequiredResult:
    """A resource that asks."""
    name = _name(ctx)
    return name if isinstance(name, InputRequiredResult) else f"{name} in {place}"


def _name(ctx: Context) -> str | InputRequiredResult:
    answer = (ctx.input_responses or {}).get("name")
    if isinstance(answer, ElicitResult) and answer.content is not None:
        return str(answer.content["name"])
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    question = ElicitRequestFormParams(message="Name?", requested_schema=schema)
    return InputRequiredResult(input_requests={"name": ElicitRequest(params=question)})


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run()
    else:
        server.run("streamable-http", port=int(sys.argv[1]))
