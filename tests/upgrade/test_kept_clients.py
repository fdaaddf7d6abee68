"""What clients and the command line have left on disk is used by this version."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keyring
import msgspec
import pytest

from antiphon import FileLogins, KeyringLogins
from antiphon.client.oauth.logins import Login, RegisteredClient
from tests.upgrade.clients import (
    HOSTS,
    LOGINS,
    Keyring,
    connect,
    install,
    replay_recordings,
    replayed_next,
    run,
)
from tests.upgrade.kept import FOLDERS, Kept, Place, look, missing


@pytest.fixture(params=FOLDERS)
def left(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return a copy of what clients have left."""
    copy = tmp_path / "clients"
    shutil.copytree(FOLDERS[request.param] / "clients", copy)
    for folder in (copy / "logins", copy / "keyring"):
        folder.chmod(0o700)
    return copy


@pytest.fixture
def backend(left: Path) -> Iterator[Keyring]:
    """Use the keyring that was left."""
    before, kept = keyring.get_keyring(), Keyring(json.loads((left / "keyring.json").read_text()))
    keyring.set_keyring(kept)
    yield kept
    keyring.set_keyring(before)


REFRESHED = {name: ["/token"] if name == "expired" else [] for name in LOGINS}
"""What the issuer is asked: a login has all that a refresh needs, and one that is good needs nothing."""


async def test_logins_in_files_are_used_and_refreshed(left: Path) -> None:
    store = FileLogins(left / "logins")
    assert await connect(store, by_hand=False) == REFRESHED
    assert {login.client.client_id for login in store.all()} == {"known", "client-of-the-program"}


async def test_logins_in_a_keyring_are_used_and_refreshed(left: Path, backend: Keyring) -> None:
    assert await connect(KeyringLogins(left / "keyring"), by_hand=False) == REFRESHED


def test_a_login_that_was_left_can_be_removed(left: Path, backend: Keyring) -> None:
    for store in (FileLogins(left / "logins"), KeyringLogins(left / "keyring")):
        for login in store.all():
            store.remove(login)
        assert [path for path in store.folder.iterdir() if path.suffix == ".json"] == []
    assert backend.entries == {}


def test_the_newest_folder_has_everything_that_a_login_can_have() -> None:
    logins = [
        json.loads(path.read_bytes())
        for path in (FOLDERS[max(FOLDERS)] / "clients" / "logins").glob("*.json")
    ]
    for struct, found in ((Login, logins), (RegisteredClient, [login["client"] for login in logins])):
        names = {field.encode_name for field in msgspec.structs.fields(struct)}
        assert {name for each in found for name in each if each[name] not in (None, [])} == names


async def test_recordings_are_replayed(left: Path) -> None:
    answers = json.loads((left / "recordings" / "answers.json").read_text())
    assert await replay_recordings(left / "recordings") == answers


async def test_the_history_of_a_task_is_replayed_to_its_end(left: Path) -> None:
    assert await replayed_next(left / "exports" / "history.json") == ("ask:go_on", [])


async def test_exported_tasks_are_imported_with_all_that_they_have(left: Path, tmp_path: Path) -> None:
    place = Place(f"sqlite:///{tmp_path}/imported.sqlite")
    run("tasks", "import", place.url, left / "exports" / "tasks.jsonl")
    folder = FOLDERS[next(name for name in FOLDERS if _is_of(FOLDERS[name], left))]
    kept = Kept.read(folder / "sqlite" / "kept.json")
    exported = (left / "exports" / "tasks.jsonl").read_text(encoding="utf-8")
    tasks = {name: task for name, task in kept.tasks.items() if f'"id":"{task["id"]}"' in exported}
    assert kept.tasks.keys() - tasks.keys() == {"short-lived"}  # it had expired when the file was written
    found = await look(place, tasks)
    for name, task in tasks.items():
        expected: dict[str, Any] = {key: task[key] for key in ("seen", "log", "journal")}
        assert missing(expected, found[name], name) == []


def _is_of(folder: Path, copy: Path) -> bool:
    path = Path("exports", "tasks.jsonl")
    return (folder / "clients" / path).read_bytes() == (copy / path).read_bytes()


def test_a_server_is_added_to_the_file_of_a_host_beside_those_that_are_there(left: Path) -> None:
    before = {host: json.loads((left / "hosts" / f"{host}.json").read_text()) for host in HOSTS}
    install(left / "hosts", "two")
    for host in HOSTS:
        (key,), after = before[host], json.loads((left / "hosts" / f"{host}.json").read_text())
        assert set(after[key]) == {"one", "two"}
        assert after[key]["one"] == before[host][key]["one"]
