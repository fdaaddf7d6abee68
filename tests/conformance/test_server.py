"""The official conformance suite, its server scenarios, against `server.py` beside this file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.suite import Runs
from tests.support.process import ServerProcess, started

SERVER = Path(__file__).with_name("server.py")
Run = Callable[..., Runs]

SCENARIOS = {
    "2025-11-25": {
        "server-initialize": 3,
        "server-session-lifecycle": 3,
        "logging-set-level": 2,
        "ping": 2,
        "completion-complete": 2,
        "tools-list": 3,
        "tools-call-simple-text": 2,
        "tools-call-image": 2,
        "tools-call-audio": 2,
        "tools-call-embedded-resource": 2,
        "tools-call-mixed-content": 2,
        "tools-call-with-logging": 2,
        "tools-call-error": 2,
        "tools-call-with-progress": 2,
        "tools-call-sampling": 2,
        "tools-call-elicitation": 2,
        "json-schema-2020-12": 8,
        "elicitation-sep1034-defaults": 6,
        "elicitation-sep1330-enums": 6,
        "server-sse-polling": 3,
        "server-sse-multiple-streams": 2,
        "resources-list": 2,
        "resources-read-text": 2,
        "resources-read-binary": 2,
        "resources-templates-read": 2,
        "resources-subscribe": 2,
        "resources-unsubscribe": 2,
        "prompts-list": 2,
        "prompts-get-simple": 2,
        "prompts-get-with-args": 2,
        "prompts-get-embedded-resource": 2,
        "prompts-get-with-image": 2,
        "dns-rebinding-protection": 2,
    },
    "2026-07-28": {
        "server-stateless": 30,
        "completion-complete": 2,
        "tools-list": 4,
        "tools-call-simple-text": 2,
        "tools-call-image": 2,
        "tools-call-audio": 2,
        "tools-call-embedded-resource": 2,
        "tools-call-mixed-content": 2,
        "tools-call-error": 2,
        "tools-call-with-progress": 2,
        "json-schema-2020-12": 8,
        "server-sse-multiple-streams": 2,
        "resources-list": 2,
        "resources-read-text": 2,
        "resources-read-binary": 2,
        "resources-templates-read": 2,
        "sep-2164-resource-not-found": 4,
        "prompts-list": 2,
        "prompts-get-simple": 2,
        "prompts-get-with-args": 2,
        "prompts-get-embedded-resource": 2,
        "prompts-get-with-image": 2,
        "dns-rebinding-protection": 2,
        "caching": 8,
        "http-header-validation": 14,
        "http-custom-header-server-validation": 10,
        "input-required-result-basic-elicitation": 3,
        "input-required-result-basic-sampling": 3,
        "input-required-result-basic-list-roots": 3,
        "input-required-result-request-state": 3,
        "input-required-result-multiple-input-requests": 3,
        "input-required-result-multi-round": 4,
        "input-required-result-missing-input-response": 2,
        "input-required-result-non-tool-request": 3,
        "input-required-result-result-type": 2,
        "input-required-result-unsupported-methods": 2,
        "input-required-result-tampered-state": 2,
        "input-required-result-capability-check": 2,
        "input-required-result-ignore-extra-params": 2,
        "input-required-result-validate-input": 3,
    },
}
"""The scenarios of each version, all that the suite has, and how many checks of each succeed."""

TASKS = {
    "tasks-lifecycle": 9,
    "tasks-capability-negotiation": 5,
    "tasks-wire-fields": 4,
    "tasks-request-state-removal": 3,
    "tasks-mrtr-input": 4,
    "tasks-request-headers": 5,
    "tasks-dispatch-and-envelope": 9,
    "tasks-required-task-error": 3,
    "tasks-mrtr-composition": 2,
}
"""The scenarios of the tasks extension, which belong to no version and are run one by one."""
# One more, tasks-status-notifications, is skipped by the suite itself, which says that it is to be rewritten.


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One process for everything, as the suite wants it."""
    with started(SERVER, tmp_path_factory.mktemp("server")) as process:
        yield process


@pytest.fixture(scope="module", params=SCENARIOS)
def version(request: pytest.FixtureRequest) -> str:
    """A version of the specification."""
    return str(request.param)


@pytest.fixture(scope="module")
def ran(conformance_cli: Run, server: ServerProcess, version: str) -> dict[str, Sequence[dict[str, Any]]]:
    """The checks of each scenario, from one run of all of them."""
    url = f"http://localhost:{server.port}/mcp"
    return dict(conformance_cli("server", "--url", url, "--suite", "all", "--spec-version", version))


def test_every_scenario_of_the_suite_was_run(ran: dict[str, Any], version: str) -> None:
    assert sorted(ran) == sorted(SCENARIOS[version])


def test_nothing_fails_and_nothing_is_skipped(
    ran: dict[str, Sequence[dict[str, Any]]], version: str, subtests: pytest.Subtests
) -> None:
    for scenario, successes in SCENARIOS[version].items():
        with subtests.test(scenario=scenario):
            checks = ran.get(scenario, [])
            wrong = [check for check in checks if check["status"] not in ("SUCCESS", "INFO")]
            assert not wrong, "\n".join(_explained(check) for check in wrong)
            assert Counter(check["status"] for check in checks)["SUCCESS"] == successes


@pytest.mark.parametrize("scenario", TASKS)
def test_nothing_fails_in_the_extension(conformance_cli: Run, server: ServerProcess, scenario: str) -> None:
    url = f"http://localhost:{server.port}/mcp"
    ((_, checks),) = conformance_cli("server", "--url", url, "--scenario", scenario)
    wrong = [check for check in checks if check["status"] not in ("SUCCESS", "INFO")]
    assert not wrong, "\n".join(_explained(check) for check in wrong)
    assert Counter(check["status"] for check in checks)["SUCCESS"] == TASKS[scenario]


def test_the_server_logged_no_traceback(ran: dict[str, Any], server: ServerProcess) -> None:
    assert "Traceback" not in server.log


def _explained(check: dict[str, Any]) -> str:
    return f"{check['status']} {check['id']}: {check.get('errorMessage') or check.get('description')}"
