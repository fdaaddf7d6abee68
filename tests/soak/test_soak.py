"""A short soak: nothing acknowledged is lost, and nothing is done twice that was recorded."""

from __future__ import annotations

import json
import random
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.soak.driver import ENOUGH, Soak, report
from tests.soak.fleet import Build
from tests.soak.judge import show
from tests.soak.notes import History, Note, Notes, Seen, note
from tests.soak.phases import SHORT, Phase
from tests.soak.stores import PostgresStore, SqliteStore, Store
from tests.soak.versions import NoHistory, unpack
from tests.support.polling import until
from tests.support.postgres import postgres


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "sqlite":
        yield SqliteStore(tmp_path)
        return
    with postgres() as server:  # of its own: it is killed
        yield PostgresStore(server)


async def test_a_service_in_trouble_keeps_its_promises(store: Store, tmp_path: Path) -> None:
    soak = Soak(SHORT, store, tmp_path, seed=random.randrange(10**6))
    violations = await soak.run()
    evidence = await soak.evidence()
    assert not violations, "\n".join(
        [
            report(soak, violations),
            *map(str, violations),
            *(show(task, evidence) for task in dict.fromkeys(violation.task for violation in violations)),
        ]
    )
    assert len(soak.callers.tasks) > SHORT.tasks * ENOUGH
    assert soak.done, "there was trouble"


@pytest.mark.parametrize("fenced", [True, False])
async def test_without_the_check_of_tokens_the_judge_finds_what_a_paused_worker_does(
    fenced: bool, tmp_path: Path
) -> None:
    phase = Phase("overtaken", ("overtaken",), (), builds=(Build(),), processes=2, fenced=fenced)
    soak = Soak(phase, SqliteStore(tmp_path), tmp_path, seed=1)
    try:
        await soak.callers.give(1, "overtaken")
        await until(lambda: _begun(soak, "first"), within=30)
        paused = next(one for one in soak.fleet.processes if one.process.pid == _begun(soak, "first")[0])
        paused.signal(signal.SIGSTOP)
        await until(lambda: _begun(soak, "second"), within=30)  # the other process has taken over
        paused.signal(signal.SIGCONT)
        await soak.all_ended(within=30)
    finally:
        await soak.stop()
    assert len(_begun(soak, "first")) == 2
    violations = await soak.violations()
    if fenced:
        assert violations == []
    else:
        assert any("was recorded 2 times" in violation.sentence for violation in violations), violations


def _begun(soak: Soak, step: str) -> list[int]:
    """Return the processes that have begun a step."""
    return [note.process for note in soak.notes() if note.event == "begin" and note.step == step]


def test_a_tree_without_the_history_is_refused_with_the_remedy(tmp_path: Path) -> None:
    git = ["git", "-C", str(tmp_path), "-c", "user.name=x", "-c", "user.email=x@y.z"]
    for command in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "the only one"]):
        subprocess.run([*git, *command], check=True)
    with pytest.raises(NoHistory, match="does not have HEAD~100 .* in a clone with the whole history"):
        unpack(tmp_path, root=tmp_path)
    with pytest.raises(NoHistory, match="does not have HEAD~100"):
        unpack(tmp_path, root=tmp_path / "nowhere")


def test_the_library_of_a_commit_is_unpacked(tmp_path: Path) -> None:
    tree, folder = tmp_path / "tree", tmp_path / "folder"
    (tree / "src" / "antiphon").mkdir(parents=True)
    folder.mkdir()
    written = tree / "src" / "antiphon" / "__init__.py"
    git = ["git", "-C", str(tree), "-c", "user.name=x", "-c", "user.email=x@y.z"]
    subprocess.run([*git, "init", "-q"], check=True)
    for text in ("old", "new"):
        written.write_text(text)
        subprocess.run([*git, "add", "."], check=True)
        subprocess.run([*git, "commit", "-q", "-m", text], check=True)
    assert (unpack(folder, "HEAD~1", root=tree) / "antiphon" / "__init__.py").read_text() == "old"


def test_notes_and_what_callers_saw_survive_a_kill_in_the_middle_of_a_line(tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    notes = Notes(folder)
    for event in ("begin", "end"):
        note(str(folder / "1"), event, 7, "one", "key", "run", "new a")
        assert [each.event for each in notes.read()][-1] == event
    with (folder / "2").open("w") as file:
        file.write('[1.5, "beg')
    assert [(each.event, each.number, each.build) for each in notes.read()] == [
        ("begin", 7, "new a"),
        ("end", 7, "new a"),
    ]
    with (folder / "2").open("a") as file:
        file.write('in", 8, "one", "key", "run", 3, "old a"]\n')
    assert notes.read()[0] == Note(1.5, "begin", 8, "one", "key", "run", 3, "old a")
    history = History(tmp_path / "history")
    history.add("sent", "topic", "ada", "acknowledged", ["x"])
    assert [
        Seen(*json.loads(line)) for line in (tmp_path / "history").read_text().splitlines()
    ] == history.seen
    history.close()
