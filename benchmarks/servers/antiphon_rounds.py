"""Antiphon under measurement: tools that ask one question, everything else as it comes.

The journal travels sealed from the first round to the second: with `ask`, it holds the id of the call and the
fingerprint of the question; with `ask_after_a_step`, the result of a step too.
"""

from pydantic import BaseModel
from run_antiphon import run

from antiphon import Context, Server

server = Server("bench")


class Quantity(BaseModel):
    """What is asked for."""

    copies: int


@server.tool
async def ask(number: int, ctx: Context) -> str:
    """Add what is asked for."""
    quantity = await ctx.elicit(f"How many copies of {number}?", Quantity)
    return str(number + quantity.copies)


@server.tool
async def ask_after_a_step(number: int, ctx: Context) -> str:
    """Do something, then add what is asked for."""
    known = await ctx.step(look_up, number)
    quantity = await ctx.elicit(f"How many copies of {number}?", Quantity)
    return str(known + quantity.copies)


async def look_up(number: int) -> int:
    """What is done once."""
    return number


if __name__ == "__main__":
    run(__file__)
