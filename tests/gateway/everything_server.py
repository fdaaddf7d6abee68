"""The everything-server of the official SDK behind a gateway: `python -m tests.gateway.everything_server`.

Takes the server from the source distribution of `mcp`, unmodified, runs the server scenarios of the official
suite against it, and again through a gateway in front of it. A scenario that passes without the gateway has
to pass with it. Not a test of `make test`, because it downloads a package. Prints a table.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.conformance.suite import run_suite
from tests.conformance.test_server import SCENARIOS
from tests.gateway.processes import gateway, serving
from tests.support.node import running_node
from tests.support.process import ROOT, ServerProcess, free_port

HOME = Path(os.environ.get("ANTIPHON_REAL_SERVERS", ROOT / ".venv" / "adopt")) / "everything-server"
VERSION = importlib.metadata.version("mcp")


def download() -> Path:
    """Download the source distribution, unless it is there; return the folder with the package."""
    folder = HOME / f"mcp-{VERSION}" / "examples" / "servers" / "everything-server"
    if not folder.exists():
        HOME.mkdir(parents=True, exist_ok=True)
        words = ["download", "--quiet", "--no-deps", "--no-binary", "mcp", "--dest", str(HOME)]
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *words, f"mcp=={VERSION}"]
        subprocess.run(command, check=True, timeout=600)
        with tarfile.open(HOME / f"mcp-{VERSION}.tar.gz") as archive:
            archive.extractall(HOME, filter="data")
    return folder


@contextlib.contextmanager
def everything_server(folder: Path, package: Path) -> Iterator[ServerProcess]:
    """Run the server until the block ends."""
    port = free_port()
    command = [sys.executable, "-m", "mcp_everything_server", "--port", str(port)]
    with serving(command, port, folder, {"PYTHONPATH": str(package)}) as server:
        yield server


def outcomes(folder: Path, port: int, version: str) -> dict[str, Counter[str]]:
    """Run all scenarios of a version; return how many checks of each had which status."""
    results = Path(tempfile.mkdtemp(dir=folder))
    words = ["--url", f"http://localhost:{port}/mcp", "--suite", "all", "--spec-version", version]
    with running_node() as node:
        ran = run_suite(node, results, "server", *words)
    return {scenario: Counter(check["status"] for check in checks) for scenario, checks in ran}


def passes(statuses: Counter[str]) -> bool:
    """Whether a scenario has passed: some of its checks succeeded, and none failed or warned."""
    return statuses["SUCCESS"] > 0 and statuses.keys() <= {"SUCCESS", "INFO"}


def main() -> int:
    """Compare the two on each version; return 1 if the gateway fails a scenario that the server passes."""
    package, lost = download(), 0
    with (
        tempfile.TemporaryDirectory() as name,
        everything_server(Path(name), package) as upstream,
        gateway(Path(name), upstream.url) as front,
    ):
        for version in SCENARIOS:
            direct = outcomes(Path(name), upstream.port, version)
            through = outcomes(Path(name), front.port, version)
            assert len(direct) >= len(SCENARIOS[version]), f"{version}: only {len(direct)} scenarios ran"
            for scenario in sorted(direct):
                before, after = direct[scenario], through.get(scenario, Counter())
                is_lost = passes(before) and not passes(after)
                lost += is_lost
                words = ["passes" if passes(each) else "fails" for each in (before, after)]
                note = " <- lost" if is_lost else ""
                print(f"{version} | {scenario} | {' | '.join(words)}{note}", flush=True)
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
