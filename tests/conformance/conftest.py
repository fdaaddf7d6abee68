"""The official conformance suite as a fixture."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.conformance.suite import SUITE, Runs, run_suite
from tests.support.node import Node


@pytest.fixture(scope="session")
def conformance_cli(node: Node, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Runs]:
    """A function that runs the suite for a `server` or a `client`, with further arguments."""
    assert SUITE.exists(), "run `make .node/installed`"

    def run(kind: str, *arguments: str) -> Runs:
        return run_suite(node, tmp_path_factory.mktemp("conformance"), kind, *arguments)

    return run
