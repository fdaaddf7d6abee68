"""The official conformance suite, its scenarios of tasks, against other frameworks with our tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.suite import Runs
from tests.conformance.test_server import TASKS
from tests.support.process import started

Run = Callable[..., Runs]


@pytest.mark.parametrize("script", ["mcp_server.py", "fastmcp_server.py"])
def test_all_scenarios_of_tasks_pass(
    conformance_cli: Run, script: str, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    store = f"sqlite:///{tmp_path / 'tasks.db'}"
    with started(Path(__file__).with_name(script), tmp_path, options=[store]) as server:
        url = f"http://localhost:{server.port}/mcp"

        def run(scenario: str) -> Sequence[dict[str, Any]]:
            ((_, checks),) = conformance_cli("server", "--url", url, "--scenario", scenario)
            return checks

        ran = {scenario: run(scenario) for scenario in TASKS}
    for scenario, successes in TASKS.items():
        with subtests.test(scenario=scenario):
            wrong = [check for check in ran[scenario] if check["status"] not in ("SUCCESS", "INFO")]
            assert not wrong
            assert Counter(check["status"] for check in ran[scenario])["SUCCESS"] == successes
