"""Servers that are child processes: they are found dead, told to stop, and never left behind."""

import asyncio
import json
import os
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from mcp.client.stdio import get_default_environment

from antiphon.client import Client
from antiphon.errors import BadAnswer, TimedOut, Unreachable
from antiphon.model.notification import Progress
from antiphon.testing import Clock
from antiphon.transport.client.stdio import safe_environment
from tests.support.polling import DEADLINE, turns, until

PRELUDE = """
import json, os, signal, sys

def hang():
    while True:
        signal.pause()

def say(**fields):
    print(json.dumps({"jsonrpc": "2.0", **fields}), flush=True)

def hear():
    for line in sys.stdin:
        yield json.loads(line)

def discovered(message):
    say(id=message["id"], result={"supportedVersions": ["2026-07-28"], "capabilities": {}})

def done(message, text="Done."):
    say(id=message["id"], result={"content": [{"type": "text", "text": text}]})
"""


def child(script: str) -> list[str]:
    """The command of a server that does this."""
    return [sys.executable, "-c", PRELUDE + textwrap.dedent(script)]


def answering(script: str) -> list[str]:
    """A server of 2026-07-28 that does this with each `message` after the first."""
    body = textwrap.indent(textwrap.dedent(script), "        ")
    return child(
        "for message in hear():\n    if message['method'] == 'server/discover':\n"
        f"        discovered(message)\n    else:\n{body}"
    )


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("no-such-program", "there is no program 'no-such-program'. Check its name, or pass its full path."),
        (__file__, "is not executable. Start a script with its interpreter, such as python."),
    ],
)
async def test_a_command_that_cannot_be_started_is_unreachable(program: str, reason: str) -> None:
    with pytest.raises(Unreachable, match=f"Cannot start .*{reason}"):
        async with Client([program]):
            pass


async def test_a_command_in_a_folder_that_does_not_exist_is_unreachable(tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match="there is no folder .*absent"):
        async with Client(child("pass"), cwd=tmp_path / "absent"):
            pass


async def test_a_child_that_dies_at_once_is_unreachable_with_its_exit_code() -> None:
    with pytest.raises(Unreachable, match="exited with code 3"):
        async with Client(child("sys.exit(3)")):
            pass


async def test_a_child_that_prints_something_else_and_dies_is_quoted() -> None:
    with pytest.raises(
        Unreachable, match="exited with code 0.* It printed 'usage: server', which is not MCP"
    ):
        async with Client(child("print('usage: server'); print('  --help')")):
            pass


async def test_a_child_that_prints_something_else_and_hangs_is_quoted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    command = child("print('Listening on port 80', flush=True); hang()")
    client = Client(command, connect_timeout=3600, probe_timeout=3600, shutdown_timeout=0.1)
    with Clock() as clock:
        opening = asyncio.create_task(client.__aenter__())
        await until(lambda: "Listening on port 80" in caplog.text)
        await clock.advance(hours=1)
        said = "connecting. It printed 'Listening on port 80', which is not MCP"
        with pytest.raises(TimedOut, match=said):
            await opening


async def test_a_child_that_dies_fails_everything_that_waits_and_everything_after() -> None:
    async with Client(answering("if message['params']['name'] == 'die': os._exit(5)")) as client:
        waiting = [asyncio.create_task(client.call("wait")) for _ in range(3)]
        await turns()
        with pytest.raises(Unreachable, match="exited with code 5"):
            await client.call("die")
        for call in waiting:
            with pytest.raises(Unreachable, match="exited with code 5"):
                await call
        with pytest.raises(Unreachable):
            await client.call("again")


async def test_a_child_ended_by_a_signal_says_which() -> None:
    async with Client(answering("os.kill(os.getpid(), signal.SIGKILL)")) as client:
        with pytest.raises(Unreachable, match="signal 9"):
            await client.call("tool")


async def test_a_child_that_closes_its_output_is_unreachable() -> None:
    async with Client(answering("os.close(1); hang()"), shutdown_timeout=0.1) as client:
        with pytest.raises(Unreachable, match="closed its output"):
            await client.call("tool")


async def test_lines_that_are_no_messages_are_skipped(caplog: pytest.LogCaptureFixture) -> None:
    script = "print('Loading...'); print(); print('{}'); done(message)"
    async with Client(answering(script)) as client:
        assert (await client.call("tool")).text == "Done."
    assert "Loading..." in caplog.text


async def test_a_child_that_only_talks_rubbish_is_a_bad_answer() -> None:
    async with Client(answering("while True: print('la la la')"), shutdown_timeout=0.1) as client:
        with pytest.raises(BadAnswer, match="does not speak MCP"):
            await client.call("tool")


async def test_an_endless_line_is_a_bad_answer_in_bounded_memory() -> None:
    command = answering("while True: sys.stdout.write('x' * 65536)")
    async with Client(command, max_message=1 << 20, shutdown_timeout=0.1) as client:
        with pytest.raises(BadAnswer, match="more than 1048576 bytes"):
            await client.call("tool")


async def test_an_answer_that_nobody_waits_for_is_ignored() -> None:
    async with Client(answering("say(id=999, result={}); say(id='x', result={}); done(message)")) as client:
        assert (await client.call("tool")).text == "Done."


async def test_a_large_answer_arrives_whole() -> None:
    async with Client(answering("done(message, 'x' * 3_000_000)")) as client:
        assert len((await client.call("tool")).text) == 3_000_000


async def test_a_child_that_does_not_read_does_not_hang_the_client() -> None:
    async with Client(answering("hang()"), shutdown_timeout=0.1) as client:
        with pytest.raises(TimedOut):
            await asyncio.gather(*(client.call("tool", data="x" * 300_000, timeout=0.3) for _ in range(3)))


OLD = """
for message in hear():
    if message["method"] == "initialize":
        info = {"name": "old", "version": "1"}
        result = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": info}
        say(id=message["id"], result=result)
    elif message["method"] == "tools/call":
        done(message)
"""


@pytest.mark.parametrize("timeouts", [{"probe_timeout": 0.05}, {"connect_timeout": 4}])
async def test_an_old_server_that_ignores_the_first_question_is_asked_the_second(
    timeouts: dict[str, float],
) -> None:
    async with Client(child(OLD), **timeouts) as client:
        assert client.version == "2025-06-18"
        assert (await client.call("tool")).text == "Done."


async def test_a_child_that_never_answers_times_out_and_the_error_names_the_option() -> None:
    said = (
        "has not answered within 0.3 s: connecting. It has printed nothing to its standard output: check "
        "that it serves MCP over stdio. Give it more time with connect_timeout=."
    )
    with pytest.raises(TimedOut, match=said):
        async with Client(child("hang()"), connect_timeout=0.3, shutdown_timeout=0.1):
            pass


async def test_a_new_server_that_is_slow_to_start_is_still_spoken_to_as_one() -> None:
    script = """
    heard = hear()
    for message in [next(heard), next(heard)]:  # it is so slow that it is asked twice
        if message["method"] == "server/discover":
            discovered(message)
        elif "id" in message:
            say(id=message["id"], error={"code": -32601, "message": "No."})
    """
    async with Client(child(script), probe_timeout=0.01) as client:
        assert client.version == "2026-07-28"


async def test_a_call_that_times_out_is_cancelled_at_the_server(tmp_path: Path) -> None:
    told = tmp_path / "told"
    script = f"""
        if 'id' not in message:
            with open({str(told) + "-"!r}, 'w') as file:
                file.write(json.dumps(message))
            os.rename({str(told) + "-"!r}, {str(told)!r})
            sys.exit()
    """
    async with Client(answering(script)) as client:
        with pytest.raises(TimedOut):
            await client.call("tool", timeout=0.1)
        await until(told.exists)
    notice = json.loads(told.read_text())
    assert notice["method"] == "notifications/cancelled"
    assert notice["params"]["requestId"] == 2


async def test_what_comes_before_the_answer_is_received_before_it() -> None:
    script = """
        token = message["params"]["_meta"]["progressToken"]
        for step in range(2000):
            say(method="notifications/progress", params={"progressToken": token, "progress": step})
        done(message)
    """
    seen: list[Progress] = []

    async def note(progress: Progress) -> None:
        await turns()
        seen.append(progress)

    async with Client(answering(script)) as client:
        await client.call("tool", on_progress=note)
    assert [each.progress for each in seen] == list(range(2000))


async def test_a_callback_may_call_the_server_itself() -> None:
    script = """
        token = message["params"]["_meta"].get("progressToken")
        if token is not None:
            say(method="notifications/progress", params={"progressToken": token, "progress": 1})
        done(message, message["params"]["name"])
    """
    inner: list[str] = []

    async def call_again(progress: Progress) -> None:
        inner.append((await client.call("inner")).text)

    async with Client(answering(script)) as client:
        assert (await client.call("outer", on_progress=call_again)).text == "outer"
    assert inner == ["inner"]


async def test_the_environment_and_the_directory_are_passed_on(tmp_path: Path) -> None:
    script = "done(message, os.environ['MINE'] + ' ' + os.getcwd() + ' ' + str('PATH' in os.environ))"
    async with Client(answering(script), env={"MINE": "here"}, cwd=tmp_path) as client:
        assert (await client.call("tool")).text == f"here {tmp_path} True"


async def test_a_child_does_not_get_the_secrets_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", "s3cret")
    monkeypatch.setenv("SHELL", "() { ignored; }; echo harm")
    script = "done(message, ' '.join(sorted(os.environ)))"
    async with Client(answering(script), env={"MINE": "here"}) as client:
        names = set((await client.call("tool")).text.split())
    assert "MINE" in names
    assert "PATH" in names
    # The C library and Python may set variables of their own.
    assert names - {"LC_CTYPE", "MINE"} <= {"HOME", "LOGNAME", "PATH", "TERM", "USER"}


def test_the_environment_of_a_child_is_the_one_of_the_official_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    assert safe_environment() == get_default_environment()
    for name in ("APPDATA", "SYSTEMROOT", "USERPROFILE"):
        monkeypatch.setenv(name, "set")
    monkeypatch.setattr(sys, "platform", "win32")
    assert {"APPDATA", "PATH", "SYSTEMROOT", "USERPROFILE"} <= safe_environment().keys()
    assert "HOME" not in safe_environment()


async def test_a_password_in_an_argument_is_not_repeated() -> None:
    command = ["no-such-program", "--store", "postgresql://ada:s3cret@host/db"]
    with pytest.raises(Unreachable, match="no-such-program") as raised:
        async with Client(command):
            pass
    assert "s3cret" not in str(raised.value)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize(
    "stubborn",
    ["", "signal.signal(signal.SIGTERM, signal.SIG_IGN)"],
    ids=["until-asked", "until-forced"],
)
async def test_a_child_that_does_not_want_to_end_is_ended(stubborn: str) -> None:
    script = f"""
    {stubborn or "pass"}
    for message in hear():
        if message["method"] == "server/discover":
            discovered(message)
        else:
            done(message, str(os.getpid()))
    hang()
    """
    async with Client(child(script), shutdown_timeout=0.1) as client:
        pid = int((await client.call("pid")).text)
        assert alive(pid)
    assert not alive(pid)


GRANDCHILD = """
import subprocess
grandchild = subprocess.Popen([sys.executable, "-c", %r], stdout=subprocess.PIPE)
grandchild.stdout.read(1)
for message in hear():
    if message["method"] == "server/discover":
        discovered(message)
    else:
        done(message, str(grandchild.pid))
        %s
"""
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); signal.pause()"


@pytest.mark.parametrize("grandchild", ["import signal; print(flush=True); signal.pause()", STUBBORN])
@pytest.mark.parametrize("ending", ["pass", "os._exit(5)"], ids=["stops", "crashes"])
async def test_the_processes_that_a_child_started_do_not_outlive_it(grandchild: str, ending: str) -> None:
    async with Client(child(GRANDCHILD % (grandchild, ending)), shutdown_timeout=0.3) as client:
        pid = int((await client.call("pid")).text)
        assert alive(pid)
    await until(lambda: not alive(pid))


async def test_a_child_is_killed_if_the_client_does_not_wait_for_its_end(tmp_path: Path) -> None:
    left = tmp_path / "left"
    script = f"""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for message in hear():
        discovered(message) if message["method"] == "server/discover" else done(message, str(os.getpid()))
    open({str(left)!r}, "w").close()
    hang()
    """
    pids = []

    async def use() -> None:
        async with Client(child(script), shutdown_timeout=3600) as client:
            pids.append(int((await client.call("pid")).text))

    using = asyncio.create_task(use())
    await until(left.exists)
    using.cancel()
    with pytest.raises(asyncio.CancelledError):
        await using
    await until(lambda: not alive(pids[0]))


async def test_a_child_ends_when_its_input_is_closed(tmp_path: Path) -> None:
    ended = tmp_path / "ended"
    script = f"""
    for message in hear():
        discovered(message)
    open({str(ended)!r}, "w").write("well")
    """
    async with Client(child(script), shutdown_timeout=DEADLINE):
        pass
    assert ended.read_text() == "well"


async def test_a_client_that_is_closed_says_so() -> None:
    client = Client(answering("done(message)"))
    with pytest.raises(Unreachable, match="async with"):
        await client.call("tool")
    async with client:
        pass
    with pytest.raises(Unreachable):
        await client.call("tool")


@pytest.mark.parametrize("target", ["python server.py", [], 5])
def test_a_target_that_leads_nowhere_is_refused_at_once(target: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        Client(target)
