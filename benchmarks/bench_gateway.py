"""What does a gateway in front of a server cost, beside the proxy of FastMCP in front of the same?

The same server of ours stands behind both, on another core. Gateways are measured one after the other in
rounds, with the same request from the same generator. What is compared is the ratio within a round.
"""

import argparse
import os
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from environments import ENVIRONMENTS, prepare, versions
from job import Job, Measurement, drive
from medians import COLUMNS, described, line, ratio, ratio_table
from processes import cores, running
from report import Report, Table, facts, listed
from traffic import MODERN

SERVERS = Path(__file__).resolve().parent / "servers"
CONNECTIONS = 16
UNBOUNDED = 10_000_000
"""More answers than any server gives in a round: time ends it."""

GATEWAYS = {"antiphon": "antiphon gateway", "fastmcp": "fastmcp proxy"}
DIRECT = "the server itself"

RATIOS = (
    ("antiphon gateway / fastmcp proxy", "antiphon gateway", "fastmcp proxy", "at least 5"),
    ("antiphon gateway / the server itself", "antiphon gateway", DIRECT, "–"),
)

NOTES = (
    "The server behind both is `antiphon run` with one tool. A gateway is pinned to one core; the generator "
    "and the server behind it share another.",
    "Both gateways are made as their documentation makes one, and serve on uvicorn with uvloop and "
    "httptools; the proxy has `json_response=True` and `stateless_http=True`.",
    "Every answer was checked: status 200 and the right sum. Anything else is counted as an error.",
    "A ratio is the median of the ratios within each round. By CPU: the same of the gateway's CPU time for "
    "one answer, without that of the server behind it.",
)


def measure(rounds: int, seconds: float) -> dict[str, list[Measurement]]:
    """Start the server and the gateways in front of it, then measure every one in every round."""
    server_core, load_core = cores()
    with ExitStack() as stack:
        python = ENVIRONMENTS["antiphon"].python
        servers = {DIRECT: stack.enter_context(running(python, SERVERS / "antiphon_server.py", load_core))}
        os.environ["BENCH_UPSTREAM"] = f"http://127.0.0.1:{servers[DIRECT][1]}/mcp"
        for name, shown in GATEWAYS.items():
            script = SERVERS / f"{name}_gateway_server.py"
            servers[shown] = stack.enter_context(running(ENVIRONMENTS[name].python, script, server_core))
        taken: dict[str, list[Measurement]] = {name: [] for name in servers}
        for number in range(rounds):
            for name, (pid, port) in servers.items():
                job = Job(
                    port, pid, MODERN, load_core, UNBOUNDED, seconds, warmup=20, connections=CONNECTIONS
                )
                taken[name].append(drive(job))
                print(f"round {number + 1}: {name}: {taken[name][-1].per_second:,.0f}/s", flush=True)
    return taken


def main() -> None:
    """Measure, print, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="3 rounds of 2 s instead of 7 of 4 s")
    options = parser.parse_args()
    rounds, seconds = (3, 2.0) if options.quick else (7, 4.0)
    known = {name: versions(prepare(name)) for name in GATEWAYS}
    about = facts()
    taken = measure(rounds, seconds)
    found = [ratio(name, taken[ours], taken[theirs], aim) for name, ours, theirs, aim in RATIOS]
    Report(
        "gateway",
        "Gateways in front of the same server",
        described(CONNECTIONS, rounds, seconds),
        about,
        [
            Table(
                ("served by", "answers/s", *COLUMNS),
                [line(name, measured) for name, measured in taken.items()],
            ),
            ratio_table(found),
        ],
        [*NOTES, *(f"{name}: {listed(shown)}" for name, shown in known.items())],
        {
            "settings": {"connections": CONNECTIONS, "rounds": rounds, "seconds": seconds},
            "versions": known,
            "rows": [
                {"name": name, "rounds": [asdict(one) for one in measured]}
                for name, measured in taken.items()
            ],
            "ratios": found,
        },
    ).publish(keep=not options.quick)


if __name__ == "__main__":
    main()
