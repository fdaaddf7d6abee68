"""Creates files and folders that only their owner can read, and warns about others that everybody can read.

A store holds the arguments, answers and results of all callers. The permissions do not depend on the umask of
the process. This module does not change what exists already: an operator may share a file on purpose.
"""

from __future__ import annotations

import logging
import os
import stat
import threading
from pathlib import Path
from typing import BinaryIO

__all__ = ["create_private_file", "make_private_folder", "open_private_file", "warn_if_public"]

logger = logging.getLogger("antiphon")

_FILE_MODE = 0o600
_FOLDER_MODE = 0o700

_creating = threading.Lock()


def create_private_file(path: str | os.PathLike[str]) -> None:
    """Create an empty file that only its owner can read, unless the path exists.

    Does nothing if the file cannot be created: the caller opens it next, and reports why that fails. The lock
    keeps a file closed from here while another thread opens it: closing releases SQLite's locks on a file.
    """
    with _creating:
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _FILE_MODE)
        except OSError:
            return
        try:
            _restrict(descriptor)
        finally:
            os.close(descriptor)


def open_private_file(path: Path) -> BinaryIO:
    """Open a file for writing, which only its owner can read if it is new; raises `OSError`."""
    return open(path, "wb", opener=lambda name, flags: os.open(name, flags, _FILE_MODE))


def make_private_folder(path: Path) -> None:
    """Make a folder, and the missing folders above it, for their owner only; raises `OSError`."""
    if not path.is_dir():
        if path.parent != path:
            make_private_folder(path.parent)
        path.mkdir(mode=_FOLDER_MODE, exist_ok=True)


def warn_if_public(path: str | os.PathLike[str]) -> None:
    """Log a warning if every user of the machine can read or write a file or a folder."""
    if os.name != "posix":  # elsewhere, these bits do not say who can read a file
        return
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return
    if mode & stat.S_IRWXO:
        private = _FOLDER_MODE if stat.S_ISDIR(mode) else _FILE_MODE
        logger.warning(
            "Every user of this machine can open %s (mode %o), which holds the arguments and results of all "
            "callers. Unless you want that: chmod %o %s",
            path,
            stat.S_IMODE(mode),
            private,
            path,
        )


def _restrict(descriptor: int) -> None:
    """Set the mode itself: a umask may have removed permissions of the owner."""
    if hasattr(os, "fchmod"):
        os.fchmod(descriptor, _FILE_MODE)
