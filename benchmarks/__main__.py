"""Run every benchmark in turn: `python -m benchmarks [--quick] [--only NAME]`.

Each `bench_NAME.py` answers one question in a process of its own and writes `results/NAME.md` and
`results/NAME.json`. One that fails does not keep the others from running.
"""

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
LONGEST = 3600
"""Seconds after which one benchmark is ended."""


def main() -> int:
    """Run the benchmarks asked for; the number that failed is the exit code."""
    names = sorted(path.stem.removeprefix("bench_") for path in HERE.glob("bench_*.py"))
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", choices=names, action="append", help="run this one (may be given again)")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds, to see that it works")
    options = parser.parse_args()
    failed = 0
    for name in options.only or names:
        command = [sys.executable, str(HERE / f"bench_{name}.py"), *(["--quick"] if options.quick else [])]
        print(f"== {name}", flush=True)
        failed += subprocess.run(command, timeout=LONGEST).returncode != 0
    return failed


if __name__ == "__main__":
    sys.exit(main())
