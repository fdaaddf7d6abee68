"""How long until a server can be written and served, beside the official SDK and FastMCP?

Two questions, each in fresh processes: the bare import of the server class, and "ready", which also
makes a server with one tool and its ASGI app, so that nothing can hide behind a lazy import. The time
of an interpreter that does nothing is taken off. Rounds are interleaved; the best of them counts.
"""

import argparse
import subprocess
import time
from pathlib import Path

from environments import prepare, versions
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
    ratios = {
        peer: {
            "import": round(imported["antiphon"] / imported[peer], 3),
            "ready": round(ready["antiphon"] / ready[peer], 3),
        }
        for peer in AIMS
    }
    Report(
        "import",
        "Import of the server",
        f"Best of {rounds} fresh processes, in milliseconds, less an interpreter that does nothing.",
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
        ],
        ["Ready: imported, one server made with one tool, and its ASGI app."],
        {
            "settings": {"rounds": rounds},
            "versions": {name: versions(environment) for name, environment in environments.items()},
            "import_ms": imported,
            "ready_ms": ready,
            "ratios": ratios,
        },
    ).publish()


if __name__ == "__main__":
    main()
