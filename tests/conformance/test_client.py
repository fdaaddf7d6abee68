"""The official conformance suite, its client scenarios, against this library's client.

Needs the fixture `conformance_cli`: a function that runs the suite with these arguments, and gives for
each scenario its name and its checks.
"""

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conformance.suite import Runs

HARNESS = Path(__file__).with_name("client.py")

Run = Callable[..., Runs]

SCENARIOS = {
    "2025-11-25": {
        "initialize": 1,
        "tools_call": 2,
        "elicitation-sep1034-client-defaults": 5,
        "sse-retry": 3,
        "json-schema-2020-12-preservation": 9,
    },
    "2026-07-28": {
        "tools_call": 2,
        "request-metadata": 8,
        "sep-2322-client-request-state": 5,
        "http-standard-headers": 9,
        "http-custom-headers": 18,
        "http-invalid-tool-headers": 12,
        "json-schema-ref-no-deref": 1,
        "json-schema-2020-12-preservation": 9,
    },
}
"""The scenarios of each version, and how many checks of each succeed."""


@pytest.mark.parametrize(
    ("version", "scenario"),
    [(version, scenario) for version, scenarios in SCENARIOS.items() for scenario in scenarios],
)
def test_a_client_scenario_passes(conformance_cli: Run, version: str, scenario: str) -> None:
    check(conformance_cli, "asked", version, scenario)


def test_a_client_in_a_process_of_its_own_passes(conformance_cli: Run) -> None:
    check(conformance_cli, f"{sys.executable} {HARNESS}", "2026-07-28", "http-standard-headers")


def check(conformance_cli: Run, command: str, version: str, scenario: str) -> None:
    ran = conformance_cli("client", "--command", command, "--scenario", scenario, "--spec-version", version)
    assert [name for name, _ in ran] == [scenario]
    checks = ran[0][1]
    wrong = [check for check in checks if check["status"] in ("FAILURE", "WARNING")]
    assert not wrong
    assert Counter(check["status"] for check in checks)["SUCCESS"] == SCENARIOS[version][scenario]
