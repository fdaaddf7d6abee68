"""A store of logins whose tokens are in the keyring of the user: `pip install antiphon[keyring]`.

The files hold everything but the tokens and the secret of the client, and keep the locks.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import msgspec

from antiphon.client.oauth.logins import FileLogins, Login

__all__ = ["KeyringLogins"]

_PART_CHARACTERS = 1000
"""How much one entry of a keyring holds. The one of Windows takes 1280 characters."""
_MAX_PARTS = 200


class _Secrets(msgspec.Struct):
    access_token: str
    refresh_token: str | None
    client_secret: str | None
    proof_key: str | None = None


class KeyringLogins(FileLogins):
    """Keeps the tokens of logins in the keyring of the user, and the rest in files of a folder.

    A keyring that is locked may ask the user for a password. Raises `ImportError` without the package
    `keyring`; saving raises `OSError` if the machine has no keyring.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None, *, service: str = "antiphon") -> None:
        super().__init__(folder)
        try:
            import keyring
            import keyring.errors
        except ImportError:
            raise ImportError("KeyringLogins needs keyring: pip install 'antiphon[keyring]'") from None
        self._keyring: Any = keyring
        self._service = service

    def save(self, login: Login) -> None:
        """Store a login in place of the one of the same server, issuer and client; raises `OSError`."""
        secrets = _Secrets(
            login.access_token, login.refresh_token, login.client.client_secret, login.proof_key
        )
        text = msgspec.json.encode(secrets).decode()
        parts = [text[start : start + _PART_CHARACTERS] for start in range(0, len(text), _PART_CHARACTERS)]
        try:
            for number, part in enumerate(parts):
                self._keyring.set_password(self._service, self._entry(login, number), part)
            self._delete(login, len(parts))
        except self._keyring.errors.KeyringError as error:
            raise OSError(f"the keyring cannot store it ({type(error).__name__})") from None
        client = msgspec.structs.replace(login.client, client_secret=None)
        super().save(
            msgspec.structs.replace(
                login,
                access_token="",  # nosec B106 # the keyring has it
                refresh_token=None,
                proof_key=None,
                client=client,
            )
        )

    def remove(self, login: Login) -> None:
        """Remove a login, if it is there; raises `OSError`."""
        super().remove(login)
        try:
            self._delete(login, 0)
        except self._keyring.errors.KeyringError as error:
            raise OSError(f"the keyring cannot remove it ({type(error).__name__})") from None

    def _read(self, pattern: str) -> Iterator[Login]:
        for login in super()._read(pattern):
            secrets = self._secrets(login)
            if secrets is not None:
                client = msgspec.structs.replace(login.client, client_secret=secrets.client_secret)
                yield msgspec.structs.replace(
                    login,
                    access_token=secrets.access_token,
                    refresh_token=secrets.refresh_token,
                    proof_key=secrets.proof_key,
                    client=client,
                )

    def _secrets(self, login: Login) -> _Secrets | None:
        """Return what the keyring holds of a login; `None` if it was removed there."""
        text = ""
        try:
            for number in range(_MAX_PARTS):
                part = self._keyring.get_password(self._service, self._entry(login, number))
                if not part:
                    break
                text += part
            return msgspec.json.decode(text, type=_Secrets)
        except (self._keyring.errors.KeyringError, msgspec.DecodeError):
            return None

    def _delete(self, login: Login, first: int) -> None:
        """Delete the entries of a login from a number on."""
        try:
            for number in range(first, _MAX_PARTS):
                self._keyring.delete_password(self._service, self._entry(login, number))
        except self._keyring.errors.PasswordDeleteError:
            return  # there are no more

    def _entry(self, login: Login, number: int) -> str:
        return f"{self._path(login).stem}/{number}"
