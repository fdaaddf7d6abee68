"""Antiphon under measurement: one tool, everything else as it comes, except how many connections may be open.

The same app answers 2026-07-28 requests statelessly and 2025-11-25 requests within sessions. One address may
have 3,072 connections by default, and all connections of a benchmark come from one.
"""

from run_antiphon import run

from antiphon import Limits, Server

server = Server("bench", limits=Limits(max_connections=8192, max_connections_per_address=8192))


@server.tool
async def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


if __name__ == "__main__":
    run(__file__)
