"""The folder for the logins of the user. It imports little, because every command looks there."""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["default_folder"]


def default_folder() -> Path:
    """Return the folder for logins under the user's state folder."""
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Application Support"
    else:
        base = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    return base / "antiphon" / "logins"
