"""How our own servers under measurement are run: `antiphon run`, as users run theirs.

It serves with the same uvicorn, loop and parser as the others have, and writes no access log either.
"""

import os
import sys

__all__ = ["run"]


def run(file: str, *options: str) -> None:
    """Replace this process by `antiphon run FILE` on the loopback port named by the first argument."""
    command = ["-m", "antiphon", "run", file, "--port", sys.argv[1], *options]
    os.execv(sys.executable, [sys.executable, *command])
