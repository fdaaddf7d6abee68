"""The target of a client, and the options that each kind of target takes."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from antiphon import Artifact, Client, Context, Principal, Server
from antiphon.cli.exit_codes import CommandError
from antiphon.cli.targets import Target
from tests.client.channels import DONE, Line

URL = "http://127.0.0.1:9/mcp"
COMMAND = ["python", "server.py"]


def serving() -> Server:
    server = Server("tests", authenticate=lambda headers: None)

    @server.tool
    async def who(ctx: Context) -> str:
        return f"{ctx.principal.id} {sorted(ctx.principal.scopes)}"

    @server.tool
    async def keep() -> Artifact[str]:
        return Artifact("a note")

    @server.tool
    async def read(note: Artifact[str]) -> str:
        return note.value

    return server


@pytest.mark.parametrize(
    ("principal", "said"),
    [
        (None, " []"),
        ("ada", "ada []"),
        (Principal("ada", frozenset({"admin"})), "ada ['admin']"),
    ],
)
async def test_a_client_in_memory_calls_as_a_principal(principal: Principal | str | None, said: str) -> None:
    async with Client(serving(), principal=principal) as client:
        assert (await client.call("who")).text == said


@pytest.mark.parametrize("principal", ["", b"ada", 0, False, {}, Principal(""), Principal(None)])  # type: ignore[arg-type]
def test_a_client_in_memory_cannot_call_as_a_principal_without_an_id(principal: Any) -> None:
    with pytest.raises(ValueError, match=r"principal= is a Principal .* leave principal= out"):
        Client(serving(), principal=principal)


async def test_artifacts_in_memory_belong_to_the_principal() -> None:
    server = serving()
    async with Client(server, principal="ada") as ada, Client(server, principal="bob") as bob:
        kept = (await ada.call("keep")).data["artifact_id"]
        assert (await ada.call("read", note=kept)).text == "a note"
        refused = await bob.call("read", note=kept, check=False)
        assert refused.is_error
        assert "There is no artifact" in refused.text


async def done(line: Line, asked: dict[str, Any]) -> dict[str, Any]:
    return DONE


HEADERS = {"headers": {"Authorization": "Bearer s3cret"}}


@pytest.mark.parametrize(
    ("target", "options", "said"),
    [
        (
            serving(),
            HEADERS,
            "A server in this process does not use headers=. Say who calls with principal=….",
        ),
        (serving(), {"auth": httpx2.BasicAuth("ada", "s3cret")}, "does not use auth="),
        (serving(), {"env": {"A": "1"}}, "does not use env="),
        (
            COMMAND,
            HEADERS,
            "A command that the client starts does not use headers=. Pass secrets with env={…}.",
        ),
        (COMMAND, {"principal": "ada"}, "does not use principal="),
        (URL, {"principal": "ada"}, "A URL does not use principal=. Say who you are with headers={…}"),
        (URL, {"cwd": "folder"}, "does not use cwd="),
        (Line(done), HEADERS, "A channel does not use headers=."),
        (URL, {"timeout": -1}, "timeout=-1: pass a number of seconds of at least 0."),
        (URL, {"reconnect_timeout": float("nan")}, "reconnect_timeout=nan: pass a number of seconds"),
    ],
)
def test_options_that_would_do_nothing_are_refused(target: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match="^") as raised:
        Client(target, **options)
    assert said in str(raised.value)


def test_the_command_line_refuses_headers_for_a_file(tmp_path: Any) -> None:
    file = tmp_path / "mine.py"
    file.write_text("")
    with pytest.raises(CommandError, match="which has no headers: remove --header"):
        Target.parse(str(file), headers=["A: b"], token=None, timeout=1)
    assert Target.parse(str(file), headers=(), token="s3cret", timeout=1).headers == {}
