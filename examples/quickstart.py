"""The server of the README: two tools, a resource and a prompt.

antiphon run examples/quickstart.py
antiphon call http://127.0.0.1:8000/mcp greet name=Ada
"""

from __future__ import annotations

from pydantic import BaseModel

from antiphon import Context, Failure, Server

server = Server("quickstart")


class Division(BaseModel):
    quotient: int
    remainder: int


@server.tool
async def greet(name: str) -> str:
    """Greet someone by name."""
    return f"Hello, {name}!"


@server.tool
async def divide(dividend: int, divisor: int, ctx: Context) -> Division:
    """Divide two whole numbers."""
    if divisor == 0:
        raise Failure("Nothing can be divided by zero.")
    await ctx.progress(1, 1, "Divided.")
    return Division(quotient=dividend // divisor, remainder=dividend % divisor)


@server.resource("greetings://{language}")
async def greeting(language: str) -> str:
    """How to say hello in a language."""
    return {"en": "Hello", "de": "Hallo", "no": "Hei"}.get(language, "👋")


@server.prompt
async def toast(name: str) -> str:
    """A toast to someone."""
    return f"Write a toast to {name}, in two sentences."
