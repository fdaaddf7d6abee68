"""Files and folders of stores: made for their owner only, whatever the umask."""

from __future__ import annotations

import os
import stat
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from antiphon.model.artifact import ArtifactRecord
from antiphon.store.artifacts import open_artifacts
from antiphon.store.maintenance import back_up_store
from antiphon.store.sqlite import SQLiteStore

from .support import START, task

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs the permissions of POSIX")


@pytest.fixture(params=[0o000, 0o022, 0o777], autouse=True)
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    """A permissive, a usual and a strict umask."""
    before = os.umask(request.param)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, str]:
    """Return the permissions of everything in a folder, by name."""
    return {path.name: oct(stat.S_IMODE(path.stat().st_mode)) for path in folder.rglob("*") if path != folder}


@pytest.fixture
def folder(tmp_path: Path, umask: None) -> Path:
    """A folder that exists already."""
    return tmp_path


async def test_an_sqlite_file_its_logs_and_its_backup_are_private(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = folder / "tasks.db"
    store = SQLiteStore(path)
    await store.open()
    await store.create(task(), [("x", 1)])
    assert modes(folder) == dict.fromkeys(("tasks.db", "tasks.db-wal", "tasks.db-shm"), "0o600")
    back_up_store(f"sqlite:///{path}", folder / "copy.db")
    assert modes(folder)["copy.db"] == "0o600"
    await store.close()
    assert "Every user" not in caplog.text


async def test_artifacts_in_an_sqlite_file_are_private(folder: Path) -> None:
    store = open_artifacts(f"sqlite:///{folder / 'artifacts.db'}")
    await store.open()
    assert set(modes(folder).values()) == {"0o600"}
    await store.close()


@pytest.mark.parametrize("umask", [0o000, 0o022], indirect=True)
async def test_artifact_folders_and_files_are_private(folder: Path) -> None:
    store = open_artifacts(f"file:///{folder}/data/artifacts")
    await store.open()

    async def pieces() -> AsyncIterator[bytes]:
        yield b"secret"

    await store.put(
        ArtifactRecord("a", "ann", "Photo", "blob", "image/png", START, START), pieces(), max_bytes=9
    )
    found = modes(folder)
    files = {name: found.pop(name) for name in ("a.data", "a.json")}
    assert set(files.values()) == {"0o600"}
    assert len(found) == 3
    assert set(found.values()) == {"0o700"}


@pytest.mark.parametrize("umask", [0o022], indirect=True)
async def test_an_existing_file_is_left_as_it_is_and_warned_about(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = folder / "tasks.db"
    path.touch()
    path.chmod(0o644)
    store = SQLiteStore(path)
    await store.open()
    await store.close()
    assert modes(folder)["tasks.db"] == "0o644"
    (warning,) = [record.getMessage() for record in caplog.records if "Every user" in record.getMessage()]
    assert f"chmod 600 {path}" in warning
    caplog.clear()
    (folder / "artifacts").mkdir()
    artifacts = open_artifacts(f"file:///{folder}/artifacts")
    await artifacts.open()
    assert f"chmod 700 {folder / 'artifacts'}" in caplog.text
    assert modes(folder)["artifacts"] == "0o755"
