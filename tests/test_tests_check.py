"""The check of the tests: each of its rules refuses what it is for, and takes what is right."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.process import ROOT
from tests.support.scripts import load_script

check_tests = load_script("check_tests")


def problems_of(source: str, tmp_path: Path, *, is_listed: bool = False) -> list[str]:
    """Return what the check says about a test file."""
    path = tmp_path / "test_it.py"
    path.write_text(source)
    return [
        problem.removeprefix(f"{path}:")
        for problem in check_tests.check(path, {str(path)} if is_listed else set())
    ]


def refused(source: str, tmp_path: Path, why: str) -> None:
    """Assert that a test file is refused for one reason alone."""
    problems = problems_of(source, tmp_path)
    assert problems
    assert [each for each in problems if why not in each] == []


@pytest.mark.parametrize(
    "source",
    [
        "import asyncio\nasync def test():\n    await asyncio.sleep(0.1)",
        "import asyncio as a\nasync def test():\n    await a.sleep(0.1)",
        "import time\ntime.sleep(1)",
        "import anyio\nasync def test():\n    await anyio.sleep(1)",
        "import trio\nasync def test():\n    await trio.sleep_until(1)",
        "from asyncio import sleep",
        "from asyncio import sleep as s\nasync def test():\n    await s(1)",
        "from time import sleep\nsleep(1)",
        "from antiphon import backoff\nasync def test():\n    await backoff.asyncio.sleep(1)",
        "import time\nnap = time.sleep\nnap(1)",
        "import time, functools\nfunctools.partial(time.sleep, 1)()",
        "import time\ngetattr(time, 'sleep')(1)",
        "__import__('time').sleep(1)",
        "import importlib\nimportlib.import_module('time').sleep(1)",
        "import subprocess\nsubprocess.run(['sleep', '1'])",
        "import asyncio\nasync def test():\n    await asyncio.create_subprocess_exec('sleep', '0.5')",
        "import os\nos.system('touch x; sleep 1; touch y')",
        "async def test(page):\n    await page.evaluate('new Promise((next) => setTimeout(next, 100))')",
    ],
)
def test_a_sleep_is_refused_however_it_is_written(source: str, tmp_path: Path) -> None:
    refused(source, tmp_path, "sleeps: wait for an event")


@pytest.mark.parametrize(
    "program",
    [
        "import time; time.sleep(9)",
        "\n    from time import sleep\n    sleep(9)\n",
        "from asyncio import sleep as s",
    ],
)
def test_a_sleep_in_a_program_that_is_a_string_is_refused(program: str, tmp_path: Path) -> None:
    is_program = "sleep(" in program  # what imports it and does not call it does no harm
    assert bool(problems_of(f"PROGRAM = {program!r}", tmp_path)) is is_program


def test_a_sleep_in_a_program_with_holes_is_refused(tmp_path: Path) -> None:
    refused('seconds = 1\nrun(f"import time; time.sleep({seconds})")', tmp_path, "sleeps")
    refused('run("import time; if x: " + "time.sleep(1)")', tmp_path, "sleeps")


def test_the_line_of_a_problem_in_a_program_is_that_in_the_file(tmp_path: Path) -> None:
    (problem,) = problems_of('PROGRAM = """\nimport time\ntime.sleep(9)\n"""\n', tmp_path)
    assert problem.startswith("3: ")


@pytest.mark.parametrize(
    "source",
    [
        "async def tool(ctx):\n    await ctx.sleep(60)",
        "async def test(client):\n    await client.submit('sleep', seconds=60)",
        "import asyncio\ndef test(monkeypatch):\n    monkeypatch.setattr(asyncio, 'sleep', None)",
        "import subprocess\nsubprocess.Popen(['sleep', '600'])",
        "PROGRAM = 'sleep 600 & wait'",
        "async def test(page):\n"
        "    await page.evaluate('while (!done) await new Promise((go) => setTimeout(go, 50))')",
        '"""What sleeps (for a night) has a timeout (of a day)."""',
    ],
)
def test_what_only_is_called_a_sleep_is_taken(source: str, tmp_path: Path) -> None:
    assert problems_of(source, tmp_path) == []


@pytest.mark.parametrize(
    "wait",
    [
        "asyncio.timeout(5)",
        "asyncio.timeout(delay=5)",
        "asyncio.timeout(0.5 * 4)",
        "asyncio.timeout(SHORT)",
        "asyncio.timeout(2 * SHORT + 1)",
        "asyncio.wait_for(work(), 5)",
        "asyncio.wait_for(work(), timeout=5)",
        "asyncio.wait({task}, timeout=0.2)",
        "asyncio.as_completed({task}, timeout=0.2)",
        "aio.timeout(5)",
        "timeout(5)",
        "anyio.fail_after(5)",
        "anyio.move_on_after(5)",
        "asyncio.get_running_loop().call_later(0.2, event.set)",
        "threading.Event().wait(0.5)",
        "threading.Timer(0.5, event.set)",
        "thread.join(2)",
        "thread.join(timeout=2)",
        "lock.acquire(True, 2)",
        "messages.get(timeout=1)",
        "messages.put(1, timeout=1)",
        "future.result(3)",
        "future.exception(timeout=3)",
        "process.wait(5)",
        "process.communicate(timeout=5)",
        "subprocess.run(['true'], timeout=5)",
        "subprocess.check_output(['true'], timeout=5)",
        "subprocess.call(['true'], timeout=5)",
        "run_process('true', timeout=5)",
        "signal.alarm(1)",
        "signal.setitimer(signal.ITIMER_REAL, 0.1)",
        "select.select([], [], [], 0.1)",
        "connection.poll(1)",
        "sock.settimeout(1)",
        "socket.create_connection(('localhost', 1), 1)",
        "urllib.request.urlopen('http://localhost', timeout=1)",
        "httpx.get('http://localhost', timeout=1)",
        "httpx.Client(timeout=1)",
        "until(lambda: done, 5)",
        "until(lambda: done, within=5)",
        "wait_until(lambda: done, within=IMPORTED / 100)",
        "page.wait_for_timeout(100)",
        "page.wait_for_selector('nav', timeout=5000)",
        "page.set_default_timeout(5000)",
        "expect(page).to_have_text('x', timeout=5000)",
        "page.expect_popup(timeout=5000)",
    ],
)
def test_a_deadline_that_a_slow_machine_does_not_keep_is_refused(wait: str, tmp_path: Path) -> None:
    source = f"""
import asyncio, anyio, httpx, threading, signal, select, socket, subprocess, urllib.request
import asyncio as aio
from asyncio import timeout
from tests.support.polling import DEADLINE as IMPORTED
SHORT = 5
def test():
    {wait}
"""
    refused(source, tmp_path, "a deadline is at least 30 s")


@pytest.mark.parametrize(
    "source",
    [
        "def test(event):\n    seconds = 5\n    event.wait(seconds)",
        "def test(event, seconds=5):\n    event.wait(seconds)",
        "def test(event, *, seconds: float = 5):\n    event.wait(seconds)",
        "SHORT: float = 5\ndef test(event):\n    event.wait(SHORT)",
        "SHORT, LONG = 5, 60\ndef test(event):\n    event.wait(SHORT)",
        "import threading\nPROGRAM = 'import threading; threading.Event().wait(5)'",
    ],
)
def test_a_short_deadline_is_refused_wherever_its_number_stands(source: str, tmp_path: Path) -> None:
    refused(source, tmp_path, "waits 5 s")


@pytest.mark.parametrize(
    "line",
    [
        "asyncio.timeout(60)",
        "asyncio.timeout(None)",
        "asyncio.timeout(DEADLINE)",
        "asyncio.wait_for(work(), 2 * DEADLINE)",
        "event.wait()",
        "event.wait(0)",
        "process.wait(timeout=60)",
        "', '.join(words)",
        "words.get('five', 5)",
        "page.wait_for_selector('nav', timeout=60_000)",
        "await asyncio.to_thread(messages.get, timeout=60)",
        "Client(url, timeout=0.1)",
        "await client.call('slow', timeout=0.1)",
        "Limits(drain_timeout=0.2)",
        "while not lock.acquire(timeout=0.001): turned()",
        "with pytest.raises(TimeoutError): await asyncio.wait_for(work(), 0.1)",
        "with pytest.raises(TimedOut): await task.result(timeout=0.1)",
    ],
)
def test_a_long_deadline_is_taken_and_a_short_one_that_the_test_expects_to_pass(
    line: str, tmp_path: Path
) -> None:
    source = f"""
import asyncio
from tests.support.polling import DEADLINE
async def test():
    {line}
"""
    assert problems_of(source, tmp_path) == []


@pytest.mark.parametrize(
    "body",
    [
        "assert time.time() - began < 1",
        "assert now() - began < 1",
        "assert asyncio.get_running_loop().time() < 5",
        "loop = asyncio.get_running_loop()\n    assert loop.time() < 5",
        "assert datetime.now() < LATER",
        "assert datetime.datetime.now(UTC) < LATER",
        "took = time.time() - began\n    assert took < 1",
        "began, count = time.time(), 0\n    assert count < 1 - began",
        "began = time.time()\n    took: float = round(1000 - began)\n    assert took < 1",
        "began = time.time()\n    took = 1000 - began\n    is_fast = took < 1\n    assert is_fast",
        "assert (took := time.time_ns() - began) < 1",
    ],
)
def test_an_assertion_on_a_clock_is_refused(body: str, tmp_path: Path) -> None:
    source = f"import asyncio, datetime, time\nfrom time import time as now\nasync def test():\n    {body}\n"
    refused(source, tmp_path, "asserts on a clock")


def test_a_loop_that_goes_on_until_a_time_is_refused(tmp_path: Path) -> None:
    loop = "import time\ndef test():\n    end = time.time() + 5\n    while time.time() < end: look()\n"
    refused(loop, tmp_path, "goes on until a time")


@pytest.mark.parametrize(
    "source",
    [
        "import time\nbegan = time.monotonic()",
        "from time import perf_counter as p\nbegan = p()",
        "import time\nclock = time.monotonic\nbegan = clock()",
        "import time\nbegan = time.perf_counter_ns()",
        "PROGRAM = 'import time; print(time.monotonic())'",
    ],
)
def test_a_clock_that_only_measures_is_not_read(source: str, tmp_path: Path) -> None:
    refused(source, tmp_path, "reads a clock")


@pytest.mark.parametrize(
    "source",
    [
        "import time\nserver = Server(clock=time.monotonic)",
        "import time\ndef test():\n    token = issue(expires=int(time.time()) + 600)\n    assert token",
        "def test(clock):\n    clock.now += 60\n    assert clock.now == 60",
    ],
)
def test_a_time_that_a_test_gives_to_something_is_taken(source: str, tmp_path: Path) -> None:
    assert problems_of(source, tmp_path) == []


@pytest.mark.parametrize(
    "source",
    [
        "def test(server):\n    assert server._tasks == []",
        "def test(server):\n    server.engine._tasks.clear()",
        "def test(server):\n    getattr(server, '_tasks')",
        "def test(server):\n    hasattr(server, '_tasks')",
        "def test(server):\n    vars(server)['_tasks']",
        "def test(server):\n    server.__dict__['_tasks']",
        "import operator\ntasks = operator.attrgetter('_tasks')",
        "import operator\ntasks = operator.attrgetter('engine._tasks.all')",
        "def test(monkeypatch, server):\n    monkeypatch.setattr(server, '_tasks', [])",
        "def test(monkeypatch):\n    monkeypatch.setattr('antiphon.server._LIMIT', 3)",
        "from unittest.mock import patch\nwith patch('antiphon.server._LIMIT', 3): test()",
        "from unittest.mock import patch\nwith patch.object(server, '_LIMIT', 3): test()",
        "from antiphon.server import _LIMIT",
        "from antiphon._server import Server",
        "import antiphon._server",
    ],
)
def test_what_is_private_is_not_reached(source: str, tmp_path: Path) -> None:
    refused(source, tmp_path, "look from outside")


@pytest.mark.parametrize(
    "source",
    [
        "class Fake:\n    def __init__(self):\n        self._tasks = []\n"
        "    def look(self):\n        self._tasks",
        "class Fake:\n    def __init__(self):\n        self._tasks = []\n"
        "    def take(self, other):\n        other._tasks",
        "def _helper(): ...\ndef test():\n    _helper()",
        "def test(row):\n    row._asdict()",
        "def test(server):\n    server.__class__",
        "import os\nos._exit(1)",
        "def test(server):\n    getattr(server, 'tasks')",
    ],
)
def test_what_a_file_has_itself_or_is_documented_is_no_private_attribute(source: str, tmp_path: Path) -> None:
    assert problems_of(source, tmp_path) == []


@pytest.mark.parametrize(
    "source",
    [
        "from tests.support.polling import pause\nasync def test():\n    await pause(1)",
        "from tests.support.polling import pause as rest\nasync def test():\n    await rest(1)",
        "from tests.support import polling\ndef test():\n    polling.pause_thread(1)",
        "import tests.support.polling as p\ndef test():\n    p.Stopwatch()",
        "import tests.support.polling\ndef test():\n    tests.support.polling.moment()",
        "from tests.soak.driver import pause\nasync def test():\n    await pause(1)",
    ],
)
def test_real_time_is_only_for_the_files_of_the_list(source: str, tmp_path: Path) -> None:
    refused(source, tmp_path, "only the files in tests/real_time.txt may")
    assert problems_of(source, tmp_path, is_listed=True) == []


def test_a_helper_of_the_same_name_is_not_restricted(tmp_path: Path) -> None:
    assert problems_of("def pause(): ...\ndef test():\n    pause()", tmp_path) == []
    assert problems_of("import signal\ndef test():\n    signal.pause()", tmp_path) == []


def test_a_file_of_the_list_that_needs_no_real_time_leaves_it(tmp_path: Path) -> None:
    (problem,) = problems_of("def test(): ...", tmp_path, is_listed=True)
    assert "needs no real time any more: delete its line" in problem


@pytest.fixture
def in_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the paths of the list begin in the checkout, and the list have two lines."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(check_tests, "MOST_LISTED", 2)


@pytest.mark.usefixtures("in_checkout")
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("# Heading\n\n# Both:\ntests/pages.py\ntests/tiers.py\n", None),
        ("tests/pages.py  # one\ntests/tiers.py  # the other\n", None),
        ("# Heading\n\ntests/pages.py\ntests/tiers.py # why\n", "tests/pages.py has no reason"),
        ("# One:\ntests/pages.py\n\ntests/tiers.py\n", "tests/tiers.py has no reason"),
        ("# Both:\ntests/pages.py #\ntests/no.py\n", "there is no tests/no.py"),
        ("# All:\ntests/pages.py\ntests/tiers.py\ntests/diagrams.py\n", "it only gets shorter: at most 2"),
        ("# One:\ntests/pages.py\n", "lower MOST_LISTED of check_tests.py to 1"),
    ],
)
def test_the_list_names_files_with_their_reasons_and_only_gets_shorter(
    text: str, problem: str | None
) -> None:
    _, problems = check_tests.read_list(text)
    assert len(problems) == (problem is not None)
    assert problem is None or problem in problems[0]


def test_the_check_ends_with_its_findings(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    (tmp_path / "test_bad.py").write_text("import time\ntime.sleep(1)\n")
    (tmp_path / "test_good.py").write_text("def test(): ...\n")
    with pytest.raises(SystemExit) as ended:
        check_tests.main([str(tmp_path)])
    assert ended.value.code == 1
    assert capsys.readouterr().out.startswith(f"{tmp_path / 'test_bad.py'}:2: sleeps")
    with pytest.raises(SystemExit) as ended:
        check_tests.main([str(tmp_path / "test_good.py")])
    assert ended.value.code == 0
