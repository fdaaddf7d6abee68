"""The messages that the seeds print, by seed and line: `printed("001:65")`.

`messages/` has them as they are printed, with their indentation. A block that is no JSON has its repair
beside it: for a missing brace, a comma too many, a comment, or `[...]`.
"""

from __future__ import annotations

import functools
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

__all__ = ["SEEDS", "Block", "Frame", "blocks_of", "printed"]

Frame: TypeAlias = dict[str, Any]
"""A message, read."""

SEEDS = ("000", "001", "002", "003", "004")
_MESSAGES = Path(__file__).parent / "messages"
_HEADING = re.compile(r"^# (\d+)( repaired)?\n", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A block of JSON in a seed."""

    seed: str
    line: int
    """Where it begins, in the text of the seed."""
    text: str
    """The block as it is printed."""
    repaired: str | None = None
    """The block as JSON, if the printed one is not."""

    @property
    def name(self) -> str:
        """The seed and the line."""
        return f"{self.seed}:{self.line}"

    @property
    def json(self) -> str:
        """The text that can be sent."""
        return self.text if self.repaired is None else self.repaired

    @property
    def message(self) -> dict[str, Any]:
        """The block, read. Each caller gets one of its own."""
        return dict(json.loads(self.json))


@functools.cache
def blocks_of(seed: str) -> tuple[Block, ...]:
    """All blocks of a seed, in the order of their lines."""
    path = _MESSAGES / f"{seed}.txt"
    if not path.exists():
        return ()  # it prints no JSON
    _, *parts = _HEADING.split(path.read_text(encoding="utf-8"))
    blocks: list[Block] = []
    for line, repaired, text in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        if repaired:
            assert blocks[-1].line == int(line)
            blocks[-1] = Block(seed, int(line), blocks[-1].text, text.strip("\n"))
        else:
            blocks.append(Block(seed, int(line), text.strip("\n")))
    return tuple(blocks)


def printed(name: str) -> Block:
    """The block of a seed that begins at a line."""
    (found,) = (block for block in blocks_of(name.partition(":")[0]) if block.name == name)
    return found
