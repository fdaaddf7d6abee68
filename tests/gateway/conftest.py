"""Upstream servers for the tests of the gateway."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.conftest import conformance_cli as conformance_cli
from tests.support.process import ROOT

HERE = Path(__file__).parent
MCP_1 = ROOT / ".venv" / "mcp-1" / "bin" / "python"


@pytest.fixture(scope="session")
def asking() -> list[str]:
    """The command of a server that speaks 2025-11-25 over standard streams, and asks."""
    assert MCP_1.exists(), "make .venv/mcp-1/installed"
    return [str(MCP_1), str(HERE / "asking_mcp1.py")]
