"""Error messages: they name the problem, its place and the remedy."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from antiphon import Client, Failure, Server
from antiphon.cli.exit_codes import FAILED, UNREACHABLE, USAGE, CommandError, handle_errors
from antiphon.cli.options import require_target
from antiphon.cli.run.load import load_server
from antiphon.cli.targets import Target, run_async, split_call_words
from antiphon.errors import ClientError
from antiphon.store import open_store
from tests.cli.raw_http_server import http_response, raw_http_server

HEAD = "import asyncio\nfrom antiphon import *\nserver = Server('mine')\n"


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that loads a file with these lines, as `antiphon run` does."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    count = 0

    def write(lines: str, *, head: str = HEAD, name: str = "") -> Server:
        nonlocal count
        count += 1
        file = tmp_path / f"mine_{tmp_path.name}_{count}.py"
        file.write_text(head + lines + "\n")
        return load_server(f"{file}:{name}" if name else str(file))

    return write


def tool(signature: str, options: str = "") -> str:
    return f"@server.tool{options}\nasync def work{signature}:\n    return None"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (
            tool("(a: int, /)"),
            "'a' cannot be given by name. Callers pass all arguments by name: remove the '/'",
        ),
        (tool("(*a: int)"), "'a' cannot be given by name."),
        (tool("(a: 'Nope')"), "the annotation 'Nope' cannot be found. Define or import it at the top"),
        (tool("(a: 'in t')"), "an annotation is not a type"),
        (
            tool("(b: int, a: asyncio.Lock)"),
            "the type of the parameter 'a' cannot be read from JSON",
        ),
        (
            tool("() -> asyncio.Lock"),
            "the return annotation <class 'asyncio.locks.Lock'> has no JSON schema.",
        ),
        (tool("(a: Context, b: Context)"), "'a' and 'b' are both a Context."),
        (
            tool("()", "(task='sometimes')"),
            "task='sometimes' is invalid. Use one of 'forbidden', 'optional', 'required'.",
        ),
        (tool("()", "(max_attempts=0)"), "max_attempts=0 is invalid. Use a number of at least 1."),
        (tool("()", "(nmae='x')"), "unknown option 'nmae'. Did you mean 'name'?"),
        (tool("()", "(zzz=1)"), "unknown option 'zzz'. The options are: annotations, answer_within"),
        (tool("()") + "\n" + tool("()"), "There is already a tool 'work': use another name"),
        ("server.tool('f')", "'f' is not a function. Pass options by name: name='f'."),
        ("@server.resource\ndef notes(): ...", 'needs an address: write @server.resource("data://notes").'),
        (
            "@server.resource('x://{a}')\ndef f(b: str): ...",
            "the URI template has the variable {a}, and the function has no parameter",
        ),
        ("@server.resource('x://a')\ndef f(b: str): ...", "the URI has no required variable {b}"),
        ("@server.resource('x://{a')\ndef f(a: str): ...", "has an unclosed brace: write {name}."),
        ("Limits(max_body_bytes=-1)", "Limits(max_body_bytes=-1): a limit is a number of at least 0."),
        ("Limits(drain_timeout=float('nan'))", "Limits(drain_timeout=nan): a limit is a number"),
        ("Limits(lease_seconds=0)", "Limits(lease_seconds=0): this limit must be greater than 0."),
        (
            tool("(ctx, a: int)"),
            "'ctx' has no annotation, so callers would have to pass it. Write ctx: Context.",
        ),
        (
            "class Desk:\n    @server.tool\n    def work(self, a: int): ...",
            "this is a method without its object, so callers would have to pass 'self'.",
        ),
        (
            "class Desk:\n    @server.prompt\n    def work(cls): ...",
            "Register the method of an object, such as thing.work, once the object exists.",
        ),
        (
            "Server('x', authenticate='s3cret')",
            'or fixed tokens: authenticate=BearerTokens({"s3cret": "alice"}).',
        ),
        (
            "Server('x', authenticate=BearerTokens)",
            "is not a function. Pass a function that takes the headers",
        ),
        ("Server('x', middleware='audit')", "middleware='audit' is not a list. Write middleware=[…]."),
        ("Server('x', middleware=['audit'])", "The middleware 'audit' is not a function."),
        ("Server('x', shed=5)", "shed=5 is not a function."),
        ("Server('x', list_ttl=-1)", "list_ttl=-1 is not a time. Pass a number of seconds of at least 0."),
        ("Server('x', page_size=0)", "page_size=0 must be at least 1."),
        (
            tool("()", "(timeout=-1)"),
            "work: timeout=-1 is not a time. Pass a number of seconds greater than 0",
        ),
        (tool("()", "(task_ttl=-5.0)"), "task_ttl=-5.0 is not a time."),
        (tool("()", "(task_ttl=float('inf'))"), "task_ttl=inf is not a time."),
        (tool("()", "(poll_interval=-1)"), "poll_interval=-1 is not a time."),
        (tool("()", "(poll_interval=None)"), "Pass a number of seconds greater than 0."),
        (tool("()", "(answer_within=-0.1)"), "seconds of at least 0, or None."),
        (tool("()", "(timeout=True)"), "timeout=True is not a time."),
        ("@server.resource('x://a', cache_ttl=-1)\ndef f(): ...", "f: cache_ttl=-1 is not a time."),
        ("Artifact('x', ttl=-1)", "Artifact(ttl=-1) would expire at once."),
        (
            "@server.prompt\ndef greet(name: str): ...\n"
            "@server.completion('greet', 'nam')\ndef f(value: str): ...",
            "f: 'greet' has no argument 'nam' to complete. Did you mean 'name'? These are: name.",
        ),
        (
            "@server.prompt\ndef greet(name: str): ...\n"
            "@server.completion('great', 'name')\ndef f(value: str): ...",
            "f: there is no prompt and no URI template 'great'. Did you mean 'greet'? Register it above",
        ),
        (
            "@server.resource('x://a')\ndef a(): ...\n"
            "@server.completion('x://a', 'name')\ndef f(value: str): ...",
            "f: 'x://a' has no argument 'name' to complete. It has no arguments.",
        ),
        (
            "@server.prompt\ndef greet(name: str): ...\n"
            "@server.completion('greet', 'name')\ndef f(value, ctx): ...",
            "f: the parameter 'ctx' has no annotation",
        ),
        (
            "async def life(server):\n    yield\nServer('x', lifespan=life)",
            "The lifespan 'life' is a generator. Put @contextlib.asynccontextmanager above it.",
        ),
    ],
)
def test_the_error_of_a_wrong_definition_names_its_line(loaded: Any, lines: str, said: str) -> None:
    with pytest.raises(CommandError) as raised:
        loaded(lines)
    assert raised.value.code == FAILED
    assert said in raised.value.message
    assert ".py, line " in raised.value.message
    assert raised.value.details == ""


def test_the_line_is_that_of_the_definition(loaded: Any) -> None:
    with pytest.raises(CommandError, match=r"mine_\S+\.py, line 7: work: "):
        loaded("\n\n\n" + tool("(*a)"))


@pytest.mark.parametrize(
    ("lines", "said", "where"),
    [
        ("import nosuchthing", "No module named 'nosuchthing'", "line 4"),
        ("def f(:", "SyntaxError: invalid syntax", "line 4"),
        ("Server('x', secrets=['short'])", "at least 16 bytes, and one has 5.", "line 4"),
        ("Limits(nope=1)", "unexpected keyword argument 'nope'", "line 4"),
        ("def f():\n    return 1 / 0\nf()", "ZeroDivisionError", "line 5"),
    ],
)
def test_other_errors_show_the_authors_part_of_the_traceback(
    loaded: Any, lines: str, said: str, where: str
) -> None:
    with pytest.raises(CommandError, match="Cannot import") as raised:
        loaded(lines)
    assert said in raised.value.details
    assert where in raised.value.details
    assert "/antiphon/" not in raised.value.details


def test_a_file_that_exits_is_reported(loaded: Any) -> None:
    with pytest.raises(CommandError, match="exited with code 4 while it was imported"):
        loaded("raise SystemExit(4)")


@pytest.mark.parametrize(
    ("head", "name", "said"),
    [
        ("x = 1", "", 'Create one: from antiphon import Server; server = Server("name").'),
        ("x = 1", "x", "is not a Server: its type is int"),
        ("x = 1", "y", "the file does not define this name"),
        ("from antiphon import Server\na, b = Server('a'), Server('b')", "", "Name one: "),
        ("def main(): ...", "", "run it as a program: antiphon run -- python "),
        (
            "from mcp.server import MCPServer\na, b = MCPServer('a'), MCPServer('b')",
            "",
            "has several servers: a, b. Name one: ",
        ),
        ("import mcp\nx = mcp.Tool(name='x', input_schema={})", "x", "is not a Server: its type is Tool"),
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_file_without_a_server_says_how_to_write_one(loaded: Any, head: str, name: str, said: str) -> None:
    with pytest.raises(CommandError) as raised:
        loaded("", head=head, name=name)
    assert raised.value.code == USAGE
    assert said in raised.value.message


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("nosuch.py", "There is no file nosuch.py."),
        ("no_such_module", "There is no module no_such_module. To name a file, write its extension"),
        (".", "is a directory. Name a Python file in it"),
        ("./README.md", "is not a Python file"),
    ],
)
def test_a_missing_target_is_reported(target: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(Path(__file__).parent.parent.parent)
    with pytest.raises(CommandError) as raised:
        load_server(target)
    assert said in raised.value.message


def test_a_module_is_loaded_like_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine_broken.py").write_text("1 / 0\n")
    (tmp_path / "mine_lacking.py").write_text("import nosuchthing\n")
    (tmp_path / "mine_two.py").write_text("from antiphon import Server\na, mcp = Server('a'), Server('b')\n")
    for name, said in (
        ("mine_broken", "ZeroDivisionError"),
        ("mine_lacking", "No module named 'nosuchthing'"),
    ):
        with pytest.raises(CommandError, match=f"Cannot import {name}") as raised:
            load_server(name)
        assert said in raised.value.details
    assert load_server("mine_two").name == "b"
    assert load_server("mine_two:a").name == "a"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["greet"], "Missing target: antiphon call URL greet. Or set ANTIPHON_URL."),
        (["http://x/mcp"], "Missing tool: antiphon call http://x/mcp TOOL."),
    ],
)
def test_a_missing_argument_is_named(words: list[str], said: str) -> None:
    with pytest.raises(CommandError) as raised:
        split_call_words(words, None)
    assert raised.value.message.startswith(said)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("redis://x", "Unknown store URL 'redis://x'. Use `memory:`"),
        ("sqlite://", "'sqlite://' names no file."),
        ("memory:x", "'memory:x' has text after `memory:`."),
        ("postgresql:x", "'postgresql:x' names no database."),
    ],
)
def test_an_unknown_store_is_refused_with_the_known_ones(url: str, said: str) -> None:
    with pytest.raises(ValueError) as raised:
        open_store(url)
    assert said in str(raised.value)


def test_a_store_whose_library_is_not_installed_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("antiphon.store.postgres")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(ValueError, match=r"pip install 'antiphon\[postgres\]'"):
        open_store("postgresql://somewhere/db")


def test_the_error_that_ends_a_command_is_printed_with_details_and_code(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended, handle_errors():
        raise CommandError("It cannot go on.", UNREACHABLE, details="Line one.\n")
    assert ended.value.code == UNREACHABLE
    assert capsys.readouterr().err == "Line one.\nError: It cannot go on.\n"
    with pytest.raises(SystemExit) as ended, handle_errors():
        raise KeyboardInterrupt
    assert ended.value.code == 130


def test_a_command_without_its_target_says_so() -> None:
    assert require_target("x") == "x"
    with pytest.raises(CommandError, match="Missing target"):
        require_target(None)


def test_unknown_arguments_are_reported() -> None:
    for words, said in (
        ({"text": "foo"}, "'foo' is neither a URL"),
        ({"text": "http://x", "headers": ["nonsense"]}, "Write --header 'Name: value'"),
    ):
        with pytest.raises(CommandError, match=said):
            Target.parse(**{"headers": (), "token": "t", "timeout": 1, **words})  # type: ignore[arg-type]
    assert split_call_words(["greet", "a=1"], "http://x/mcp") == ("http://x/mcp", "greet", ["a=1"])


# What a function does wrong while it runs is in the server's log, for its author


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            "return ctx.elicit('x', str)",
            "The function returned the coroutine 'Context.elicit': an `await` is missing",
        ),
        (
            "await ctx.step(asyncio.Event().wait())",
            "write await ctx.step(work, 1) in place of await ctx.step(work(1))",
        ),
        ("await ctx.step(asyncio.Lock)", "The step 'Lock' returned Lock, which cannot be written as JSON"),
        ("await ctx.elicit('x', asyncio.Lock)", "Cannot make a form of"),
        ("await ctx.elicit('x', {'type': 'string'})", "The schema of a form needs the type object"),
        ("await ctx.step(ctx.elicit, 'x', str)", "A step cannot ask: ask first"),
        ("ctx.wait(ctx.progress(1))", "ctx.wait is for functions that are not async: use await here."),
        ("ctx.idempotency_key", "ctx.idempotency_key exists only inside a step"),
    ],
)
async def test_an_error_in_a_tool_is_explained_in_the_log(
    loaded: Any, body: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = loaded(f"@server.tool\nasync def work(ctx: Context) -> str:\n    {body}\n    return ''")
    async with Client(server, elicit=lambda question: {"value": "x"}) as client:
        with pytest.raises(Failure, match="The server's log has the details, under request"):
            await client.call("work")
    assert said in "".join(str(record.exc_info[1]) for record in caplog.records if record.exc_info)


async def test_tasks_without_a_store_are_announced_at_the_start(
    loaded: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANTIPHON_STORE", raising=False)
    server = loaded(tool("() -> None", "(task='optional')"))
    async with server.running():
        assert "lost with this process. Set ANTIPHON_STORE, or Server(store=…)" in caplog.text


# What a caller is told


async def refused(place: str) -> str:
    """Return the message of the error that connecting raises."""
    with pytest.raises(ClientError) as raised:
        async with Client(place, connect_timeout=60):
            pass
    return f"{type(raised.value).__name__}: {raised.value}"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (http_response(), "text/html, not JSON."),
        (http_response("404 Not Found"), "no MCP server at this address. Most are at a path such as /mcp."),
        (
            http_response("302 Found", more="location: http://new/mcp\r\n"),
            "redirects to http://new/mcp: use that address.",
        ),
        (http_response("502 Bad Gateway"), "the server, or a proxy in front of it, has failed."),
        (http_response(kind="application/json", body="[]"), "sent a message that is not JSON-RPC."),
    ],
)
async def test_an_address_that_is_no_mcp_server_is_described(answer: bytes, said: str) -> None:
    with raw_http_server(lambda method, body: answer) as place:
        assert said in await refused(place)


async def test_https_to_a_server_without_a_certificate_is_reported() -> None:
    with raw_http_server(lambda method, body: http_response()) as place:
        told = await refused(place.replace("http:", "https:"))
    assert "If the server has no certificate, its address begins with http://" in told


def test_a_file_that_does_not_start_ends_the_command_with_its_own_code(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("1 / 0\n")

    async def call() -> None:
        target = Target.parse(str(tmp_path / "broken.py"), headers=(), token=None, timeout=60)
        async with target.client():
            pass

    with pytest.raises(CommandError, match="process exited. Its output is above") as raised:
        run_async(call())
    assert raised.value.code == FAILED
    with pytest.raises(CommandError, match="There is no file nope.py"):
        Target.parse("nope.py", headers=(), token=None, timeout=1)


def test_a_program_that_cannot_be_started_is_reported() -> None:
    async def call() -> None:
        async with Client(["/nowhere/at-all"]):
            pass

    with pytest.raises(CommandError, match="Cannot start /nowhere/at-all") as raised:
        run_async(call())
    assert raised.value.code == UNREACHABLE
