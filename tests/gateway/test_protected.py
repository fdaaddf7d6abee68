"""Servers that protect what they offer, behind a gateway that starts them: strangers get nothing of them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from antiphon import BearerTokens, Client, Principal, RequestError, Server
from antiphon.errors import AntiphonError
from tests.gateway.processes import gateway
from tests.support.polling import until
from tests.support.serving import serving

PARTS = """
@server.tool(task="optional")
def wipe() -> str:
    return "wiped"


@server.resource("notes://today")
def today() -> str:
    return "secret"


@server.resource("notes://{day}/all")
def of_day(day: str) -> str:
    return "secret"


@server.prompt
def greet(name: str) -> str:
    return f"secret {name}"


@server.completion("greet", "name")
def names(value: str) -> list[str]:
    return ["secret"]
"""
AUTHENTICATING = f"""
from antiphon import BearerTokens, Server

server = Server("vault", instructions="secret", authenticate=BearerTokens({{"s3cret": "ada"}}))
{PARTS}
"""
SCOPED = f"""
from antiphon import Server

server = Server("vault", instructions="secret")
{PARTS}

@server.tool(scopes=["admin"])
def drop() -> str:
    return "dropped"
"""
SCOPED_BY_ARGUMENTS = SCOPED.replace('["admin"]', "lambda arguments: ['admin']")
SCOPED_RESOURCE = f"""
from antiphon import Server

server = Server("vault", instructions="secret")
{PARTS}

@server.resource("notes://admin", scopes=["admin"])
def admin() -> str:
    return "secret"
"""
FASTMCP = """
from fastmcp import FastMCP
from fastmcp.server.auth.providers.jwt import StaticTokenVerifier

verifier = StaticTokenVerifier({"s3cret": {"client_id": "ada", "scopes": []}})
mcp = FastMCP("vault", instructions="secret", auth=verifier)

@mcp.tool
def wipe() -> str:
    return "wiped"
"""
ISSUING = """
from fastmcp import FastMCP
from fastmcp.server.auth.providers.in_memory import InMemoryOAuthProvider

mcp = FastMCP("vault", instructions="secret", auth=InMemoryOAuthProvider(base_url="https://notes.example.com"))

@mcp.tool
def wipe() -> str:
    return "wiped"
"""
OFFICIAL = """
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import MCPServer

class Verifier:
    async def verify_token(self, token):
        return None

mcp = MCPServer(
    "vault",
    instructions="secret",
    token_verifier=Verifier(),
    auth=AuthSettings(issuer_url="https://issuer.example.com", resource_server_url="https://notes.example.com/mcp"),
)

@mcp.tool()
def wipe() -> str:
    return "wiped"
"""
CHECKING = """
from fastmcp import FastMCP
from fastmcp.server.dependencies import get_http_headers
from fastmcp.server.middleware import Middleware

class Check(Middleware):
    async def on_message(self, context, call_next):
        headers = get_http_headers(include_all=True)
        if headers and headers.get("x-key") != "s3cret":
            raise PermissionError
        return await call_next(context)

mcp = FastMCP("vault", instructions="secret")

@mcp.tool
def wipe() -> str:
    return "wiped"
"""
FASTMCP_MIDDLEWARE = f"{CHECKING}\nmcp.add_middleware(Check())\n"
FASTMCP_MOUNTING = f"""{FASTMCP_MIDDLEWARE}
inner, mcp = mcp, FastMCP("outer")
mcp.mount(inner, namespace="n")
"""
SDK_MIDDLEWARE = """
from mcp.server.mcpserver import MCPServer

async def check(context, call_next):
    return await call_next(context)

mcp = MCPServer("vault", instructions="secret")
mcp._lowlevel_server.middleware.append(check)

@mcp.tool()
def wipe() -> str:
    return "wiped"
"""
MOUNTING = """
from antiphon import Server

from inner import server as inner

server = Server("outer")
server.mount("inner", inner, prefix=False)
"""
FILES = {
    "authenticates": AUTHENTICATING,
    "scopes": SCOPED,
    "scopes-by-arguments": SCOPED_BY_ARGUMENTS,
    "scopes-of-a-resource": SCOPED_RESOURCE,
    "fastmcp": FASTMCP,
    "fastmcp-issuing": ISSUING,
    "fastmcp-middleware": FASTMCP_MIDDLEWARE,
    "fastmcp-mounting": FASTMCP_MOUNTING,
    "official": OFFICIAL,
    "official-middleware": SDK_MIDDLEWARE,
    "mounting": MOUNTING,
}
VERSIONS = ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05", "DRAFT-2026-v1"]
OPEN = """
from antiphon import Server

server = Server("open")

@server.tool
def look() -> str:
    return "looked"
"""


def command(file: Path) -> list[str]:
    """Return the command that serves a file over stdio."""
    return [sys.executable, "-m", "antiphon", "run", str(file), "--stdio"]


def written(folder: Path, text: str, name: str = "vault.py") -> Path:
    """Return a file with a text, and the server that it may mount beside it."""
    (folder / "inner.py").write_text(AUTHENTICATING)
    file = folder / name
    file.write_text(text)
    return file


def reachable(found: list[str]) -> Any:
    """Return a function that awaits a request, and notes what it gets."""

    async def attempt(what: str, request: Any) -> None:
        try:
            outcome = await request
        except AntiphonError:
            return
        if outcome:
            found.append(f"{what}: {outcome}")

    return attempt


async def everything(target: Any, **options: Any) -> list[str]:
    """Return what a caller reaches of the server `p`, in every way that there is."""
    found: list[str] = []
    attempt = reachable(found)
    async with Client(target, on_change=lambda change: None, **options) as client:
        found += [f"instructions: {client.instructions}"] if client.instructions else []
        for kind in ("tools", "resources", "templates", "prompts"):
            await attempt(kind, getattr(client, kind)())
        for name in ("wipe", "p_wipe", "drop", "p_drop"):
            await attempt("call", client.call(name))
            await attempt("task", client.submit(name))
        for uri in ("notes://today", "notes://monday/all", "notes://admin", "notes://other"):
            await attempt("read", client.read(uri))
        for name in ("greet", "p_greet"):
            await attempt("prompt", client.prompt(name, {"name": "x"}))
            await attempt("completion", client.complete(name, "name", "x"))
        await attempt("completion", client.complete("notes://{day}/all", "day", "x"))
    return found


@pytest.mark.parametrize("name", FILES)
async def test_what_a_file_protects_is_not_offered_to_strangers(name: str, tmp_path: Path) -> None:
    vault, open_file = written(tmp_path, FILES[name]), written(tmp_path, OPEN, "o.py")
    with gateway(tmp_path, f"p={vault}", f"o={open_file}") as served:
        for protocol in ("2026-07-28", "2025-11-25"):
            async with Client(served.url, protocol=protocol) as client:
                assert [tool.name for tool in await client.tools()] == ["o_look"]
                assert (await client.call("o_look")).text == "looked"
                for tool in ("p_wipe", "wipe"):
                    with pytest.raises(RequestError, match="Unknown tool"):
                        await client.call(tool)
        await until(lambda: "The server 'p' is not offered over HTTP" in served.log)
        assert "Tools: o_look." in served.log
        assert "--allow-anonymous" in served.log


async def test_a_file_that_protects_itself_by_a_variable_of_the_environment_does_so_in_a_gateway(
    tmp_path: Path,
) -> None:
    text = FASTMCP.replace(", auth=verifier", "").replace(
        "\n@mcp.tool",
        """
import os

if os.environ.get("AUTH_SECRET"):
    mcp.auth = verifier

@mcp.tool""",
    )
    vault, open_file = written(tmp_path, text), written(tmp_path, OPEN, "o.py")
    env = {"AUTH_SECRET": "s3cret"}
    with gateway(tmp_path, f"p={vault}", f"o={open_file}", env=env) as served:
        async with Client(served.url) as client:
            assert [tool.name for tool in await client.tools()] == ["o_look"]


async def test_a_command_is_refused_like_a_file_and_offered_to_everybody_if_that_is_allowed(
    tmp_path: Path,
) -> None:
    after = command(written(tmp_path, AUTHENTICATING))
    with gateway(tmp_path, after=after) as served:
        async with Client(served.url) as client:
            assert await client.tools() == []
    with gateway(tmp_path, "--allow-anonymous", after=after) as served:
        async with Client(served.url) as client:
            assert (await client.call("wipe")).text == "wiped"
        assert "not offered" not in served.log
    # A gateway of a gateway starts the file as well.
    inner = [sys.executable, "-m", "antiphon", "gateway", "--stdio", str(tmp_path / "vault.py")]
    with gateway(tmp_path, after=inner) as served:
        async with Client(served.url) as client:
            assert await client.tools() == []
    # Whoever starts it over stdio runs it.
    async with Client(inner) as client:
        assert (await client.call("wipe")).text == "wiped"


@pytest.mark.parametrize("spoken", VERSIONS)
@pytest.mark.parametrize("text", [AUTHENTICATING, SCOPED])
async def test_no_request_of_any_version_reaches_it(text: str, spoken: str, tmp_path: Path) -> None:
    outer = Server("outer")
    outer.mount("p", command(written(tmp_path, text)), protocol=spoken, tasks=["*"])
    async with serving(outer) as address:
        for protocol in VERSIONS:
            assert await everything(address.url, protocol=protocol) == []
        async with Client(outer) as runner:  # in the process of the gateway
            assert (await runner.call("p_wipe")).text == "wiped"


async def test_a_gateway_that_authenticates_does_not_offer_it_either(tmp_path: Path) -> None:
    """The command would not learn who calls, and whether the caller has the scopes."""
    outer = Server("outer", authenticate=BearerTokens({"t0ken": Principal("bob", frozenset({"read"}))}))
    outer.mount("p", command(written(tmp_path, SCOPED)))
    async with serving(outer) as address:
        assert await everything(address.url, auth="t0ken") == []


async def test_a_command_that_protects_nothing_is_offered_as_before(tmp_path: Path) -> None:
    outer = Server("outer")
    outer.mount("p", command(written(tmp_path, OPEN)))
    async with serving(outer) as address, Client(address.url) as client:
        assert (await client.call("p_look")).text == "looked"


async def test_middleware_of_the_library_checks_nobody(tmp_path: Path) -> None:
    timing = "from fastmcp.server.middleware.timing import TimingMiddleware as T\nmcp.add_middleware(T())"
    text = f"{CHECKING}\n{timing}\n"
    outer = Server("outer")
    outer.mount("p", command(written(tmp_path, text)))
    async with serving(outer) as address, Client(address.url) as client:
        assert (await client.call("p_wipe")).text == "wiped"


async def test_a_command_that_begins_to_protect_itself_is_not_reached_through_another_process(
    tmp_path: Path,
) -> None:
    before = OPEN.replace(
        "def look() -> str:", "async def look(ctx: Context) -> str:\n    await ctx.elicit('?', str)"
    )
    file = written(tmp_path, before.replace("Server\n", "Context, Server\n"))
    outer = Server("outer")
    outer.mount("p", command(file))
    async with serving(outer) as address:

        async def change(question: Any) -> dict[str, Any]:
            """While the first process waits for the answer, a second one is started from the changed file."""
            file.write_text(f"{AUTHENTICATING}\n\nserver.add_tool(wipe, name='look')\n")
            async with Client(address.url, elicit=lambda question: {}) as other:
                with pytest.raises(AntiphonError, match="has changed, and is connected again|Unknown tool"):
                    await other.call("p_look")
            return {"value": "x"}

        async with Client(address.url, elicit=change) as client:
            assert (await client.call("p_look")).text == "looked"
            with pytest.raises(AntiphonError, match="not offered to callers|not available|Unknown tool"):
                await client.call("p_look")
            await until(
                lambda: not any(tool.offer.is_for_strangers for tool in outer.engine.registry.tools.values())
            )
            assert await client.tools() == []


async def test_what_a_gateway_learns_late_to_be_protected_is_withdrawn_from_strangers() -> None:
    """A gateway may be started as a command too, and connect to its own servers after it has begun."""
    script = str(Path(__file__).with_name("hostile_upstream.py"))
    outer = Server("outer")
    outer.mount("p", [sys.executable, script, "marked"])
    async with serving(outer) as address, Client(address.url) as client:
        assert (await client.call("p_do")).text == "done"
        await until(lambda: outer.engine.protects)
        await everything(address.url)
        assert await client.tools() == []
        with pytest.raises(AntiphonError):
            await client.call("p_do")


LATE_SCOPES = f"""
from antiphon import Server

server = Server("vault", instructions="secret")
runs = []
{PARTS}

@server.tool
def shred() -> str:
    runs.append(1)
    return str(len(runs))


@server.tool
def arm() -> str:
    server.add_tool(lambda: "dropped", name="drop", scopes=["admin"])
    return "armed"
"""
LATE_SCOPES_BY_ARGUMENTS = LATE_SCOPES.replace('["admin"]', "lambda arguments: ['admin']")
LATE_SCOPES_TASK = LATE_SCOPES_BY_ARGUMENTS.replace(
    "@server.tool\ndef shred", "@server.tool(task='optional')\ndef shred"
)
LATE_FASTMCP = (
    FASTMCP.replace(", auth=verifier", "")
    + """
runs = []

@mcp.tool
def shred() -> str:
    runs.append(1)
    return str(len(runs))

@mcp.tool
def arm() -> str:
    mcp.auth = verifier
    return "armed"
"""
)


@pytest.mark.parametrize("spoken", [None, "2025-11-25"])
@pytest.mark.parametrize("text", [LATE_SCOPES, LATE_SCOPES_BY_ARGUMENTS, LATE_SCOPES_TASK, LATE_FASTMCP])
async def test_a_server_that_protects_itself_later_refuses_strangers_from_then_on(
    text: str, spoken: str | None, tmp_path: Path
) -> None:
    outer = Server("outer")
    outer.mount("p", command(written(tmp_path, text)), protocol=spoken)
    async with serving(outer) as address, Client(address.url) as client:
        assert (await client.call("p_shred")).text == "1"
        assert (await client.call("p_arm")).text == "armed"
        with pytest.raises(AntiphonError):
            await client.call("p_shred")
        for uri in ("notes://today", "notes://monday/all", "notes://other"):
            with pytest.raises(AntiphonError):
                await client.read(uri)
        with pytest.raises(AntiphonError):
            await client.prompt("p_greet", {"name": "x"})
        with pytest.raises(AntiphonError):
            await client.complete("p_greet", "name", "x")
        async with Client(outer) as runner:  # in the process of the gateway
            assert (await runner.call("p_shred")).text == "2"


async def test_tools_with_scopes_that_are_added_later_withdraw_the_server_from_strangers(
    tmp_path: Path,
) -> None:
    outer = Server("outer")
    outer.mount("p", command(written(tmp_path, LATE_SCOPES)))
    async with serving(outer) as address:
        async with Client(address.url) as client:
            assert (await client.call("p_arm")).text == "armed"
        await until(lambda: outer.engine.protects)
        assert await everything(address.url) == []


async def test_a_server_that_protects_itself_later_refuses_strangers_through_two_gateways(
    tmp_path: Path,
) -> None:
    inner = [sys.executable, "-m", "antiphon", "gateway", "--stdio", str(written(tmp_path, LATE_FASTMCP))]
    outer = Server("outer")
    outer.mount("p", inner)
    async with serving(outer) as address, Client(address.url) as client:
        assert (await client.call("p_arm")).text == "armed"
        with pytest.raises(AntiphonError, match="refused the request"):
            await client.call("p_wipe")
    everybody = Server("everybody")
    everybody.mount("p", inner, allow_anonymous=True)
    async with serving(everybody) as address, Client(address.url) as client:
        assert (await client.call("p_arm")).text == "armed"
        assert (await client.call("p_wipe")).text == "wiped"


@pytest.mark.parametrize("protocol", VERSIONS)
async def test_a_server_in_the_process_that_authenticates_is_not_offered_to_strangers(protocol: str) -> None:
    inner = Server("inner", instructions="secret", authenticate=BearerTokens({"s3cret": "ada"}))
    exec(PARTS, {"server": inner})
    middle = Server("middle")
    middle.mount("p", inner, prefix=False)
    outer = Server("outer")
    outer.mount("m", middle, prefix=False)
    async with serving(outer) as address:
        assert await everything(address.url, protocol=protocol) == []
    knowing = Server("knowing", authenticate=BearerTokens({"t0ken": "bob"}))
    knowing.mount("m", middle, prefix=False)
    async with serving(knowing) as address, Client(address.url, auth="t0ken", protocol=protocol) as client:
        assert (await client.call("wipe")).text == "wiped"
    everybody = Server("everybody")
    everybody.mount("p", inner, allow_anonymous=True)
    async with serving(everybody) as address, Client(address.url, protocol=protocol) as client:
        assert (await client.call("p_wipe")).text == "wiped"
