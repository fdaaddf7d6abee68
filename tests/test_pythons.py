"""Which interpreters `make test-pythons` finds, and what it makes of their tests."""

from __future__ import annotations

import types
from pathlib import Path

import pytest

from tests.support.process import ROOT
from tests.support.scripts import load_script


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> types.ModuleType:
    """The script, on a machine whose PATH and pyenv are folders of the test's own."""
    module: types.ModuleType = load_script("test_pythons")
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    return module


def interpreter(folder: Path, version: str, *, works: bool = True) -> Path:
    """Put an interpreter into a folder, or a shim that fails."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"python{version}"
    file.write_text(f"#!/bin/sh\necho {version}\n" if works else "#!/bin/sh\nexit 127\n")
    file.chmod(0o755)
    return file


def test_an_interpreter_on_the_path_comes_before_pyenvs(script: types.ModuleType, tmp_path: Path) -> None:
    old = interpreter(tmp_path / "pyenv" / "versions" / "3.98.2" / "bin", "3.98")
    new = interpreter(tmp_path / "pyenv" / "versions" / "3.98.10" / "bin", "3.98")
    interpreter(tmp_path / "pyenv" / "versions" / "3.99.0" / "bin", "3.99")
    assert list(script.interpreters("3.98")) == [new, old]
    first = interpreter(tmp_path / "path", "3.98")
    assert list(script.interpreters("3.98")) == [first, new, old]


def test_a_shim_of_a_version_that_is_not_selected_is_passed_over(
    script: types.ModuleType, tmp_path: Path
) -> None:
    interpreter(tmp_path / "path", "3.98", works=False)
    real = interpreter(tmp_path / "pyenv" / "versions" / "3.98.1" / "bin", "3.98")
    assert list(script.interpreters("3.98")) == [real]


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        (["passed", "passed", "skipped, …", "skipped, …"], 0),
        (["passed", "failed", "skipped, …", "skipped, …"], 1),
        (["skipped, …"] * 4, 1),
    ],
)
def test_one_failure_fails_all_and_so_does_a_machine_without_any(
    script: types.ModuleType, monkeypatch: pytest.MonkeyPatch, verdicts: list[str], code: int
) -> None:
    given = iter(verdicts)
    monkeypatch.setattr(script, "try_version", lambda version, options: next(given))
    assert script.main([]) == code


def test_an_absent_version_is_named(script: types.ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    script.main([])
    lines = capsys.readouterr().out.strip().splitlines()
    assert [line.split(",")[0] for line in lines] == [f"Python {v}: skipped" for v in script.VERSIONS]


def test_the_folders_of_the_fast_part_exist(script: types.ModuleType) -> None:
    assert [folder for folder in script.FAST if not (ROOT / "tests" / folder).is_dir()] == []
