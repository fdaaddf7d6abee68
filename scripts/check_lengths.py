"""Fails if a Python file is longer than a person can keep in mind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

LIMIT = 500


def main() -> int:
    """Look at every tracked and every new Python file."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\n")
    lengths = {
        name: len(Path(name).read_text().splitlines()) for name in listed if name and Path(name).exists()
    }
    long = {name: length for name, length in lengths.items() if length > LIMIT}
    for name, length in long.items():
        print(f"{name}: {length} lines, {LIMIT} at most")
    print(f"{len(lengths)} files, the longest has {max(lengths.values())} lines.")
    return 1 if long else 0


if __name__ == "__main__":
    sys.exit(main())
