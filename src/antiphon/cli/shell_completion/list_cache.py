"""Caches the lists of servers for completion: a private file for each, which is used for some minutes.

A press of Tab should not wait for a server each time. The name of a file is a digest of the address and the
headers with the token, so that nobody is offered what another caller sees. The files contain no credentials.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from antiphon.cli.targets import Target

__all__ = ["Argument", "ListCache", "ListKind", "Offer"]

ListKind: TypeAlias = Literal["tools", "prompts", "resources", "templates"]

FRESH_SECONDS = 300.0
MAX_FILE_BYTES = 2 * 1024 * 1024
MAX_FILES = 100


class Argument(msgspec.Struct, frozen=True, omit_defaults=True):
    """An argument of a tool or a prompt, with its values if they are known."""

    name: str
    help: str = ""
    values: tuple[str, ...] = ()


class Offer(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tool, a prompt, a resource or a template: its name or URI, and its arguments."""

    name: str
    help: str = ""
    arguments: tuple[Argument, ...] = ()


class _Stored(msgspec.Struct):
    at: float
    offers: list[Offer]


class ListCache:
    """The lists of one server, for one caller."""

    def __init__(self, target: Target, folder: Path | None = None) -> None:
        self._folder = _default_folder() if folder is None else folder
        self._digest = _digest(target)

    def get(self, kind: ListKind) -> list[Offer] | None:
        """Return a list; `None` if there is none, or if it is not fresh."""
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            stored = msgspec.json.decode(self._path(kind).read_bytes(), type=_Stored)
            if 0 <= time.time() - stored.at < FRESH_SECONDS:
                return stored.offers
        return None

    def put(self, kind: ListKind, offers: list[Offer]) -> None:
        """Store a list. Does nothing if it is too long, or if the file cannot be written."""
        data = msgspec.json.encode(_Stored(time.time(), offers))
        if len(data) > MAX_FILE_BYTES:
            return
        with contextlib.suppress(OSError):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._remove_old()
            descriptor, name = tempfile.mkstemp(dir=self._folder)  # only the owner can read it
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
            os.replace(name, self._path(kind))

    def _path(self, kind: ListKind) -> Path:
        return self._folder / f"{self._digest}-{kind}.json"

    def _remove_old(self) -> None:
        """Remove files that are not fresh, and all files if there are too many."""
        files = list(self._folder.iterdir())
        for file in files:
            with contextlib.suppress(OSError):
                if len(files) > MAX_FILES or time.time() - file.stat().st_mtime > FRESH_SECONDS:
                    file.unlink()


def _digest(target: Target) -> str:
    """Return a name for the server as this caller sees it."""
    known = (target.endpoint, sorted(target.headers.items()), target.protocol)
    return hashlib.sha256(repr(known).encode(errors="surrogatepass")).hexdigest()


def _default_folder() -> Path:
    """Return the folder for these files under the user's cache folder."""
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "antiphon" / "completion"
