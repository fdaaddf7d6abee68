"""Everything but cancellation that a function raises fails its call, and nothing else.

A tool around `argparse` raises `SystemExit`. That must neither end the process, nor leave a caller without an
answer, on any transport.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from antiphon import Client, RequestError
from tests.support import http
from tests.support.process import ROOT, SERVERS, environment, started
from tests.support.servers.raising import KINDS

WAYS = ("command", "asgi", "stdio", "memory")
TOOLS = (
    "plain",
    "threaded",
    "with_context",
    "generating",
    "generating_in_thread",
    "stepping",
    "stepping_in_thread",
    "threaded_stepping",
    "waiting",
    "stepping_beside",
)
TASKS = ("as_task", "step_as_task", "thread_as_task", "converted")


@pytest.fixture(params=WAYS)
async def client(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A client of the server, by each way in."""
    async with AsyncExitStack() as stack:
        if request.param == "memory":
            from tests.support.servers.raising import server

            target: Any = server
        elif request.param == "stdio":
            target = [sys.executable, str(SERVERS / "raising.py"), "--stdio"]
        else:
            process = stack.enter_context(started("raising.py", tmp_path, command=request.param == "command"))
            target = process.url
        options = {"env": environment(), "cwd": str(ROOT)} if request.param == "stdio" else {}
        yield await stack.enter_async_context(Client(target, timeout=60, **options))


async def refused(request: Awaitable[Any]) -> str:
    """Return the message of the error that answers a request."""
    with pytest.raises(RequestError) as caught:
        await request
    return str(caught.value)


async def test_every_exception_fails_only_its_call(client: Client) -> None:
    for kind in KINDS:
        for tool in TOOLS:
            failed = await client.call(tool, kind=kind, check=False)
            assert failed.is_error, (tool, kind)
            assert f"The tool {tool!r} " in failed.text, (tool, kind, failed.text)
            assert "Traceback" not in failed.text
        assert (await client.call("checked", given={"kind": kind}, check=False)).is_error, kind
        assert (await client.call("healthy")).text == "fine"


async def test_every_exception_fails_its_task_once(client: Client) -> None:
    for kind in KINDS:
        for tool in TASKS:
            failed: Any = await client.call(tool, kind=kind, check=False)
            assert failed.is_error, (tool, kind)
            assert f"The tool {tool!r} " in failed.text, (tool, kind, failed.text)
        assert (await client.call("checked_task", given={"kind": kind}, check=False)).is_error, kind
    assert (await client.call("healthy")).text == "fine"


async def test_every_exception_in_other_functions_is_an_error_of_their_request(client: Client) -> None:
    for kind in KINDS:
        requests: dict[str, Callable[[str], Awaitable[Any]]] = {
            "prompt": lambda kind: client.prompt("prompt", {"kind": kind}),
            "prompt_in_thread": lambda kind: client.prompt("prompt_in_thread", {"kind": kind}),
            "resource": lambda kind: client.read(f"u://async/{kind}"),
            "resource_in_thread": lambda kind: client.read(f"u://thread/{kind}"),
            "completion": lambda kind: client.complete("prompt", "kind", kind),
            "completion_in_thread": lambda kind: client.complete("prompt_in_thread", "kind", kind),
            "middleware": lambda kind: client.call("guarded", kind=kind),
        }
        for name, request in requests.items():
            message = await refused(request(kind))
            assert "The server failed to serve this request." in message, (name, kind, message)
    assert (await client.call("healthy")).text == "fine"


@pytest.mark.parametrize("command", [True, False], ids=["command", "asgi"])
async def test_every_exception_in_a_page_is_a_500(command: bool, tmp_path: Path) -> None:
    with started("raising.py", tmp_path, command=command) as server:
        for kind in KINDS:
            for path in ("/page", "/page_in_thread"):
                response = await http.request(server.port, "GET", {}, path=f"{path}?kind={kind}")
                assert (response.status, b"failed to serve this page" in response.body) == (500, True), kind
        assert server.process.poll() is None
