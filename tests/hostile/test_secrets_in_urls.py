"""Passwords and tokens in the URL of a server: in no error, no log line and no output."""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from pathlib import Path

import pytest

from antiphon import Client
from antiphon.cli.call.command import call_tool
from antiphon.cli.call.questions import ElicitationHandler, PreparedAnswers
from antiphon.cli.doctor.command import run_doctor
from antiphon.cli.exit_codes import CommandError
from antiphon.cli.targets import Target, split_call_words
from antiphon.errors import AntiphonError
from tests.cli.command import antiphon
from tests.client.fakes import Reply, serving

SECRET = "s3cret"


def with_secrets(url: str) -> str:
    scheme, _, rest = url.partition("://")
    return f"{scheme}://ada:{SECRET}@{rest}?token={SECRET}"


async def html(reply: Reply) -> None:
    await reply.body(200, "text/html", b"<h1>Hello</h1>")


async def refuse(reply: Reply) -> None:
    await reply.body(401, "text/plain", b"no")


async def forbid(reply: Reply) -> None:
    await reply.body(403, "text/plain", b"no")


async def redirect(reply: Reply) -> None:
    await reply.head(307, None, location=f"https://ada:{SECRET}@e.com/?t={SECRET}", content_length="0")


async def compressed(reply: Reply) -> None:
    await reply.body(200, "application/json", b"\x1f\x8b", content_encoding="gzip")


async def not_json(reply: Reply) -> None:
    await reply.body(200, "application/json", b"{nope")


@pytest.mark.parametrize(
    "answer",
    [html, refuse, forbid, redirect, compressed, not_json, Reply.hang],
    ids=lambda each: each.__name__,
)
async def test_no_error_and_no_log_line_has_them(answer: object, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.INFO, "httpcore2")  # it logs the bytes of the headers of the server
    async with serving(answer) as fake:  # type: ignore[arg-type]
        with pytest.raises(AntiphonError) as raised:
            async with Client(with_secrets(fake.url), connect_timeout=0.5):
                pass
    said = [str(raised.value)]
    following: BaseException | None = raised.value
    while following := following.__cause__ or following.__context__:
        said.append(f"{following!r} {following}")
    assert not [line for line in said if SECRET in line]
    assert not [record.getMessage() for record in caplog.records if SECRET in record.getMessage()]


@pytest.mark.parametrize(
    "url",
    [
        f"http://ada:{SECRET}@127.0.0.1:1/mcp?token={SECRET}",
        f"http://ada:{SECRET}/x@127.0.0.1:1/mcp",
        f"http://ada:{SECRET}:x@y:z/mcp",
        f"http://ada:{SECRET}\x07@127.0.0.1:1/mcp",
    ],
)
async def test_an_address_where_nobody_listens(url: str) -> None:
    with pytest.raises(AntiphonError) as raised:
        async with Client(url):
            pass
    assert SECRET not in str(raised.value)


def test_a_text_that_is_not_an_address_is_not_repeated() -> None:
    with pytest.raises(ValueError, match="not an http address") as raised:
        Client(f"htps://ada:{SECRET}@host/mcp")
    assert SECRET not in str(raised.value)
    for text in (f"htps://ada:{SECRET}@host/mcp", f"ftp://{SECRET}@host"):
        with pytest.raises(CommandError) as failed:
            Target.parse(text, headers=(), token=None, timeout=1)
        assert SECRET not in failed.value.message
    with pytest.raises(CommandError) as failed:
        Target.parse("http://x", headers=[f"Authorization {SECRET}"], token=None, timeout=1)
    assert SECRET not in failed.value.message
    with pytest.raises(CommandError, match="Missing tool") as failed:
        split_call_words([f"http://ada:{SECRET}@host/mcp"], None)
    assert SECRET not in failed.value.message


def test_the_repr_of_a_target_has_no_secret() -> None:
    target = Target.parse(with_secrets("http://h/mcp"), headers=["A: s3cret"], token=SECRET, timeout=1)
    assert SECRET not in repr(target)
    assert SECRET in str(target.endpoint)


@pytest.mark.parametrize("as_json", [True, False])
def test_the_doctor_does_not_print_them(url: str, as_json: bool, capsys: pytest.CaptureFixture[str]) -> None:
    for place in (with_secrets(url), with_secrets(url.removesuffix("/mcp"))):
        target = Target.parse(place, headers=(), token=None, timeout=10)
        with suppress(CommandError):
            run_doctor(target, as_json=as_json)
    printed = "".join(capsys.readouterr())
    assert "127.0.0.1" in printed
    assert SECRET not in printed


def test_a_call_with_them_works(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    target = Target.parse(with_secrets(url), headers=(), token=None, timeout=10)
    handler = ElicitationHandler(PreparedAnswers(), no_input=True)
    with pytest.raises(CommandError, match="no tool"):
        call_tool(target, "no-such-tool", (), None, handler, as_json=False)
    assert SECRET not in "".join(capsys.readouterr())


def test_the_command_line_starts_a_file_without_the_token_of_another_server(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "import os\n"
        "from antiphon import Server\n"
        "server = Server('mine')\n"
        "@server.tool\n"
        "async def names() -> list[str]:\n"
        "    return sorted(os.environ)\n"
        "@server.tool\n"
        "async def value(name: str) -> str:\n"
        "    return os.environ[name]\n"
    )
    env = {"WANTED": "yes", "ANTIPHON_TOKEN": SECRET, "ANTIPHON_LOG_LEVEL": "error"}
    done = antiphon("call", file, "names", "--json", env=env)
    assert done.returncode == 0, done.stderr
    names = json.loads(done.stdout)["structuredContent"]
    assert "ANTIPHON_TOKEN" not in names
    assert {"PATH", "WANTED", "ANTIPHON_LOG_LEVEL"} <= set(names)
    for option, name, value in (("WANTED=no", "WANTED", "no"), ("MINE=a=b", "MINE", "a=b")):
        done = antiphon("call", file, "value", f"name={name}", "--env", option, env=env)
        assert done.stdout == f"{value}\n", done.stderr
    done = antiphon("call", file, "names", "--env", "NOT_THERE", env=env)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--env NOT_THERE: there is no such variable" in done.stderr
