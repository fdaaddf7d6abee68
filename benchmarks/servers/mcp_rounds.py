"""The official SDK under measurement, by its high-level server class: tools that ask one question.

`ask` is the documented way, a parameter that a resolver fills by asking; its state is sealed by default.
`ask_by_hand` returns an `InputRequiredResult` without state, which is the least that the SDK can do.
Configured for speed as in `mcp_server.py`.
"""

from typing import Annotated

from mcp.server.mcpserver import Context, Elicit, MCPServer, Resolve
from mcp.types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult
from pydantic import BaseModel
from serve import serve

server = MCPServer("bench", log_level="ERROR")


class Quantity(BaseModel):
    """What is asked for."""

    copies: int


async def ask_quantity(number: int) -> Elicit[Quantity]:
    """The resolver."""
    return Elicit(f"How many copies of {number}?", Quantity)


@server.tool(structured_output=False)
async def ask(number: int, quantity: Annotated[Quantity, Resolve(ask_quantity)]) -> str:
    """Add what is asked for."""
    return str(number + quantity.copies)


SCHEMA = {"type": "object", "properties": {"copies": {"type": "integer"}}, "required": ["copies"]}


@server.tool(structured_output=False)
async def ask_by_hand(number: int, ctx: Context) -> str | InputRequiredResult:
    """Add what is asked for, without a resolver."""
    answer = (ctx.input_responses or {}).get("quantity")
    if not isinstance(answer, ElicitResult) or answer.content is None:
        question = ElicitRequestFormParams(message=f"How many copies of {number}?", requested_schema=SCHEMA)
        return InputRequiredResult(input_requests={"quantity": ElicitRequest(params=question)})
    return str(number + Quantity.model_validate(answer.content).copies)


if __name__ == "__main__":
    serve(server.streamable_http_app(json_response=True))
