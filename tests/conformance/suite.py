"""The official conformance suite, in the Node that the tests share."""

from __future__ import annotations

import asyncio
import json
import re
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.conformance.client import play
from tests.support.node import Node, Printed
from tests.support.process import ROOT

__all__ = ["SUITE", "Ran", "Runs", "run_suite"]

SUITE = ROOT / ".node/node_modules/@modelcontextprotocol/conformance/dist/index.js"
PATIENCE_MS = "120000"
"""How long the suite waits for a scenario."""
_STAMP = re.compile(r"-\d{4}-\d\d-\d\dT[\d-]+Z$")


class Ran(NamedTuple):
    """One scenario: its name, and all its checks."""

    scenario: str
    checks: list[dict[str, Any]]


class Runs(list[Ran]):
    """All scenarios of one run, and what the suite printed meanwhile."""

    code: int
    output: str


def run_suite(node: Node, results: Path, kind: str, *arguments: str) -> Runs:
    """Run the suite for a `server` or a `client`; it writes its results to an empty folder.

    The command `asked` of a client plays it in this process.
    """
    words = [kind, *arguments, "--timeout", PATIENCE_MS, "-o", str(results)]
    ran = node.run(SUITE, *words, answer=_play, exits=True)
    prefix = f"{kind}-" if kind == "server" else ""
    runs = Runs(
        Ran(
            _STAMP.sub("", str(file.parent.relative_to(results))).removeprefix(prefix),
            json.loads(file.read_text()),
        )
        for file in sorted(results.rglob("checks.json"))
    )
    runs.code, runs.output = ran.code, ran.stdout + ran.stderr
    return runs


def _play(words: list[str], env: Mapping[str, str]) -> Printed:
    """Play the client of a scenario, as `client.py` does in a process of its own."""
    try:
        asyncio.run(play(words[-1], env))
    except Exception:
        return Printed(1, stderr=traceback.format_exc())
    return Printed(0)
