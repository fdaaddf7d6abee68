"""Antiphon as the server of all clients under measurement: a tool that answers, and one that streams."""

from run_antiphon import run

from antiphon import Context, Server

server = Server("bench")


@server.tool
async def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


@server.tool
async def count(n: int, ctx: Context) -> None:
    """Emit numbers as fast as they are taken."""
    for number in range(n):
        await ctx.emit(f"segment {number}")


if __name__ == "__main__":
    run(__file__)
