"""What does a call with an access token of an issuer cost, beside one with a fixed token?

Both servers run at once, pinned to one core, and are measured one after the other in rounds, with the
same call from the same generator on another core. What is compared is the ratio within a round.
"""

import argparse
import urllib.request
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

ROWS = {"fixed token": "antiphon_fixed_token.py", "access token of an issuer": "antiphon_issued_token.py"}

NOTES = (
    "The access token is a JWT (ES256, ten claims), and the server requires a scope. A verified token is "
    "cached for a minute, so that its signature is checked once.",
    "Every answer was checked: status 200 and the right sum. Anything else is counted as an error.",
    "A ratio is the median of the ratios within each round. By CPU: the same of the server's CPU time for "
    "one answer, which other work on the machine disturbs less.",
)


def token_of(port: int) -> str:
    """The token that a server under measurement accepts."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/token", timeout=30) as response:
        return str(response.read().decode())


def measure(rounds: int, seconds: float) -> dict[str, list[Measurement]]:
    """Start both servers, then measure each in every round."""
    taken: dict[str, list[Measurement]] = {name: [] for name in ROWS}
    server_core, load_core = cores()
    with ExitStack() as stack:
        python = ENVIRONMENTS["antiphon"].python
        servers = {
            name: stack.enter_context(running(python, SERVERS / script, server_core))
            for name, script in ROWS.items()
        }
        tokens = {name: token_of(port) for name, (_, port) in servers.items()}
        for number in range(rounds):
            for name, measured in taken.items():
                pid, port = servers[name]
                job = Job(
                    port,
                    pid,
                    MODERN,
                    load_core,
                    UNBOUNDED,
                    seconds,
                    connections=CONNECTIONS,
                    token=tokens[name],
                )
                measured.append(drive(job))
                print(f"round {number + 1}: {name}: {measured[-1].per_second:,.0f}/s", flush=True)
    return taken


def main() -> None:
    """Measure, print, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="3 rounds of 1 s instead of 7 of 3 s")
    options = parser.parse_args()
    rounds, seconds = (3, 1.0) if options.quick else (7, 3.0)
    prepare("echo")
    known = versions(prepare("antiphon"))
    about = facts()
    taken = measure(rounds, seconds)
    fixed, issued = taken.values()
    # How many times as much the fixed token does: the cost of an issued one.
    found = ratio("fixed token / access token of an issuer", fixed, issued, "at most 1.1")
    Report(
        "tokens",
        "Calls with an access token",
        described(CONNECTIONS, rounds, seconds),
        about,
        [
            Table(("server", "answers/s", *COLUMNS), [line(name, rows) for name, rows in taken.items()]),
            ratio_table([found]),
        ],
        [*NOTES, f"antiphon: {listed(known)}"],
        {
            "settings": {"connections": CONNECTIONS, "rounds": rounds, "seconds": seconds},
            "versions": known,
            "rows": [
                {"name": name, "rounds": [asdict(one) for one in measured]}
                for name, measured in taken.items()
            ],
            "ratios": [found],
        },
    ).publish(keep=not options.quick)


if __name__ == "__main__":
    main()
