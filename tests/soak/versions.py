"""The library of a hundred commits ago, unpacked from the history of this repository."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.process import ROOT

__all__ = ["OLDER", "NoHistory", "unpack"]

OLDER = "HEAD~100"


class NoHistory(Exception):
    """This tree does not have the commit."""


def unpack(folder: Path, commit: str = OLDER, *, root: Path = ROOT) -> Path:
    """Unpack the library of a commit into a folder; return the path to import it from.

    Raises `NoHistory` if the tree is no repository or does not reach back so far.
    """
    archive = folder / "older.tar"
    git = ["git", "-C", str(root), "archive", f"--output={archive}", commit, "src"]
    try:
        made = subprocess.run(git, capture_output=True, text=True)
        reason = made.stderr.strip()
    except OSError as error:
        reason = str(error)
    else:
        if made.returncode == 0:
            target = folder / "older"
            target.mkdir()
            subprocess.run(["tar", "-xf", str(archive), "-C", str(target)], check=True)
            return target / "src"
    raise NoHistory(
        f"The soak runs two versions of the library at once, and {root} does not have {commit} ({reason}): "
        "run it in a clone with the whole history (git fetch --unshallow)."
    )
