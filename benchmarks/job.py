"""What the load generator is asked and what it answers, and asking it.

It owns the words between a benchmark and the generator's process; `load` is that process.
"""

import json
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path

from environments import ENVIRONMENTS

__all__ = ["Job", "Measurement", "drive"]

LOAD = Path(__file__).resolve().parent / "load.py"


@dataclass(frozen=True, slots=True)
class Job:
    """What to send, to whom, and when to stop: at `count` answers or after `seconds`.

    `server` is the server's process id, whose CPU time is counted; `core` is the generator's own. A plain
    answer is asked for, or else the first or the second `round` of a call of a `tool` that asks. With a
    `rate`, so many requests a second are sent at random times, whether or not earlier ones are answered.
    Plain calls carry the `token`, if there is one.
    """

    port: int
    server: int
    version: str
    core: int | None
    count: int
    seconds: float
    warmup: int = 400
    connections: int = 16
    round: int | None = None
    tool: str = ""
    rate: float | None = None
    token: str = ""


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one job gave; `generator_busy` is the share of its core that the generator used, without polling.

    With a rate, latencies count from the planned times, and `late_p99_ms` says how late the generator was.
    """

    answers: int
    errors: int
    seconds: float
    per_second: float
    median_ms: float
    p99_ms: float
    p999_ms: float
    server_cpu_us: float
    generator_busy: float
    answer_bytes: int
    late_p99_ms: float = 0.0
    typical_tail: float = 0.0
    """p99 in multiples of p50, in the median window of a fifth of a second."""


def drive(job: Job) -> Measurement:
    """Do one job in a fresh generator process; raises RuntimeError with what went wrong."""
    command = [str(ENVIRONMENTS["echo"].python), str(LOAD), json.dumps(asdict(job))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=job.seconds + 180)
    if done.returncode:
        raise RuntimeError(f"{job.version}: {(done.stderr.strip() or 'no word').splitlines()[-1]}")
    return Measurement(**json.loads(done.stdout))
