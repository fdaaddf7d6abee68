"""The pytest plugin, in projects of its own and in real processes of pytest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from antiphon import Client, Server
from antiphon.testing import assert_tools_match, pytest_plugin, snapshots
from tests.cli.command import plain_environment

pytest_plugins = ["pytester"]

SERVER = '''
from antiphon import Context, Server

server = Server("stock")


@server.tool
async def take(item: str, count: int = 1) -> int:
    """Take an item from the shelf."""
    return 3 - count


@server.tool(task="required", poll_interval=0.01)
async def remind(ctx: Context) -> str:
    await ctx.sleep(days=1)
    return f"{ctx.principal.id}: Monday"
'''

ASYNCIO_TESTS = """
import pytest

pytestmark = pytest.mark.asyncio


@pytest.fixture
def antiphon_client_options():
    return {"principal": "ada"}


async def test_time_passes_for_a_caller(antiphon_client, antiphon_clock):
    promise = await antiphon_client.submit("remind")
    await antiphon_clock.advance(days=1)
    assert (await promise.result()).text == "ada: Monday"


@pytest.mark.asyncio(loop_scope="module")
async def test_the_client_is_in_the_event_loop_of_the_test(antiphon_client):
    assert (await antiphon_client.call("take", item="tea")).data == 2


async def test_the_tools_are_the_same(antiphon_client, antiphon_tools_snapshot):
    await antiphon_tools_snapshot(antiphon_client)
"""

ANYIO_TESTS = """
import pytest
from contextlib import asynccontextmanager

from antiphon import Server

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param


@pytest.fixture
def antiphon_server():
    import anyio

    @asynccontextmanager
    async def lifespan(server):
        async with anyio.create_task_group():
            yield {}

    server = Server("own", lifespan=lifespan)
    server.add_tool(lambda: "mine", name="own")
    return server


async def test_a_server_of_the_project(antiphon_client):
    assert (await antiphon_client.call("own")).text == "mine"
"""

NAMESAKE_TESTS = """
import pytest

from antiphon import Server


@pytest.fixture(scope="session")
def antiphon_server():
    server = Server("other")
    server.add_tool(lambda: "mine", name="other")
    return server


class TestOther:
    async def test_the_tools_are_the_same(self, antiphon_client, antiphon_tools_snapshot):
        await antiphon_tools_snapshot(antiphon_client)
"""

SNAPSHOT = "snapshots/test_with_asyncio.test_the_tools_are_the_same.json"
NAMESAKE_SNAPSHOT = "snapshots/test_namesake.TestOther.test_the_tools_are_the_same.json"

SETTINGS = """
[pytest]
antiphon_server = server.py
asyncio_default_fixture_loop_scope = function
filterwarnings = error
"""


def is_installed() -> bool:
    """Whether pytest finds the plugin by itself: it does after `make`, and not in a bare checkout."""
    return any(point.value == pytest_plugin.__name__ for point in entry_points(group="pytest11"))


def plugins(*others: str) -> list[str]:
    """The options of pytest that load our plugin, and these others."""
    ours = "antiphon" if is_installed() else pytest_plugin.__name__
    return [word for name in (ours, *others) for word in ("-p", name)]


def run(project: Path, *options: str) -> str:
    """Run pytest in a project, and return its output."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-rA", "--tb=short", *options],
        cwd=project,
        env={**plain_environment(), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "COLUMNS": "200"},
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    return done.stdout + done.stderr


@pytest.fixture
async def project(tmp_path: Path) -> Path:
    earlier = Server("stock")

    @earlier.tool
    async def take(item: str, count: int = 2) -> int:
        """Take an item from the shelf."""
        return 3 - count

    async with Client(earlier) as client:
        await assert_tools_match(client, tmp_path / SNAPSHOT, update=True)
    for name, content in {
        "server.py": SERVER,
        "test_with_asyncio.py": ASYNCIO_TESTS,
        "test_with_anyio.py": ANYIO_TESTS,
        "pytest.ini": SETTINGS,
    }.items():
        (tmp_path / name).write_text(content)
    return tmp_path


def test_a_project_tests_its_server_and_its_schemas(project: Path) -> None:
    output = run(project, *plugins("asyncio", "anyio"))
    assert "PASSED test_with_asyncio.py::test_time_passes_for_a_caller" in output
    assert "PASSED test_with_asyncio.py::test_the_client_is_in_the_event_loop_of_the_test" in output
    assert "PASSED test_with_anyio.py::test_a_server_of_the_project[asyncio]" in output
    assert "Antiphon runs on asyncio: let the fixture anyio_backend return 'asyncio'." in output
    assert "tool take: inputSchema.properties.count.default was 2, and is 1" in output
    assert "snapshots.py" not in output  # the traceback ends in the test
    assert "1 failed, 3 passed, 1 error" in output, output

    (project / "test_namesake.py").write_text(NAMESAKE_TESTS)
    files = ["test_with_asyncio.py", "test_namesake.py"]
    options = ["--antiphon-update-snapshots", "-o", "asyncio_mode=auto", *files]
    assert "4 passed" in run(project, *plugins("asyncio"), *options)
    assert [*json.loads((project / NAMESAKE_SNAPSHOT).read_text())["tools"]] == ["other"]
    saved = json.loads((project / SNAPSHOT).read_text())
    assert sorted(saved["tools"]) == ["remind", "take"]
    assert saved["tools"]["take"]["inputSchema"]["properties"]["count"]["default"] == 1


def test_mistakes_are_explained(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile(
        """
        def test_it(antiphon_server):
            pass

        def test_plain(antiphon_client):
            pass
        """
    )
    output = pytester.runpytest_inprocess(*plugins()).stdout
    output.fnmatch_lines("*define a fixture `antiphon_server`*")
    output.fnmatch_lines("*The fixture antiphon_client is for async tests*")
    output = pytester.runpytest_inprocess(*plugins(), "--antiphon-server", "nowhere.py").stdout
    output.fnmatch_lines("*There is no file nowhere.py.*")


def test_the_next_run_in_the_process_compares_snapshots_again(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile(
        """
        from antiphon.testing import snapshots

        def test_it():
            assert snapshots.are_updated
        """
    )
    pytester.runpytest_inprocess(*plugins(), "--antiphon-update-snapshots").assert_outcomes(passed=1)
    assert not snapshots.are_updated


def test_pytest_does_not_rewrite_the_library(tmp_path: Path) -> None:
    (tmp_path / "another.py").write_text("def is_one() -> None:\n    assert 2 == 1\n")
    (tmp_path / "test_it.py").write_text(
        "import another, antiphon.server\n\n"
        "def test_who_imports():\n"
        "    loaders = [type(each.__spec__.loader).__name__ for each in (another, antiphon.server)]\n"
        "    assert loaders == ['AssertionRewritingHook', 'SourceFileLoader']\n"
    )
    output = run(tmp_path, *plugins("another"))
    assert "1 passed" in output, output


def test_the_plugin_loads_nothing_of_the_library_by_itself() -> None:
    code = (
        "import sys, pytest\n"
        "before = set(sys.modules)\n"
        f"import {pytest_plugin.__name__}\n"
        "print(*sorted(set(sys.modules) - before))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=True,
        env=os.environ,
    )
    loaded = set(done.stdout.split())
    ours = {name for name in loaded if name.startswith("antiphon")}
    assert ours == {
        "antiphon",
        "antiphon.log_records",
        "antiphon.printable",
        "antiphon.testing",
        "antiphon.testing.pytest_plugin",
        "antiphon.version",
    }
    assert not loaded & {"asyncio", "msgspec", "pydantic", "typer"}
