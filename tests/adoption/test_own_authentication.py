"""The authentication that an adopted server has itself: it is used, or the server is refused."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastmcp import FastMCP
from fastmcp.server.auth import MultiAuth, RemoteAuthProvider
from fastmcp.server.auth.providers.in_memory import InMemoryOAuthProvider
from fastmcp.server.auth.providers.jwt import StaticTokenVerifier
from fastmcp.server.dependencies import get_access_token

from antiphon import BearerTokens, Client, Context, DefinitionError, RequestError, Server, adopt
from antiphon.adoption.guards import guards_server
from antiphon.cli.exit_codes import CommandError
from antiphon.cli.run.load import load_server
from antiphon.errors import AntiphonError
from tests.adoption.generations import Generation
from tests.cli import command
from tests.support.serving import serving

TOKENS: Any = {
    "good": {"client_id": "app", "scopes": ["notes"], "sub": "ada", "iss": "https://i.example.com"}
}
GENERATIONS = {
    "mcp-1": Generation("official_private.py", "mcp-1"),
    "mcp-2": Generation("official_private.py"),
    "fastmcp-2": Generation("fastmcp_private.py", "fastmcp-2"),
    "fastmcp-3": Generation("fastmcp_private.py", "fastmcp-3"),
    "fastmcp-4": Generation("fastmcp_private.py"),
}


async def _refused(url: str, **options: Any) -> str:
    with pytest.raises(RequestError) as refused:
        async with Client(url, **options) as client:
            await client.call("whoami")
    return f"{refused.value.status} {refused.value}"


@pytest.mark.parametrize(
    ("name", "is_program"), [*((name, False) for name in GENERATIONS), ("mcp-2", True), ("fastmcp-4", True)]
)
async def test_its_token_verifier_decides_who_may_call(name: str, is_program: bool, tmp_path: Path) -> None:
    generation = GENERATIONS[name]
    program = ("--", "python") if is_program else ()
    with command.running(*program, generation.path, directory=tmp_path, python=generation.python) as served:
        async with Client(served.url, auth="good") as client:
            assert (await client.call("whoami")).text == "ada"
        assert (await _refused(served.url)).startswith("401")
        assert (await _refused(served.url, auth="bad")).startswith("401")
        # The verifier of FastMCP does not accept a token without the scopes; that of the SDK does.
        assert (await _refused(served.url, auth="poor")).startswith("401" if "fastmcp" in name else "403")


def private(auth: Any) -> FastMCP:
    """Return a server of FastMCP with authentication."""
    theirs = FastMCP("private", auth=auth)

    @theirs.tool
    def whoami() -> str:
        token = get_access_token()
        return "nobody" if token is None else f"{token.client_id} {token.claims.get('sub')}"

    return theirs


async def test_its_functions_see_the_token_and_ours_the_principal() -> None:
    server = adopt(private(StaticTokenVerifier(tokens=TOKENS)))

    @server.tool
    def principal(ctx: Context) -> str:
        return f"{ctx.principal.id} {sorted(ctx.principal.scopes)}"

    async with serving(server) as address, Client(address.url, auth="good") as client:
        assert (await client.call("whoami")).text == "app ada"
        assert (await client.call("principal")).text == "https://i.example.com#ada ['notes']"


async def test_the_metadata_of_a_server_with_issuers_is_served() -> None:
    remote = RemoteAuthProvider(
        StaticTokenVerifier(tokens=TOKENS, required_scopes=["notes"]),
        authorization_servers=["https://issuer.example.com"],  # type: ignore[list-item]
        base_url="https://notes.example.com",
    )
    async with serving(adopt(private(remote))) as address, httpx2.AsyncClient() as http:
        refused = await http.post(address.url, json={}, headers={"accept": "application/json"})
        assert refused.status_code == 401
        assert "/.well-known/oauth-protected-resource" in refused.headers["www-authenticate"]
        found = await http.get(address.url.replace("/mcp", "/.well-known/oauth-protected-resource/mcp"))
        document = found.json()
        assert document["resource"] == "https://notes.example.com/mcp"
        assert document["authorization_servers"] == ["https://issuer.example.com"]
        assert document["scopes_supported"] == ["notes"]


async def test_several_verifiers_are_tried() -> None:
    several = MultiAuth(verifiers={"a": StaticTokenVerifier({}), "b": StaticTokenVerifier(TOKENS)})
    async with serving(adopt(private(several))) as address, Client(address.url, auth="good") as client:
        assert (await client.call("whoami")).text.endswith("ada")


def test_a_server_that_issues_tokens_is_refused_unless_the_caller_says_how_to_authenticate() -> None:
    theirs = private(InMemoryOAuthProvider(base_url="https://notes.example.com"))
    with pytest.raises(
        DefinitionError, match="'private' authenticates its callers with InMemoryOAuthProvider"
    ):
        adopt(theirs)
    assert adopt(theirs, authenticate=BearerTokens({"s3cret": "ada"})).engine.authenticates
    assert not adopt(theirs, authenticate=None).engine.authenticates


ISSUING = """
from fastmcp import FastMCP
from fastmcp.server.auth.providers.in_memory import InMemoryOAuthProvider

mcp = FastMCP("private", auth=InMemoryOAuthProvider(base_url="https://notes.example.com"))

@mcp.tool
def hello() -> str:
    return "hello"

if __name__ == "__main__":
    mcp.run()
"""


@pytest.mark.parametrize("program", [(), ("--", "python")])
async def test_the_command_refuses_such_a_server_unless_everybody_may_call_it(
    program: tuple[str, ...], tmp_path: Path
) -> None:
    file = tmp_path / "issuing.py"
    file.write_text(ISSUING)
    refused = command.antiphon("run", "--port", "0", *program, file)
    assert refused.returncode != 0
    assert "--allow-anonymous" in refused.stderr
    with command.running("--allow-anonymous", *program, file, directory=tmp_path) as served:
        async with Client(served.url) as client:
            assert (await client.call("hello")).text == "hello"
    # Whoever starts it over stdio needs no token, as with its own library.
    assert command.antiphon("call", file, "hello").stdout.strip() == "hello"


GUARDING = """
from starlette.middleware import Middleware

class Refuse:
    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send):
        raise PermissionError

"""
HELLO = """
@mcp.tool
def hello() -> str:
    return "hello"

"""
GUARDED = {
    "app": f"""
from fastmcp import FastMCP
{GUARDING}
mcp = FastMCP("private")
{HELLO}
app = mcp.http_app("/mcp", [Middleware(Refuse)])
""",
    "run": f"""
from fastmcp import FastMCP
{GUARDING}
mcp = FastMCP("private")
{HELLO}
mcp.run("http", middleware=[Middleware(Refuse)])
""",
    "main": f"""
from fastmcp import FastMCP
{GUARDING}
mcp = FastMCP("private")
{HELLO}
if __name__ == "__main__":
    mcp.run("http", middleware=[Middleware(Refuse)])
""",
    "wrapped": f"""
from fastmcp import FastMCP
{GUARDING}
mcp = FastMCP("private")
{HELLO}
app = Refuse(mcp.http_app())
""",
    "ours": f"""
from antiphon import Server
{GUARDING}
server = Server("private")
{HELLO.replace("mcp", "server")}
app = Refuse(server.asgi())
""",
    "low-level": """
import mcp.types as types
from mcp.server.auth.settings import AuthSettings
from mcp.server.lowlevel import Server


class Verifier:
    async def verify_token(self, token):
        return None


async def list_tools(ctx, params):
    return types.ListToolsResult(tools=[types.Tool(name="hello", input_schema={"type": "object"})])


async def call_tool(ctx, params):
    return types.CallToolResult(content=[types.TextContent(type="text", text="hello")])


private = Server("private", on_list_tools=list_tools, on_call_tool=call_tool)
app = private.streamable_http_app(
    auth=AuthSettings(
        issuer_url="https://i.example.com",
        resource_server_url="https://n.example.com/mcp",
        validate_token_resource=True,
    ),
    token_verifier=Verifier(),
)
""",
}


@pytest.mark.parametrize("name", GUARDED)
def test_a_server_that_its_file_guards_where_it_serves_it_is_not_loaded_for_everybody(
    name: str, tmp_path: Path
) -> None:
    file = tmp_path / "guarded.py"
    file.write_text(GUARDED[name])
    with pytest.raises(CommandError, match="it may be what authenticates callers"):
        load_server(str(file))

    async def call(server: Server) -> str:
        async with Client(server) as client:
            return (await client.call("hello")).text

    for allowed in ({"allow_anonymous": True}, {"is_private": True}):
        assert asyncio.run(call(load_server(str(file), **allowed))) == "hello"


async def test_a_file_that_guards_its_server_where_it_serves_it_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "guarded.py"
    file.write_text(GUARDED["wrapped"])
    for words in (["run"], ["run", "--console"]):
        refused = command.antiphon(*words, "--port", "0", file)
        assert refused.returncode != 0
        assert "it may be what authenticates callers" in refused.stderr
    module = command.antiphon("run", "--port", "0", "guarded", cwd=tmp_path)
    assert "it may be what authenticates callers" in module.stderr
    with command.running("--allow-anonymous", file, directory=tmp_path) as served:
        async with Client(served.url) as client:
            assert (await client.call("hello")).text == "hello"


@pytest.mark.parametrize("name", ["wrapped", "ours"])
async def test_a_guarded_file_over_stdio_is_for_who_starts_it_and_a_gateway_does_not_offer_it(
    name: str, tmp_path: Path
) -> None:
    file = tmp_path / "guarded.py"
    file.write_text(GUARDED[name])
    async with Client([*command.COMMAND, "run", "--stdio", str(file)]) as client:
        assert (await client.call("hello")).text == "hello"
    outer = Server("outer")
    outer.mount("p", [*command.COMMAND, "run", "--stdio", str(file)])
    async with serving(outer) as address, Client(address.url) as client:
        assert await client.tools() == []


GUARDING_ENDS = [
    "mcp.run('http', middleware=[Middleware(Refuse)])",
    "mcp.run('http', middleware=MIDDLEWARE)",
    "def main():\n    app = mcp.http_app()\n    app.add_middleware(Refuse)\n    uvicorn.run(app)",
    "app = mcp.http_app()\napp.add_middleware(BaseHTTPMiddleware, dispatch=check)",
    "def create():\n    return mcp.sse_app()\napp = Refuse(create())",
    "inner = mcp.http_app()\nasync def app(scope, receive, send):\n    await inner(scope, receive, send)",
    "app = Starlette(routes=[Mount('/', mcp.http_app())], middleware=[Middleware(Refuse)])",
    "app = Starlette(routes=[Mount('/', mcp.http_app(), middleware=[Middleware(Refuse)])])",
    "app = Refuse(Starlette(routes=[Mount('/', app=mcp.http_app())]))",
    "api = FastAPI()\napi.mount('/mcp', mcp.http_app())\n@api.middleware('http')\nasync def check(): ...",
    "api = FastAPI()\napi.mount('/mcp', mcp.http_app())\napp = Refuse(api)",
    "class Site:\n    def start(self):\n        self.a = mcp.sse_app()\n        self.b = Refuse(self.a)",
    "app = mcp.streamable_http_app(auth=settings, token_verifier=Verifier())",
    "app = mcp.http_app('/mcp', [Middleware(Refuse)])",
    "app = server.asgi()\nserve(Refuse(app=app))",
    "if __name__ == '__main__':\n    mcp.auth = verifier\n    mcp.run('http')",
    "def main():\n    mcp.add_middleware(Check())\n    mcp.run()\nif __name__ == '__main__':\n    main()",
]
OPEN_ENDS = [
    "if __name__ == '__main__':\n    mcp.run('http', port=8000)",
    "app = mcp.http_app()\nuvicorn.run(app, port=8000)",
    "mcp.add_middleware(LoggingMiddleware())\napp = mcp.http_app()",
    "app = Starlette(routes=[Mount('/', mcp.http_app())])\nuvicorn.run(app)",
    "inner = mcp.http_app()\napp = FastAPI(lifespan=inner.lifespan)\napp.mount('/mcp', inner)",
    "app = mcp.http_app(middleware=[Middleware(CORSMiddleware, allow_origins=['*'])])",
    "app = mcp.http_app()\napp.add_middleware(CORSMiddleware, allow_origins=['*'])",
    "client = TestClient(mcp.http_app())\ncheck(client)",
    "requests.get(url, auth=auth)\napp = server.asgi()",
    "mcp.auth = verifier\nif __name__ == '__main__':\n    mcp.run()",  # its server has it
    "api = FastAPI(middleware=[Middleware(Refuse)])",  # it has nothing of the server
]


@pytest.mark.parametrize("end", GUARDING_ENDS)
def test_what_a_program_puts_around_its_server_is_found_in_its_source(end: str) -> None:
    assert guards_server(f"mcp = FastMCP('private')\n{end}\n".encode())


@pytest.mark.parametrize("end", OPEN_ENDS)
def test_a_program_that_serves_its_server_as_it_is_guards_nothing(end: str) -> None:
    assert not guards_server(f"mcp = FastMCP('private', auth=None)\n{end}\n".encode())


def test_a_guard_in_a_module_that_the_file_imports_is_found(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "site.py").write_text(GUARDED["wrapped"])
    file = tmp_path / "public.py"
    file.write_text("from parts.site import app, mcp\n")
    refused = command.antiphon("run", "--port", "0", file)
    assert "it may be what authenticates callers" in refused.stderr


def test_a_program_that_adds_middleware_to_its_app_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(
        f"{GUARDED['wrapped'].replace('Refuse(mcp.http_app())', 'mcp.http_app()')}\n"
        "import uvicorn\napp.add_middleware(Refuse)\nuvicorn.run(app, port=1)\n"
    )
    refused = command.antiphon("run", "--port", "0", "--", "python", file)
    assert refused.returncode == 1
    assert "runs its server with ASGI middleware" in refused.stderr


SCOPED = """
from fastmcp import FastMCP
from fastmcp.server.auth import require_scopes
from fastmcp.server.auth.providers.jwt import StaticTokenVerifier

verifier = StaticTokenVerifier(
    {"boss": {"client_id": "boss", "scopes": ["admin"]}, "joe": {"client_id": "joe", "scopes": []}}
)
mcp = FastMCP("private", auth=verifier)

@mcp.tool(auth=require_scopes("admin"))
def wipe() -> str:
    return "wiped"

@mcp.tool
def hello() -> str:
    return "hello"

@mcp.resource("notes://all", auth=require_scopes("admin"))
def notes() -> str:
    return "secret"

@mcp.resource("notes://{day}/all", auth=require_scopes("admin"))
def of_day(day: str) -> str:
    return "secret"

@mcp.prompt(auth=require_scopes("admin"))
def greet(name: str) -> str:
    return "secret"

if __name__ == "__main__":
    mcp.run()
"""


@pytest.mark.parametrize("words", [(), ("--workers", "2"), ("--",)])
async def test_the_scopes_of_a_component_are_checked_in_every_way_of_serving(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    file = tmp_path / "scoped.py"
    file.write_text(SCOPED)
    program = (*words, "python") if words == ("--",) else words
    with command.running(*program, file, directory=tmp_path) as served:
        for protocol in ("2026-07-28", "2025-11-25", "2025-06-18"):
            async with Client(served.url, auth="boss", protocol=protocol) as client:
                assert (await client.call("wipe")).text == "wiped"
            async with Client(served.url, auth="joe", protocol=protocol) as client:
                assert [tool.name for tool in await client.tools()] == ["hello"]
                lists = (client.resources, client.templates, client.prompts)
                assert [await each() for each in lists] == [[], [], []]
                for request in (
                    client.call("wipe"),
                    (await client.submit("wipe")).result(timeout=60),
                    client.read("notes://all"),
                    client.read("notes://monday/all"),
                    client.prompt("greet", {"name": "x"}),
                ):
                    with pytest.raises(AntiphonError, match=r"Unknown|not found"):
                        await request


def test_a_server_that_authenticates_in_one_that_does_not_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    inner = adopt(private(StaticTokenVerifier(tokens=TOKENS)))
    with caplog.at_level(logging.WARNING, "antiphon"):
        Server("outer", authenticate=BearerTokens({"s3cret": "ada"})).mount("notes", inner)
        assert not caplog.records
        Server("outer").mount("notes", inner)
    assert "'notes' authenticates its callers, and 'outer', which mounts it, does not" in caplog.text
