"""Measures how much a hostile crowd delays another principal: `python -m tests.hostile.crowd_ratio`.

Two servers of the same code run side by side, and the crowd is at one of them. The same caller calls them in
turns, so that everything else on the machine delays both alike. Prints the ratio of the medians, and exits
with 1 if it is over the limit.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
from pathlib import Path

from tests.hostile.crowd import ADA, crowd
from tests.support import http
from tests.support.polling import Stopwatch
from tests.support.process import started
from tests.support.speakers import Modern

LIMIT = 3.0
CALLS = 600


async def measure(calm: int, crowded: int, calls: int) -> tuple[float, float]:
    """Return the median duration of a call at each of two ports, in seconds."""
    durations: dict[int, list[float]] = {calm: [], crowded: []}
    for number in range(calls):
        ports = (calm, crowded) if number % 2 else (crowded, calm)
        for port in ports:
            headers, frame = Modern(port, headers=ADA).build(
                "tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}
            )
            took = Stopwatch()
            response = await http.request(port, "POST", headers, json.dumps(frame).encode())
            durations[port].append(took.seconds)
            assert response.text == "3", response
    return statistics.median(durations[calm]), statistics.median(durations[crowded])


def main() -> None:
    """Measure, print and judge, for both ways into a server."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=CALLS)
    given = parser.parse_args()
    failed = False
    for command in (True, False):
        with (
            tempfile.TemporaryDirectory(prefix="antiphon-crowd-") as folder,
            started("crowded.py", Path(folder), command=command) as calm,
            started("crowded.py", Path(folder), command=command) as crowded,
            crowd(crowded.port) as counts,
        ):
            idle, busy = asyncio.run(measure(calm.port, crowded.port, given.calls))
        ratio = busy / idle
        failed |= ratio > LIMIT
        print(
            f"{'antiphon run' if command else 'uvicorn'}: {idle * 1000:.2f} ms calm, {busy * 1000:.2f} ms "
            f"with the crowd, ratio {ratio:.2f} of at most {LIMIT:g} ({dict(counts)})",
            flush=True,
        )
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
