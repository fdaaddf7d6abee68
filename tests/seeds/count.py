"""Shows that no block of the seeds is missing here: `python -m tests.seeds.count FOLDER`.

The folder has the five texts, whose names begin with the number of the seed. Each block of theirs that begins
with `{` has to be in `messages/`, to the letter and with its line; so has each `"jsonrpc"`. Each block of
Rust has to be in docs/howto/patterns.md.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.seeds.blocks import SEEDS, blocks_of
from tests.support.process import ROOT

__all__ = ["main"]

RUST = ROOT / "docs" / "howto" / "patterns.md"
_OPENINGS = ("{", '"inputRequests": {', '"inputResponses": {')
"""How blocks begin. SEP-2322 prints two members without the object around them."""


def main(arguments: Sequence[str]) -> int:
    """Print the counts of each seed, then what is missing; 1 if anything is."""
    (folder,) = arguments
    missing: list[str] = []
    shown = _rust(RUST)
    print('seed  blocks  "jsonrpc"  kept  Rust')
    for seed in SEEDS:
        (text,) = Path(folder).glob(f"{seed}*.txt")
        lines = text.read_text(encoding="utf-8").split("\n")
        kept = {block.line: block for block in blocks_of(seed)}
        covered: set[int] = set()
        for line, block in kept.items():
            end = line - 1 + block.text.count("\n") + 1
            covered.update(range(line, end + 1))
            if lines[line - 1 : end] != block.text.split("\n"):
                missing.append(f"{block.name} is printed in another way")
        openings = list(_blocks(lines))
        speaking = [number for number, line in enumerate(lines, 1) if '"jsonrpc"' in line]
        missing += [f"{seed}:{line} is a block" for line in openings if line not in kept]
        missing += [f'{seed}:{line} has "jsonrpc"' for line in speaking if line not in covered]
        missing += [f"{seed}: this Rust is not on {RUST.name}:\n{code}" for code in _rust(text) - shown]
        print(f"{seed}   {len(openings):>6}  {len(speaking):>9}  {len(kept):>4}  {len(_rust(text)):>4}")
    print("\n".join(f"missing: {each}" for each in missing) or "No block is missing.")
    return 1 if missing else 0


def _rust(text: Path) -> set[str]:
    """The blocks of Rust in a text."""
    return set(
        re.findall(r"^```rust\n(.*?)^```$", text.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    )


def _blocks(lines: list[str]) -> Iterator[int]:
    """The lines at which blocks begin: after a fence, or between two that belong to no block."""
    end: str | None = None
    for number, line in enumerate(lines, 1):
        if end is not None:
            if line == end or line.lstrip().startswith("```"):
                end = None
        elif line.strip() in _OPENINGS:
            yield number
            end = f"{line[: len(line) - len(line.lstrip())]}}}"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
