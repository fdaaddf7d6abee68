"""`antiphon new` creates a project that passes its own test and type check, and overwrites nothing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from antiphon.cli.commands import app
from tests.cli.command import PATIENCE, antiphon, plain_environment
from tests.support.process import ROOT

FILES = [".gitignore", "README.md", "pyproject.toml", "server.py", "test_server.py"]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new project."""
    folder = tmp_path_factory.mktemp("new")
    done = antiphon("new", "trip-planner", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1:3] == ["  cd trip-planner", "  antiphon dev server.py"]
    assert done.stdout.endswith("README.md says how to install it.\n")
    return folder / "trip-planner"


def _python(*words: str | Path, cwd: Path) -> str:
    """Run a module of Python, and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", *map(str, words)],
        cwd=cwd,
        env={**plain_environment(), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        encoding="utf-8",
        timeout=PATIENCE * 5,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_new_project_passes_its_own_test(project: Path) -> None:
    assert sorted(os.listdir(project)) == FILES
    assert "3 passed" in _python("pytest", "-q", "-p", "no:cacheprovider", "-W", "error", cwd=project)
    options = tomllib.loads((project / "pyproject.toml").read_text())
    assert options["project"]["name"] == "trip-planner"
    assert options["project"]["dependencies"] == ["antiphon"]


def test_a_new_project_passes_the_type_check(project: Path) -> None:
    pytest.importorskip("mypy")
    assert tomllib.loads((project / "pyproject.toml").read_text())["tool"]["mypy"] == {"strict": True}
    # With the settings of this repository, which are as strict, the check finds its cache of the library.
    settings = ROOT / "pyproject.toml"
    _python("mypy", "--config-file", settings, project / "server.py", project / "test_server.py", cwd=ROOT)


def test_the_commands_in_the_readme_of_a_new_project_work(project: Path) -> None:
    readme = (project / "README.md").read_text()
    assert readme.startswith("# trip-planner\n")
    # The project cannot be installed before the library is.
    assert readme.index("Install Antiphon into the environment") < readme.index("`pip install -e '.[test]'`")
    commands = re.findall(r"`antiphon (\w+) server\.py", readme)
    assert len(commands) == 4
    assert set(commands) < set(get_command(app).commands)  # type: ignore[attr-defined]
    done = antiphon("call", "server.py", "plan_trip", "city=Oslo", "--answer", "value=1", cwd=project)
    assert done.stdout == "Day 1: the museum of Oslo\n"


@pytest.mark.parametrize("name", ["", "-x", "a/b", "..", "a b", "é", "x" * 65, "x\n", "Antiphon"])
def test_a_name_that_no_project_can_have_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["new", "--", name])
    assert done.exit_code == 2
    assert "name" in done.stderr
    assert os.listdir(tmp_path) == []


def test_nothing_is_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "README.md").write_text("mine")
    (tmp_path / "taken").mkdir()
    for words, message in (
        (["new", "taken"], "There is a taken already."),
        (["new", "other", "--here"], "This folder has README.md already. Nothing was written."),
    ):
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 1
        assert message in done.stderr
    assert sorted(os.listdir(tmp_path)) == ["README.md", "taken"]
    (tmp_path / "README.md").unlink()
    (tmp_path / ".gitignore").symlink_to("missing")
    done = CliRunner().invoke(app, ["new", "other", "--here"])
    assert "This folder has .gitignore already. Nothing was written." in done.stderr
    assert sorted(os.listdir(tmp_path)) == [".gitignore", "taken"]
    (tmp_path / ".gitignore").unlink()
    assert CliRunner().invoke(app, ["new", "other", "--here"]).exit_code == 0
    assert sorted(os.listdir(tmp_path)) == sorted([*FILES, "taken"])
