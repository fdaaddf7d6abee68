"""Antiphon under measurement, with one fixed token. The page `/token` hands it to the benchmark."""

from run_antiphon import run

from antiphon import BearerTokens, HttpRequest, Server

TOKEN = "fixed-token-of-ada-0123456789abcdef"

server = Server("bench", authenticate=BearerTokens({TOKEN: "ada"}))


@server.tool
async def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


@server.route("/token")
async def token(request: HttpRequest) -> str:
    """Return the token."""
    return TOKEN


if __name__ == "__main__":
    run(__file__)
