"""The name under which the log and the rule of four eyes know the person at this machine."""

from __future__ import annotations

import getpass
import os
import sys

__all__ = ["operator_name"]


def operator_name() -> str:
    """Return the login name of the user of this process, whatever the variables LOGNAME and USER say.

    The name decides who may answer a question to others, so nobody chooses it with a variable. On Windows,
    only the variables know it.
    """
    if sys.platform == "win32":
        return getpass.getuser()
    import pwd

    uid = os.getuid()
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:  # as in a container that runs under a number
        return f"uid-{uid}"
