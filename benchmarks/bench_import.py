"""How long until a server can be written and served, and until a command has done its work?

Each in fresh processes, beside the official SDK and FastMCP: the bare import of the server class, and
"ready", which also makes a server with one tool and its ASGI app, so that nothing can hide behind a lazy
import. The time of an interpreter that does nothing is taken off; the best of interleaved rounds counts.
Commands, and the import of the client, are compared by their CPU time as a whole, processes that they start
included: the median of interleaved rounds.
"""

import argparse
import os
import resource
import statistics
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from environments import ENVIRONMENTS, prepare, versions
from processes import cores, pin
from report import Report, Table, facts

IMPORTS = {
    "antiphon": "from antiphon import Server",
    "mcp": "from mcp.server import MCPServer",
    "fastmcp": "from fastmcp import FastMCP",
}
READY = {
    "antiphon": "s = Server('x'); s.tool(add); s.asgi()",
    "mcp": "s = MCPServer('x'); s.tool()(add); s.streamable_http_app()",
    "fastmcp": "s = FastMCP('x'); s.tool(add); s.http_app()",
}
TOOL = "async def add(a: int, b: int) -> str: return str(a + b)"
AIMS = {"mcp": "import at most 0.33", "fastmcp": "–"}
"""The peers, and what of their time ours may take."""

FILE = "\n".join(("{}", "server = {}('x')", "@server.tool", TOOL))
"""A server as a file, from the import and the class."""


@dataclass(frozen=True, slots=True)
class Start:
    """Something that a Python starts to do: its name, its environment, and the words after `python`."""

    name: str
    environment: str
    words: tuple[str, ...]


BARE = Start("`python -c pass`", "antiphon", ("-c", "pass"))
TYPER = Start("`import typer`", "antiphon", ("-c", "import typer"))
HELP = Start("`antiphon --help`", "antiphon", ("-m", "antiphon", "--help"))
CALL = Start("`antiphon call FILE add`", "antiphon", ("-m", "antiphon", "call", "FILE", "add", "a=1", "b=2"))
CLIENT = Start("`from antiphon import Client`", "antiphon", ("-c", "from antiphon import Client"))
MCP_CLIENT = Start("`from mcp import Client`", "mcp", ("-c", "from mcp import Client"))
FASTMCP_HELP = Start("`fastmcp --help`", "fastmcp", ("-m", "fastmcp.cli", "--help"))
FASTMCP_CALL = Start(
    "`fastmcp call FILE add`", "fastmcp", ("-m", "fastmcp.cli", "call", "FILE", "add", "a=1", "b=2")
)
FASTMCP_CLIENT = Start("`from fastmcp import Client`", "fastmcp", ("-c", "from fastmcp import Client"))
STARTS = (BARE, TYPER, HELP, CALL, CLIENT, MCP_CLIENT, FASTMCP_HELP, FASTMCP_CALL, FASTMCP_CLIENT)
START_RATIOS = (
    (HELP, TYPER, "at most 1.5"),
    (HELP, FASTMCP_HELP, "–"),
    (CALL, FASTMCP_CALL, "–"),
    (CLIENT, MCP_CLIENT, "–"),
    (CLIENT, FASTMCP_CLIENT, "–"),
)


def cpu_ms(start: Start, files: dict[str, str]) -> float:
    """CPU time of a start and of the processes that it starts, in milliseconds."""

    def used() -> float:
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return children.ru_utime + children.ru_stime

    before = used()
    words = [files[start.environment] if word == "FILE" else word for word in start.words]
    environment = ENVIRONMENTS[start.environment]
    # FastMCP finds its own command on the path, as in an environment that was activated.
    path = os.pathsep.join([str(environment.python.parent), os.environ.get("PATH", "")])
    done = subprocess.run(
        [environment.python, *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PATH": path, "FASTMCP_CHECK_FOR_UPDATES": "off"},
    )
    if done.returncode:
        raise RuntimeError(f"{start.name}: {(done.stderr.strip() or 'no word').splitlines()[-1]}")
    return (used() - before) * 1000


def starts(rounds: int) -> dict[Start, float]:
    """The median CPU time of each start."""
    taken: dict[Start, list[float]] = {start: [] for start in STARTS}
    with tempfile.TemporaryDirectory(prefix="antiphon-bench-") as folder:
        files = {}
        for name, server in (("antiphon", "Server"), ("fastmcp", "FastMCP")):
            file = Path(folder) / f"{name}_file.py"
            file.write_text(FILE.format(IMPORTS[name], server))
            files[name] = str(file)
        for _ in range(rounds):
            for start, measured in taken.items():
                measured.append(cpu_ms(start, files))
    return {start: statistics.median(measured) for start, measured in taken.items()}


def elapsed(python: Path, code: str) -> float:
    """Wall time of a fresh interpreter that runs `code`, in milliseconds."""
    begun = time.perf_counter()
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=120)
    taken = time.perf_counter() - begun
    if done.returncode:
        raise RuntimeError(f"{code}: {done.stderr.strip().splitlines()[-1]}")
    return taken * 1000


def best(pythons: dict[str, Path], codes: dict[str, str], rounds: int) -> dict[str, float]:
    """The best time of each code, less the best time of an interpreter that does nothing."""
    found = {name: float("inf") for name in codes}
    bare = dict(found)
    for _ in range(rounds):
        for name, code in codes.items():
            bare[name] = min(bare[name], elapsed(pythons[name], "pass"))
            found[name] = min(found[name], elapsed(pythons[name], code))
    return {name: found[name] - bare[name] for name in codes}


def main() -> None:
    """Measure, print and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="5 rounds instead of 15")
    rounds = 5 if parser.parse_args().quick else 15
    ready_codes = {name: "\n".join((IMPORTS[name], TOOL, READY[name])) for name in IMPORTS}
    environments = {name: prepare(name) for name in IMPORTS}
    pythons = {name: environment.python for name, environment in environments.items()}
    pin(0, cores()[0])
    about = facts()
    imported = best(pythons, IMPORTS, rounds)
    ready = best(pythons, ready_codes, rounds)
    started = starts(rounds)
    ratios = {
        peer: {
            "import": round(imported["antiphon"] / imported[peer], 3),
            "ready": round(ready["antiphon"] / ready[peer], 3),
        }
        for peer in AIMS
    }
    Report(
        "import",
        "Import and start",
        f"Import of the server: best of {rounds} fresh processes, in milliseconds, less an interpreter that "
        f"does nothing. Commands: median CPU time of {rounds} fresh processes, in milliseconds.",
        about,
        [
            Table(
                ("server", "import ms", "ready ms"),
                [[f"{n}: `{IMPORTS[n]}`", f"{imported[n]:.0f}", f"{ready[n]:.0f}"] for n in IMPORTS],
            ),
            Table(
                ("ratio of time", "import", "ready", "aim"),
                [
                    [f"antiphon / {peer}", f"{r['import']:.2f}", f"{r['ready']:.2f}", AIMS[peer]]
                    for peer, r in ratios.items()
                ],
            ),
            Table(("start", "CPU ms"), [[start.name, f"{ms:.0f}"] for start, ms in started.items()]),
            Table(
                ("ratio of CPU time", "start", "aim"),
                [
                    [f"{ours.name} / {other.name}", f"{started[ours] / started[other]:.2f}", aim]
                    for ours, other, aim in START_RATIOS
                ],
            ),
        ],
        [
            "Ready: imported, one server made with one tool, and its ASGI app.",
            "`call` starts the file as a server over stdio; the CPU time of both processes counts. The "
            "command of mcp needs an extra, and is left out.",
        ],
        {
            "settings": {"rounds": rounds},
            "versions": {name: versions(environment) for name, environment in environments.items()},
            "import_ms": imported,
            "ready_ms": ready,
            "start_cpu_ms": {start.name: ms for start, ms in started.items()},
            "ratios": ratios,
        },
    ).publish()


if __name__ == "__main__":
    main()
