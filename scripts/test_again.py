"""Run tests again and again beside busy loops, until they fail: it finds those that depend on a time.

python scripts/test_again.py --runs 10 --busy 2 make test
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from contextlib import ExitStack

_LOOP = """
import os, sys, threading
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0))).start()
while True:
    pass
"""
"""A busy loop that ends when its input does: with this process, however that one ends."""


def main() -> int:
    """Return 1 after the first run that fails, and 0 if none does."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=10, help="how often to run the tests")
    parser.add_argument("--busy", type=int, default=2, help="how many busy loops run beside them")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="what runs the tests, such as `make test`")
    options = parser.parse_args()
    with ExitStack() as stack:
        for _ in range(options.busy):
            loop = stack.enter_context(subprocess.Popen([sys.executable, "-c", _LOOP], stdin=subprocess.PIPE))
            stack.callback(loop.kill)
        for run in range(1, options.runs + 1):
            began = time.monotonic()
            code = subprocess.run(options.command, check=False).returncode
            minutes, seconds = divmod(round(time.monotonic() - began), 60)
            outcome = "passed" if code == 0 else f"FAILED, exit code {code}"
            print(
                f"Run {run} of {options.runs}, with {options.busy} busy loops on {os.cpu_count()} cores: "
                f"{outcome}, {minutes} min {seconds} s",
                flush=True,
            )
            if code:
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
