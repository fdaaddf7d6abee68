"""Names the test to coverage in the processes that it starts: `pytest --cov -p tests.support.contexts`."""

from __future__ import annotations

import os

import pytest
from coverage.config import CoverageConfig

SETTINGS = "COVERAGE_PROCESS_CONFIG"
"""The variable in which coverage tells other processes its settings."""


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Name the test in the settings."""
    if SETTINGS in os.environ:
        settings = CoverageConfig.deserialize(os.environ[SETTINGS])
        settings.context = item.nodeid
        os.environ[SETTINGS] = settings.serialize()
