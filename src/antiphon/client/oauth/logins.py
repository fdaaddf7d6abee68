"""Stores of logins: the tokens of one client at one server, from one issuer.

A login in a file survives the process. It has everything that a refresh needs, so that a restart sends no
other request and opens no browser. The lock of a login keeps processes from spending one refresh token twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import shlex
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Protocol

import msgspec

from antiphon.authorization.urls import shown_url
from antiphon.client.oauth.login_folder import default_folder
from antiphon.errors import AuthorizationFailed

__all__ = ["FileLogins", "Login", "LoginStore", "MemoryLogins", "RegisteredClient"]

logger = logging.getLogger("antiphon.client")

_LOCK_SECONDS = 60.0
"""How long a process waits while another one refreshes the same login."""
_LOCK_POLL_SECONDS = 0.02
_UNFINISHED = ".saving-"
_MAX_FILE_BYTES = 1024 * 1024
_LEFTOVER_SECONDS = 60.0
"""After how long an unfinished file is that of a process which was killed."""


class RegisteredClient(msgspec.Struct, frozen=True):
    """A client as one issuer knows it."""

    client_id: str
    client_secret: str | None = None
    method: str = "none"
    """How the client authenticates at the token endpoint."""
    redirect_uri: str | None = None
    """The redirect URI of a client that was registered dynamically."""

    def __repr__(self) -> str:
        return f"RegisteredClient({self.client_id!r})"


class Login(msgspec.Struct, frozen=True):
    """The tokens of one client at one server. Its text shows none of them."""

    url: str
    resource: str
    issuer: str
    client: RegisteredClient
    token_endpoint: str
    access_token: str
    refresh_token: str | None = None
    revocation_endpoint: str | None = None
    scopes: tuple[str, ...] = ()
    obtained_at: float = 0.0
    expires_at: float | None = None
    """When the access token expires, in seconds since the epoch; `None` if the issuer did not say."""
    proof_key: str | None = None
    """The private key that the tokens are bound to, as the text of a JWK; `None` for bearer tokens."""

    def __repr__(self) -> str:
        return f"Login(url={shown_url(self.url)!r}, issuer={self.issuer!r})"

    @property
    def header(self) -> str:
        """The value of the Authorization header."""
        return f"{'Bearer' if self.proof_key is None else 'DPoP'} {self.access_token}"

    def expires_within(self, seconds: float) -> bool:
        """Return whether the access token expires within so many seconds."""
        return self.expires_at is not None and time.time() + seconds >= self.expires_at


class LoginStore(Protocol):
    """Keeps logins. Its methods do not block for longer than a small file takes to read."""

    def find(self, url: str, *, client_id: str | None = None, issuer: str | None = None) -> Login | None:
        """Return the newest login at a server, of this client and issuer if they are given."""

    def save(self, login: Login) -> None:
        """Store a login in place of the one of the same server, issuer and client; raises `OSError`."""

    def remove(self, login: Login) -> None:
        """Remove a login, if it is there; raises `OSError`."""

    def all(self) -> list[Login]:
        """Return all logins."""

    def locked(self, url: str) -> AbstractAsyncContextManager[None]:
        """Return a context that only one caller is in for each server; raises `AuthorizationFailed`."""


class MemoryLogins:
    """Keeps logins for as long as the process runs."""

    def __init__(self) -> None:
        self._logins: dict[tuple[str, str, str], Login] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    def find(self, url: str, *, client_id: str | None = None, issuer: str | None = None) -> Login | None:
        """Return the newest login at a server, of this client and issuer if they are given."""
        return _newest(self._logins.values(), url, client_id, issuer)

    def save(self, login: Login) -> None:
        """Store a login in place of the one of the same server, issuer and client."""
        self._logins[login.url, login.issuer, login.client.client_id] = login

    def remove(self, login: Login) -> None:
        """Remove a login, if it is there."""
        self._logins.pop((login.url, login.issuer, login.client.client_id), None)

    def all(self) -> list[Login]:
        """Return all logins."""
        return list(self._logins.values())

    def locked(self, url: str) -> AbstractAsyncContextManager[None]:
        """Return a context that only one caller is in for each server."""
        return self._locks.setdefault(url, asyncio.Lock())


class FileLogins:
    """Keeps each login in a file of a folder, by default in the state folder of the user.

    Only the owner can read the files. They are replaced at once, so that no reader sees half of a login. A
    folder that another user owns or can write to is not used: that user could plant a login.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self.folder = default_folder() if folder is None else Path(folder)

    def find(self, url: str, *, client_id: str | None = None, issuer: str | None = None) -> Login | None:
        """Return the newest login at a server, of this client and issuer if they are given."""
        return _newest(self._read(f"{_digest(url)}-*.json"), url, client_id, issuer)

    def save(self, login: Login) -> None:
        """Store a login in place of the one of the same server, issuer and client; raises `OSError`."""
        self._make_folder()
        # `mkstemp` makes a file that only its owner can read.
        descriptor, name = tempfile.mkstemp(dir=self.folder, prefix=_UNFINISHED)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(msgspec.json.encode(login))
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, self._path(login))
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise

    def remove(self, login: Login) -> None:
        """Remove a login, if it is there; raises `OSError`."""
        self._path(login).unlink(missing_ok=True)
        for path in self.folder.glob(f"{_UNFINISHED}*"):
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > _LEFTOVER_SECONDS:
                    path.unlink()

    def all(self) -> list[Login]:
        """Return all logins."""
        return list(self._read("*.json"))

    @asynccontextmanager
    async def locked(self, url: str) -> AsyncIterator[None]:
        """Return a context that only one process is in for each server; raises `AuthorizationFailed`."""
        self._make_folder()
        path = self.folder / f"{_digest(url)}.lock"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            try:
                async with asyncio.timeout(_LOCK_SECONDS):
                    while not _try_lock(descriptor):  # noqa: ASYNC110 - another process holds it
                        await asyncio.sleep(_LOCK_POLL_SECONDS)
            except TimeoutError:
                raise AuthorizationFailed(
                    f"Another process has held the lock {path} for {_LOCK_SECONDS:g} s. End that process."
                ) from None
            yield
        finally:
            os.close(descriptor)  # which gives up the lock

    def _make_folder(self) -> None:
        """Create the folder if it is not there; raises `OSError` if the folder cannot be used."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if (problem := _problem_of_folder(self.folder)) is not None:
            raise PermissionError(problem)

    def _path(self, login: Login) -> Path:
        return self.folder / f"{_digest(login.url)}-{_digest(login.issuer, login.client.client_id)}.json"

    def _read(self, pattern: str) -> Iterator[Login]:
        if (problem := _problem_of_folder(self.folder)) is not None:
            logger.warning("%s No login is read from there.", problem)
            return
        for path in sorted(self.folder.glob(pattern)):
            try:
                with path.open("rb") as file:
                    read = file.read(_MAX_FILE_BYTES + 1)
                yield msgspec.json.decode(read, type=Login)
            except FileNotFoundError:
                continue  # another process has just removed it
            except (OSError, msgspec.DecodeError) as error:
                logger.warning(
                    "Cannot read the login in %s (%s). Remove the file.", path, type(error).__name__
                )


def _problem_of_folder(folder: Path) -> str | None:
    """Return why the logins in a folder cannot be trusted; `None` if they can, and for a missing folder."""
    if sys.platform == "win32":
        return None
    try:
        found = folder.stat()
    except OSError:
        return None
    if found.st_uid not in (0, os.geteuid()):
        return f"The folder {folder} belongs to another user. Choose another folder."
    if found.st_mode & 0o022:
        return f"Other users can write to the folder {folder}. Run: chmod go-w {shlex.quote(str(folder))}."
    return None


def _newest(logins: Iterable[Login], url: str, client_id: str | None, issuer: str | None) -> Login | None:
    found = [
        login
        for login in logins
        if login.url == url
        and (client_id is None or login.client.client_id == client_id)
        and (issuer is None or login.issuer == issuer)
    ]
    return max(found, key=lambda login: login.obtained_at, default=None)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


def _try_lock(descriptor: int) -> bool:
    """Lock a file for this descriptor; returns whether nobody else has locked it."""
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
