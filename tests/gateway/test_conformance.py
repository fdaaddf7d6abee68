"""The server scenarios of the official conformance suite, through a gateway."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tests.conformance.test_server import SCENARIOS, SERVER, TASKS, Run, _explained
from tests.gateway.processes import gateway
from tests.support.process import ServerProcess, started

OTHER_BEHAVIOUR = {
    # The server closes the connection of its caller, which is the gateway.
    "server-sse-polling",
}
"""Scenarios that a gateway does not pass as the server behind it does."""
TASK_SCENARIOS = ("tasks-lifecycle", "tasks-mrtr-input", "tasks-mrtr-composition")
"""Some scenarios of tasks. All pass but one, tasks-required-task-error: a caller that does not accept tasks
can call a tool that runs only as a task, because the gateway waits for the task itself."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("gateway")
    with started(SERVER, folder) as upstream, gateway(folder, upstream.url) as process:
        yield process


@pytest.mark.parametrize("version", SCENARIOS)
def test_the_scenarios_of_a_version(
    conformance_cli: Run,
    served: ServerProcess,
    version: str,
    subtests: pytest.Subtests,
) -> None:
    url = f"http://localhost:{served.port}/mcp"
    ran = dict(conformance_cli("server", "--url", url, "--suite", "all", "--spec-version", version))
    for scenario in SCENARIOS[version].keys() - OTHER_BEHAVIOUR:
        with subtests.test(scenario=scenario):
            check_all(ran.get(scenario, []), SCENARIOS[version][scenario])


@pytest.mark.parametrize("scenario", TASK_SCENARIOS)
def test_the_scenarios_of_tasks(conformance_cli: Run, served: ServerProcess, scenario: str) -> None:
    url = f"http://localhost:{served.port}/mcp"
    ((_, checks),) = conformance_cli("server", "--url", url, "--scenario", scenario)
    check_all(checks, TASKS[scenario])


def check_all(checks: Sequence[dict[str, Any]], successes: int) -> None:
    wrong = [check for check in checks if check["status"] not in ("SUCCESS", "INFO")]
    assert not wrong, "\n".join(_explained(check) for check in wrong)
    assert Counter(check["status"] for check in checks)["SUCCESS"] == successes
