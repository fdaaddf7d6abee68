"""The configuration file of a host: read once, and replaced as a whole or not at all.

Owns the backup, the permissions and the symbolic links. It must not know what the file is for.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from antiphon.cli.exit_codes import FAILED, CommandError

__all__ = ["ConfigFile"]

_MAX_FILE_BYTES = 64 * 1024 * 1024
_MAX_BACKUPS = 1000
LOCK_SECONDS = 10.0
"""How long to wait for other processes that replace files in the same folder."""
_RETRY_SECONDS = 0.02
_PRIVATE = 0o600
"""The mode of a file until it has the owner and the mode of the file that it stands in for."""


class ConfigFile:
    """A file, with the content that it had when it was read."""

    def __init__(self, path: Path) -> None:
        """Read the file, if there is one. Raises `CommandError`."""
        # The name may be a link into a folder of settings that the user keeps elsewhere: the link stays.
        self.path = Path(os.path.realpath(path))
        self._content = self._read()

    @property
    def text(self) -> str:
        """The text of the file without the mark at its beginning; empty if there is no file."""
        try:
            return (self._content or b"").decode("utf-8-sig")
        except UnicodeDecodeError:
            raise CommandError(f"{self.path} is not text in UTF-8. Nothing was written.", FAILED) from None

    def replace(self, text: str) -> Path | None:
        """Replace the content, and return the backup of the old one. Raises `CommandError`."""
        try:
            marked = (self._content or b"").startswith(b"\xef\xbb\xbf")
            content = text.encode("utf-8-sig" if marked else "utf-8")
        except UnicodeEncodeError:
            raise CommandError(
                "A path or a value is not text in UTF-8. Nothing was written.", FAILED
            ) from None
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with _locked(self.path.parent):
                return self._replace(content)
        except OSError as error:
            raise CommandError(f"Cannot write {self.path}: {error.strerror}.", FAILED) from None

    def _replace(self, content: bytes) -> Path | None:
        """Write the backup and a temporary file, and rename the latter: nobody reads half of the content."""
        self._check_unchanged()
        backup = None if self._content is None else self._back_up(self._content)
        written = [] if backup is None else [backup]
        try:
            descriptor, name = tempfile.mkstemp(prefix=f".{self.path.name}.", dir=self.path.parent)
            written.append(Path(name))
            _fill(descriptor, content)
            if self._content is not None:
                self._share(Path(name))
            # Other programs know no lock, and writing to a disk takes a while: so look again at the end.
            self._check_unchanged()
            os.replace(name, self.path)
        except BaseException:
            for copy in written:
                copy.unlink()
            raise
        return backup

    def _check_unchanged(self) -> None:
        if self._read() != self._content:
            raise CommandError(
                f"{self.path} was changed by another program meanwhile. Nothing was written. Try again.",
                FAILED,
            )

    def _read(self) -> bytes | None:
        try:
            status = self.path.stat()
            if not stat.S_ISREG(status.st_mode):  # a pipe would keep the command waiting
                raise CommandError(f"{self.path} is not a regular file. Nothing was written.", FAILED)
            if status.st_size > _MAX_FILE_BYTES:
                raise CommandError(f"{self.path} has more than {_MAX_FILE_BYTES} bytes.", FAILED)
            return self.path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise CommandError(f"Cannot read {self.path}: {error.strerror}.", FAILED) from None

    def _back_up(self, content: bytes) -> Path:
        """Write the old content to a new file beside the file. Earlier backups stay."""
        for number in range(_MAX_BACKUPS):
            backup = self.path.with_name(f"{self.path.name}.bak{number or ''}")
            with contextlib.suppress(FileExistsError):
                descriptor = os.open(backup, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE)
                _fill(descriptor, content)
                self._share(backup)
                return backup
        raise CommandError(f"There are {_MAX_BACKUPS} backups of {self.path}. Delete some.", FAILED)

    def _share(self, copy: Path) -> None:
        """Let the users open a private copy who can open the file, also if root runs this command for one."""
        status = self.path.stat()
        if hasattr(os, "chown"):
            with contextlib.suppress(OSError):  # only root can give files away
                os.chown(copy, status.st_uid, status.st_gid)
        copy.chmod(stat.S_IMODE(status.st_mode))


def _fill(descriptor: int, content: bytes) -> None:
    with open(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Have other processes that replace a file in the folder wait. Raises `CommandError` after some seconds.

    Windows cannot lock a folder: there, only the comparison of the contents protects the file.
    """
    if sys.platform == "win32":
        yield
        return
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY)
    try:
        deadline = time.monotonic() + LOCK_SECONDS
        # Some network file systems have no locks for folders.
        with contextlib.suppress(OSError):
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise CommandError(
                            f"Another program has locked {folder}. Nothing was written. Try again.", FAILED
                        ) from None
                    time.sleep(_RETRY_SECONDS)
        yield
    finally:
        os.close(descriptor)
