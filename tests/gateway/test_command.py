"""`antiphon gateway` in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from antiphon import Client, InputRequired, Result
from tests.gateway.processes import gateway
from tests.support.polling import until, wait_until
from tests.support.process import environment


async def test_a_command_is_served_to_the_newest_version_and_asks(tmp_path: Path, asking: list[str]) -> None:
    with gateway(tmp_path, after=asking) as served:
        async with Client(served.url, elicit=lambda question: {"size": 4}) as client:
            assert client.version == "2026-07-28"
            assert "order" in [tool.name for tool in await client.tools()]
            assert (await client.call("order", what="tea")).text == "4 x tea in run 1"
        await until(lambda: "Tools: order, think" in served.log)


async def test_the_servers_of_a_file_have_prefixes(tmp_path: Path, asking: list[str]) -> None:
    program, *args = asking
    file = tmp_path / "servers.json"
    entry = {"command": program, "args": args}
    file.write_text(json.dumps({"mcpServers": {"one": entry, "two": entry, "bad": {"command": "/no/such"}}}))
    with gateway(tmp_path, "--config", str(file)) as served:
        async with Client(served.url) as client:
            names = {tool.name for tool in await client.tools()}
            assert {"one_pid", "two_pid"} <= names
            assert (await client.call("one_pid")).text != (await client.call("two_pid")).text
        assert "The server 'bad' is not available" in served.log


async def test_a_question_is_answered_through_another_gateway(tmp_path: Path, asking: list[str]) -> None:
    env = {"ANTIPHON_SECRETS": "a secret that both gateways have"}
    store = ("--store", f"sqlite:///{tmp_path}/gateways.db")
    elicit = {"elicit": lambda question: {"size": 4}}
    with (
        gateway(tmp_path, *store, after=asking, env=env) as first,
        gateway(tmp_path, *store, after=asking, env=env) as second,
    ):
        async with Client(first.url, **elicit) as here, Client(second.url, **elicit) as there:
            asked = await here.call_once("order", what="tea")
            assert isinstance(asked, InputRequired)
            (key,) = asked.questions
            done = await there.call_once("order", what="tea", resume=asked, answers={key: {"size": 5}})
            assert isinstance(done, Result)
            assert done.text == "5 x tea in run 1"
            # The process that holds a call is lost.
            asked = await here.call_once("order", what="rye")
            assert isinstance(asked, InputRequired)
            (key,) = asked.questions
            os.kill(first.process.pid, signal.SIGKILL)
            first.process.wait()
            lost = await there.call_once(
                "order", what="rye", resume=asked, answers={key: {"size": 5}}, check=False
            )
            assert isinstance(lost, Result)
            assert lost.is_error
            assert "Make the call again" in lost.text


@pytest.mark.skipif(sys.platform == "win32", reason="there are no process groups")
async def test_no_process_outlives_a_gateway_that_was_killed(tmp_path: Path, asking: list[str]) -> None:
    # The child ignores that its input has ended, and a grandchild does too.
    script = f"sleep 600 & trap '' TERM; {' '.join(asking)}; sleep 600"
    with gateway(tmp_path, after=["sh", "-c", script]) as served:
        async with Client(served.url) as client:
            process = int((await client.call("pid")).text)
        group = os.getpgid(process)
        os.kill(served.process.pid, signal.SIGKILL)
        served.process.wait()
        wait_until(lambda: not _exists(group))


def _exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_it_says_what_is_missing(tmp_path: Path) -> None:
    def error(*words: str) -> str:
        command = [sys.executable, "-m", "antiphon", "gateway", *words]
        done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=60)
        assert done.returncode == 2
        return done.stderr

    assert "Missing target" in error()
    assert "The command after -- is missing" in error("--")
    assert "need a store that they share" in error("http://127.0.0.1:1", "--workers", "2")
