"""Run the targets for a set time: `python -m tests.fuzz [--seconds N] [--target NAME]… [--engine NAME]`.

Each target runs in a process of its own. Hypothesis draws random examples first. Then Atheris changes the
bytes behind the examples wherever that reaches new code of the library. A failing example is saved below
`.fuzz`, made as small as possible, and printed with the lines that reproduce it. The next run begins with it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

from tests.fuzz.targets import names
from tests.support.polling import Stopwatch
from tests.support.process import ROOT, environment

GRACE_SECONDS = 120.0
"""How long a target may still take after its time, to make a failing example small."""
SMALLEST_SHARE = 2.0
"""The fewest seconds that a target gets."""


def main() -> None:
    """Run all targets, a few at once, and exit with 1 if one fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=float(os.environ.get("FUZZ_SECONDS", "600")))
    parser.add_argument("--target", action="append", default=[], help="a part of the names of targets")
    parser.add_argument("--engine", choices=["both", "hypothesis", "atheris"], default="both")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    engines = _engines(given.engine)
    chosen = [name for name in names() if not given.target or any(part in name for part in given.target)]
    if not chosen:
        parser.error(f"no target of {', '.join(names())}")
    share = max(SMALLEST_SHARE, given.seconds * given.jobs / len(chosen) / len(engines))
    print(f"{len(chosen)} targets, {share:.0f} s each with {' and '.join(engines)}", flush=True)
    with ThreadPoolExecutor(given.jobs) as pool:
        failed = list(pool.map(lambda name: _run(name, engines, share), chosen))
    print(f"{sum(failed)} of {len(chosen)} targets failed.")
    sys.exit(1 if any(failed) else 0)


def _engines(wanted: str) -> Sequence[str]:
    has_atheris = find_spec("atheris") is not None
    if wanted == "both":
        return ["hypothesis", "atheris"] if has_atheris else ["hypothesis"]
    if wanted == "atheris" and not has_atheris:
        sys.exit("Atheris is not installed: it has no wheel for this Python or this machine.")
    return [wanted]


def _run(name: str, engines: Sequence[str], seconds: float) -> bool:
    """Run one target with each engine; return whether it failed, and print how."""
    for engine in engines:
        took = Stopwatch()
        command = [sys.executable, "-m", "tests.fuzz.one", name, engine, str(seconds)]
        try:
            done = subprocess.run(
                command,
                cwd=ROOT,
                env=environment(),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                encoding="utf-8",
                errors="replace",
                timeout=seconds + GRACE_SECONDS,
                check=False,
            )
            failed, output = done.returncode != 0, done.stdout
        except subprocess.TimeoutExpired as expired:
            kept = expired.stdout
            output = kept.decode(errors="replace") if isinstance(kept, bytes) else kept or ""
            failed, output = True, f"{output}\nThe target did not end."
        summary = output.strip().rpartition("\n")[2] if not failed else "FAILED"
        print(f"{name}, {engine}: {summary} ({took.seconds:.0f} s)", flush=True)
        if failed:
            print(output[-8000:], flush=True)
            return True
    return False


if __name__ == "__main__":
    Path(ROOT / ".fuzz").mkdir(exist_ok=True)
    main()
