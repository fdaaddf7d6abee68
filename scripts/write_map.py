"""Writes the map of the code into CONTRIBUTING.md, from the first sentence of each module's docstring.

With `--check` it changes nothing, and fails if the map is out of date or a module has no docstring.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "antiphon"
PAGE = ROOT / "CONTRIBUTING.md"
BEGIN, END = "<!-- map: printed by `make map` -->\n", "<!-- end of the map -->\n"

# The modules and folders of a folder in the order that a request passes through them. Names that are not here
# follow by the alphabet, modules before folders, so a new module needs no change in this script.
ORDER = {
    "": ["transport", "wire", "runtime", "store", "model", "server.py", "middleware", "client", "cli"],
    "transport": ["server", "client"],
    "transport/server": ["http", "stdio.py", "stream_connection.py", "pipeline.py"],
    "transport/server/http": ["app.py", "router.py", "endpoint.py", "guard.py", "exchange.py"],
    "wire": [
        "jsonrpc.py",
        "sse.py",
        "mirrored_headers.py",
        "versions.py",
        "questions.py",
        "server",
        "client",
    ],
    "wire/server": ["dialect.py"],
    "wire/client": ["dialect.py"],
    "runtime": [
        "engine.py",
        "dispatch.py",
        "authoring",
        "execution",
        "carriers",
        "tasks",
        "artifacts",
        "observability",
    ],
    "runtime/authoring": [
        "registry.py",
        "tool.py",
        "resource.py",
        "prompt.py",
        "completion.py",
        "options.py",
    ],
    "runtime/execution": ["call.py", "context.py", "invoke.py", "run.py", "journal.py"],
    "runtime/carriers": ["base.py", "client.py", "store.py", "connection.py"],
    "runtime/tasks": ["lifecycle.py", "service.py", "handlers.py", "worker.py", "claimed_task.py"],
    "store": ["contract.py", "rules.py", "memory.py", "sqlite", "postgres", "artifacts"],
    "store/sqlite": ["store.py"],
    "store/postgres": ["store.py"],
    "store/artifacts": ["contract.py"],
    "client": [
        "client.py",
        "negotiation.py",
        "connection.py",
        "tool_calls.py",
        "input_rounds.py",
        "callbacks.py",
    ],
    "cli": ["commands.py", "run", "call", "tasks", "doctor", "tools.py"],
}
_SENTENCE = re.compile(r"(.+?[.!?])(?:\s|$)", re.DOTALL)
_WIDTH = 32


def main(arguments: list[str]) -> int:
    """Write the map, or check it."""
    missing = [str(file.relative_to(ROOT)) for file in sorted(PACKAGE.rglob("*.py")) if not _docstring(file)]
    if missing:
        print(f"No docstring, so the map cannot show them: {', '.join(missing)}. Say what they own.")
        return 1
    text = PAGE.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        print(f"{PAGE.name} has no place for the map: it must have the lines {BEGIN!r} and {END!r}.")
        return 1
    lines = "\n".join(["src/antiphon/", *_lines(PACKAGE, 1)])
    written = f"{before}{BEGIN}\n```text\n{lines}\n```\n\n{END}{after}"
    if "--check" in arguments:
        if written != text:
            print(f"The map in {PAGE.name} is out of date. Run `make map`.")
        return int(written != text)
    PAGE.write_text(written, encoding="utf-8")
    return 0


def _lines(folder: Path, depth: int) -> Iterator[str]:
    """Print the modules and folders in a folder, each with the first sentence about it."""
    entries = [entry for entry in folder.iterdir() if _shown(entry)]
    for entry in sorted(entries, key=_rank):
        name = f"{entry.name}/" if entry.is_dir() else entry.name
        label = f"{'  ' * depth}{name}".ljust(_WIDTH)
        yield f"{label} {_summary(entry / '__init__.py' if entry.is_dir() else entry)}"
        if entry.is_dir():
            yield from _lines(entry, depth + 1)


def _shown(entry: Path) -> bool:
    if entry.is_dir():
        return (entry / "__init__.py").exists()
    return entry.suffix == ".py" and entry.name != "__init__.py"


def _rank(entry: Path) -> tuple[int, bool, str]:
    named = ORDER.get(entry.parent.relative_to(PACKAGE).as_posix().removeprefix("."), [])
    place = named.index(entry.name) if entry.name in named else len(named)
    return place, entry.is_dir(), entry.name


def _summary(file: Path) -> str:
    """Return the first sentence of a module's docstring, on one line."""
    text = " ".join(_docstring(file).split("\n\n")[0].split())
    sentence = _SENTENCE.match(text)
    return (sentence[1] if sentence else text).removesuffix(".")


def _docstring(file: Path) -> str:
    return ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
