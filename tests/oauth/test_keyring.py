"""Logins whose tokens are in the keyring of the user."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import keyring
import pytest
from keyring.backend import KeyringBackend
from keyring.errors import KeyringLocked, PasswordDeleteError

from antiphon import KeyringLogins
from antiphon.client.oauth.logins import Login, RegisteredClient


class MemoryKeyring(KeyringBackend):
    """A keyring in memory."""

    priority = 1  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self.entries: dict[tuple[str, str], str] = {}
        self.is_locked = False

    def get_password(self, service: str, username: str) -> str | None:
        return self.entries.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        if self.is_locked:
            raise KeyringLocked("locked")
        assert len(password) <= 1280
        self.entries[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        if self.entries.pop((service, username), None) is None:
            raise PasswordDeleteError("not found")


@pytest.fixture
def backend() -> Iterator[MemoryKeyring]:
    before = keyring.get_keyring()
    backend = MemoryKeyring()
    keyring.set_keyring(backend)
    yield backend
    keyring.set_keyring(before)


def login(token: str) -> Login:
    return Login(
        url="https://mcp.example.com/mcp",
        resource="https://mcp.example.com/mcp",
        issuer="https://id.example.com",
        client=RegisteredClient("client", "s3cret", "client_secret_basic"),
        token_endpoint="https://id.example.com/token",
        access_token=token,
        refresh_token="refresh-me",
        proof_key='{"d": "private-part"}',
    )


def test_tokens_are_in_the_keyring_and_in_no_file(backend: MemoryKeyring, tmp_path: Path) -> None:
    logins = KeyringLogins(tmp_path)
    for size in (5000, 20):  # a shorter token leaves nothing of a longer one
        saved = login("t" * size)
        logins.save(saved)
        assert KeyringLogins(tmp_path).find(saved.url) == saved
    files = "".join(path.read_text() for path in tmp_path.iterdir())
    for secret in ("tttt", "refresh-me", "s3cret", "private-part"):
        assert secret not in files
    logins.remove(saved)
    assert logins.all() == []
    assert not backend.entries


def test_a_login_that_is_not_in_the_keyring_any_more_is_none(backend: MemoryKeyring, tmp_path: Path) -> None:
    logins = KeyringLogins(tmp_path)
    logins.save(login("t"))
    backend.entries.clear()
    assert logins.all() == []


def test_a_locked_keyring_is_an_error(backend: MemoryKeyring, tmp_path: Path) -> None:
    backend.is_locked = True
    with pytest.raises(OSError, match="KeyringLocked"):
        KeyringLogins(tmp_path).save(login("t"))
    assert list(tmp_path.iterdir()) == []
