"""`--save`: writes images, audio, resources and artifacts of a server to files.

A server is untrusted, and it names its content. A name becomes one plain file name inside the folder that the
user chose, and a file or a link that exists is replaced only with `--force`. This module owns the names and
the writing; it knows no connection.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import stat
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from urllib.parse import unquote

from antiphon.cli import render
from antiphon.cli.exit_codes import FAILED, UNREACHABLE, CommandError
from antiphon.model.content import Audio, BlobContents, Block, Contents, EmbeddedResource, Image, TextContents
from antiphon.printable import printable

__all__ = ["SAVE_HINT", "Destination", "File", "file_name", "file_of_block", "file_of_contents"]

SAVE_HINT = "To save images, audio and files: --save FOLDER."
STANDARD_OUTPUT = "-"
MAX_NAME_BYTES = 120
"""How long a file name may be, without its suffix. File systems stop at 255 bytes."""
MAX_SUFFIX_CHARACTERS = 10
MAX_NUMBERED_NAMES = 1000
"""How many files of the same name a folder may hold."""

_SUFFIXES: Mapping[str, str] = {
    "image/png": ".png",
    "image/jpeg": ".jpg",
    "image/gif": ".gif",
    "image/webp": ".webp",
    "image/bmp": ".bmp",
    "image/svg+xml": ".svg",
    "audio/wav": ".wav",
    "audio/x-wav": ".wav",
    "audio/mpeg": ".mp3",
    "audio/ogg": ".ogg",
    "audio/flac": ".flac",
    "audio/mp4": ".m4a",
    "video/mp4": ".mp4",
    "text/plain": ".txt",
    "text/markdown": ".md",
    "text/html": ".html",
    "text/css": ".css",
    "text/csv": ".csv",
    "text/xml": ".xml",
    "application/xml": ".xml",
    "application/json": ".json",
    "application/yaml": ".yaml",
    "application/pdf": ".pdf",
    "application/zip": ".zip",
    "application/gzip": ".gz",
    "application/octet-stream": ".bin",
}
"""The suffix of a media type. Python's own table depends on files of the machine."""
_SAME_SUFFIXES = {".jpeg": ".jpg", ".htm": ".html", ".yml": ".yaml", ".wave": ".wav"}
_GENERAL_TYPES = ("text/plain", "application/octet-stream", "")
"""Media types that say little: the suffix that a name has already is kept."""
_UNSAFE = re.compile(r"(?:[^\w.+-]|\.\.)+")
_RESERVED = re.compile(r"(?:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\.|\Z)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class File:
    """Bytes to save, and the name and the media type that the server gave them."""

    name: str
    mime_type: str
    data: bytes


class Destination:
    """The folder or the file that `--save` names. `-` is the standard output."""

    def __init__(self, path: str, *, force: bool = False, alone: bool = True) -> None:
        """Check the path before the server is asked. Raises `CommandError`.

        `alone` says that the command prints nothing else to the standard output if that gets the bytes.
        """
        self._path = Path(path)
        self._force = force
        self.is_output = path == STANDARD_OUTPUT
        """Whether the bytes go to the standard output, which then holds nothing else."""
        self._written: set[str] = set()
        self._is_folder = path.endswith(("/", os.sep)) or self._path.is_dir()
        if self.is_output:
            if not alone:
                raise CommandError("--save - leaves no room for --json or --stream: name a folder.")
            if sys.stdout.isatty():
                raise CommandError("--save - would write bytes to the terminal: redirect the output.")
        elif self._is_folder and self._path.exists() and not self._path.is_dir():
            raise CommandError(f"--save: {path} is not a folder.")
        elif not self._is_folder:
            if not self._path.parent.is_dir():
                raise CommandError(f"--save: there is no folder {self._path.parent}.")
            if not force and os.path.lexists(self._path):
                raise CommandError(f"--save: {path} exists already. To replace it, add --force.")

    def save(self, files: Sequence[File]) -> None:
        """Write the files and print their paths to standard error. Raises `CommandError`."""
        if len(files) > 1 and not self._is_folder:
            raise CommandError(
                f"There are {len(files)} files to save: name a folder, for example --save ./files/", FAILED
            )
        for file in files:
            if self.is_output:
                sys.stdout.buffer.write(file.data)
                sys.stdout.buffer.flush()
                continue
            try:
                path = self._write(file)
            except OSError as error:
                raise CommandError(f"--save: cannot write: {error}", FAILED) from None
            kind = printable(file.mime_type) or "unknown type"
            print(f"Saved {printable(str(path))} ({kind}, {render.size_of(len(file.data))})", file=sys.stderr)

    def _write(self, file: File) -> Path:
        if not self._is_folder:
            # The user named this path, so a link is followed.
            _write(self._path.resolve() if self._force else self._path, file.data, force=self._force)
            return self._path
        self._path.mkdir(parents=True, exist_ok=True)
        name = Path(file_name(file.name, file.mime_type))
        for number in range(1, MAX_NUMBERED_NAMES + 1):
            numbered = name.name if number == 1 else f"{name.stem}-{number}{name.suffix}"
            force = self._force and numbered not in self._written
            self._written.add(numbered)
            try:
                return _write(self._path / numbered, file.data, force=force)
            except FileExistsError:
                continue
        raise CommandError(f"--save: {self._path} has too many files named {name}.", FAILED)


def file_of_block(block: Block) -> File | None:
    """Return the bytes of an image, of audio or of a binary resource; `None` for other blocks."""
    if isinstance(block, Image):
        return File("image", block.mime_type, _decode(block.data))
    if isinstance(block, Audio):
        return File("audio", block.mime_type, _decode(block.data))
    if isinstance(block, EmbeddedResource) and isinstance(block.resource, BlobContents):
        return file_of_contents([block.resource])
    return None


def file_of_contents(parts: Sequence[Contents], title: str | None = None) -> File:
    """Return the contents of a resource as one file. They may have come in parts. Raises `CommandError`."""
    data = b"".join(
        part.text.encode("utf-8", "surrogatepass") if isinstance(part, TextContents) else _decode(part.blob)
        for part in parts
    )
    return File(title or _name_in_uri(parts[0].uri), parts[0].mime_type or "", data)


def file_name(name: str, mime_type: str) -> str:
    """Return a safe file name for the name that a server gave, with the suffix of the media type.

    The name has no separators of folders, no leading dot or dash, and no characters that a shell or a
    terminal interprets.
    """
    kind = mime_type.partition(";")[0].strip().lower()
    stem, suffix = os.path.splitext(_UNSAFE.sub("-", printable(name)).strip(".-+"))
    if len(suffix) > MAX_SUFFIX_CHARACTERS:
        stem, suffix = stem + suffix, ""
    wanted = _SUFFIXES.get(kind, "")
    lowered = suffix.lower()
    keeps = suffix and (
        kind in _GENERAL_TYPES or not wanted or _SAME_SUFFIXES.get(lowered, lowered) == wanted
    )
    if not keeps:
        stem, suffix = stem + suffix, wanted
    stem = stem.encode(errors="ignore")[:MAX_NAME_BYTES].decode(errors="ignore").strip(".-+") or "file"
    if _RESERVED.match(stem):
        stem = f"_{stem}"
    return stem + suffix


def _name_in_uri(uri: str) -> str:
    """Return the last part of a URI that names something: a file, else a host."""
    parts = [part for part in re.split(r"[/:\\]+", re.split(r"[?#]", uri, maxsplit=1)[0]) if part.strip(".")]
    return unquote(parts[-1]) if len(parts) > 1 else "resource"


def _decode(data: str) -> bytes:
    try:
        return base64.b64decode(data)
    except (binascii.Error, ValueError):
        raise CommandError("The server sent content that is not valid base64.", UNREACHABLE) from None


def _write(path: Path, data: bytes, *, force: bool) -> Path:
    """Write a new file. With `force`, replace an existing file or link. Raises `OSError`."""
    if force and os.path.lexists(path):
        return _replace(path, data)
    # O_EXCL also refuses a link, so that nothing outside of the folder is written.
    with open(path, "xb") as file:
        file.write(data)
    return path


def _replace(path: Path, data: bytes) -> Path:
    """Replace a file in one step. A link is replaced, and not followed."""
    mode = os.lstat(path).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISLNK(mode):
        raise OSError(f"{path} is not a file")
    with NamedTemporaryFile(dir=path.parent, prefix=".antiphon-", delete=False) as file:
        try:
            file.write(data)
            file.close()
            os.chmod(file.name, stat.S_IMODE(mode) & 0o666 if stat.S_ISREG(mode) else 0o644)
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise
    return path
