"""Our client on the tasks of FastMCP, where its tasks extension is installed, here or for the benchmarks."""

import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from antiphon.client import Client
from antiphon.errors import AntiphonError, TaskCancelled, TaskLost, TimedOut
from tests.client.conftest import PEERS, _free_port, _wait_for
from tests.support.polling import DEADLINE

_BENCHMARKED = Path(__file__).parent.parent.parent / ".bench/fastmcp-tasks/bin/python"
PYTHON = sys.executable if find_spec("fastmcp_tasks") else str(_BENCHMARKED)

pytestmark = pytest.mark.skipif(
    not find_spec("fastmcp_tasks") and not _BENCHMARKED.exists(), reason="fastmcp-tasks is not installed"
)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the peer is."""
    port, log = _free_port(), tmp_path_factory.mktemp("peer") / "peer.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [PYTHON, "-W", "ignore", str(PEERS / "fastmcp_tasks_server.py"), str(port)],
            stdout=output,
            stderr=output,
        )
    try:
        _wait_for(port, process, log)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait()


async def test_a_call_that_becomes_a_task_is_driven_to_its_end(url: str) -> None:
    async with Client(url, timeout=DEADLINE) as client:
        assert client.version == "2026-07-28"
        assert (await client.call("sleep", seconds=0.2)).text == "Done."
        assert (await client.call("add", a=2, b=3)).text == "5"
        with pytest.raises(AntiphonError, match="went wrong"):
            await client.call("fail")


async def test_a_submitted_task_is_followed_and_taken_up_again(url: str) -> None:
    async with Client(url, timeout=DEADLINE) as client:
        promise = await client.submit("sleep", seconds=0.3)
        assert promise.id is not None
        seen = [status.status async for status in promise.updates()]
        assert seen[-1] == "completed"
    async with Client(url, timeout=DEADLINE) as client:
        assert (await client.task(promise.id).result(timeout=DEADLINE)).text == "Done."
        with pytest.raises(TaskLost):
            await client.task("nobody").status()


async def test_a_task_is_waited_for_no_longer_than_wanted_and_cancelled(url: str) -> None:
    async with Client(url, timeout=DEADLINE) as client:
        promise = await client.submit("sleep", seconds=60)
        with pytest.raises(TimedOut):
            await promise.result(timeout=0.3)
        await promise.cancel()
        with pytest.raises((TaskCancelled, TaskLost)):
            await promise.result(timeout=DEADLINE)
