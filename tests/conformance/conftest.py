"""The official conformance suite as a fixture."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.conformance.suite import SUITE, Runs, run_suite


@pytest.fixture(scope="session")
def conformance_cli(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Runs]:
    """A function that runs the suite for a `server` or a `client`, with further arguments."""
    assert SUITE.exists(), "run `make .node/installed`"

    def run(kind: str, *arguments: str, timeout: float = 120) -> Runs:
        return run_suite(tmp_path_factory.mktemp("conformance"), kind, *arguments, timeout=timeout)

    return run
