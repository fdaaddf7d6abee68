"""Antiphon under measurement: one tool, everything else as it comes.

The same app answers 2026-07-28 requests statelessly and 2025-11-25 requests within sessions.
"""

from run_antiphon import run

from antiphon import Server

server = Server("bench")


@server.tool
async def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


if __name__ == "__main__":
    run(__file__)
