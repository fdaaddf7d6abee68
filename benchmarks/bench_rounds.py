"""What does one round of additional information cost, beside the official SDK?

A tool asks one question: the first round ends with the question, the second, with the answer and the
server's state, completes the call. Both servers run at once, each in its own environment, pinned to one
core; they are measured one after the other in rounds, with the same requests from the same generator on
another core. What is compared is the ratio within a round.
"""

import argparse
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeAlias

from environments import ENVIRONMENTS, prepare, versions
from job import Job, Measurement, drive
from medians import COLUMNS, line, ratio
from processes import cores, running
from report import Report, Table, facts, listed
from traffic import MODERN

SERVERS = Path(__file__).resolve().parent / "servers"
CONNECTIONS = 16
UNBOUNDED = 10_000_000
"""More answers than any server gives in a round: time ends it."""

ORDINALS = {1: "first", 2: "second"}


@dataclass(frozen=True, slots=True)
class Row:
    """One round of the call of one tool of one server."""

    server: str
    tool: str
    title: str
    round: int

    @property
    def name(self) -> str:
        return f"{self.title}, {ORDINALS[self.round]} round"


Taken: TypeAlias = dict[Row, list[Measurement]]

TOOLS = (
    ("antiphon", "ask", "antiphon"),
    ("antiphon", "ask_after_a_step", "antiphon after a step"),
    ("mcp", "ask", "mcp"),
    ("mcp", "ask_by_hand", "mcp by hand"),
)
ROWS = tuple(Row(*tool, number) for number in ORDINALS for tool in TOOLS)

RATIOS = (
    ("antiphon", "mcp", "at least 17"),
    ("antiphon after a step", "mcp", "at least 10"),
    ("antiphon", "mcp by hand", "–"),
)

NOTES = (
    "Both servers run on uvicorn with uvloop and httptools, without access log, in their own virtual "
    "environments, pinned to one core; the generator has another, and polls: a server does not pay for "
    "waking it. Both seal under a key of the process.",
    "mcp: a parameter with a resolver that returns `Elicit`, the documented way, which always sends a sealed "
    "state. By hand: an `InputRequiredResult` without state is returned.",
    "antiphon: `await ctx.elicit(…)`, which needs no state. After a step: the result of `await ctx.step(…)` "
    "before the question travels in a sealed state.",
    "Second rounds of questions with a state carry states that were obtained before the measurement, 64 to a "
    "connection in turn.",
    "Every answer was checked: status 200 and the right question or sum. All else is counted as an error.",
    "A ratio is the median of the ratios within each round. The rounds are short and many, because the speed "
    "of a virtual machine changes within seconds. By CPU: the same of the server's CPU time for "
    "one answer, which other work on the machine disturbs less.",
)


def measure(rounds: int, seconds: float) -> Taken:
    """Start the servers, then measure every row in every round."""
    taken: Taken = {row: [] for row in ROWS}
    server_core, load_core = cores()
    with ExitStack() as stack:
        servers = {}
        for name in ("antiphon", "mcp"):
            script = SERVERS / f"{name}_rounds.py"
            servers[name] = stack.enter_context(running(ENVIRONMENTS[name].python, script, server_core))
        for number in range(rounds):
            for row, measured in taken.items():
                pid, port = servers[row.server]
                measured.append(
                    drive(
                        Job(
                            port,
                            pid,
                            MODERN,
                            load_core,
                            UNBOUNDED,
                            seconds,
                            connections=CONNECTIONS,
                            round=row.round,
                            tool=row.tool,
                        )
                    )
                )
                print(f"round {number + 1}: {row.name}: {measured[-1].per_second:,.0f}/s", flush=True)
    return taken


def ratios(taken: Taken) -> list[dict[str, str | float]]:
    """Each ratio, of rounds a second and of CPU time."""
    by_name = {(row.title, row.round): measured for row, measured in taken.items()}
    return [
        ratio(f"{ours} / {theirs}, {ordinal} round", by_name[ours, number], by_name[theirs, number], aim)
        for number, ordinal in ORDINALS.items()
        for ours, theirs, aim in RATIOS
    ]


def main() -> None:
    """Measure, print, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="3 rounds instead of 21")
    options = parser.parse_args()
    rounds, seconds = (3 if options.quick else 21), 1.0
    prepare("echo")
    known = {name: versions(prepare(name)) for name in ("antiphon", "mcp")}
    about = facts()
    taken = measure(rounds, seconds)
    found = ratios(taken)
    Report(
        "rounds",
        "Rounds of additional information over HTTP",
        f"`tools/call` of a tool that asks for one field, on {MODERN}, {CONNECTIONS} keep-alive connections, "
        f"one worker; medians of {rounds} interleaved rounds of {seconds:g} s.",
        about,
        [
            Table(
                ("server", "rounds/s", *COLUMNS),
                [line(row.name, measured) for row, measured in taken.items()],
            ),
            Table(
                ("ratio", "rounds/s", "by CPU", "aim"),
                [[str(r["name"]), f"{r['rate']:.2f}", f"{r['cpu']:.2f}", str(r["aim"])] for r in found],
            ),
        ],
        [*NOTES, *(f"{name}: {listed(shown)}" for name, shown in known.items())],
        {
            "settings": {"connections": CONNECTIONS, "rounds": rounds, "seconds": seconds},
            "versions": known,
            "rows": [
                {**asdict(row), "name": row.name, "rounds": [asdict(one) for one in measured]}
                for row, measured in taken.items()
            ],
            "ratios": found,
        },
    ).publish()


if __name__ == "__main__":
    main()
