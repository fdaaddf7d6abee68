"""The sdist and the wheel have what they need and nothing else, and a release has one version."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import antiphon
from tests.support.process import ROOT
from tests.support.scripts import load_script

check_release = load_script("check_release")
VERSION = check_release.read_version()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the sdist and the wheel of the work tree."""
    folder = tmp_path_factory.mktemp("dist")
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--directory", str(folder)],
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> dict[str, bytes]:
    """The content of each file of the wheel."""
    [found] = built.glob("*.whl")
    return dict(check_release.wheel_files(found))


def test_the_version_comes_from_one_place() -> None:
    assert antiphon.__version__ == VERSION
    assert 'dynamic = ["version"]' in (ROOT / "pyproject.toml").read_text()
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert [*check_release.changelog_problems(changelog, VERSION, final=False)] == []


@pytest.mark.parametrize(
    ("heading", "final", "problem"),
    [
        ("## 1.2.0, 2026-11-20", True, None),
        ("## 1.2.0, unreleased", False, None),
        ("## 1.2.0, unreleased", True, "says that 1.2.0 is unreleased"),
        ("## 1.1.0, 2026-11-20", True, "the version is 1.2.0"),
        ("## 1.2.0", False, "'1.2.0, unreleased', or a date"),
        ("No heading.", False, "the version is 1.2.0"),
    ],
)
def test_the_changelog_begins_with_the_version(heading: str, final: bool, problem: str | None) -> None:
    text = f"# Changelog\n\n{heading}\n\n- A change.\n\n## 1.0.0, 2026-01-01\n"
    found = " ".join(check_release.changelog_problems(text, "1.2.0", final=final))
    assert problem in found if problem else not found


def test_the_wheel_has_the_package_and_the_metadata(wheel: dict[str, bytes]) -> None:
    assert [*check_release.wheel_problems(wheel, VERSION)] == []
    for name in ("py.typed", "console/static/index.html", "store/sqlite/schema/"):
        assert any(each.startswith(f"antiphon/{name}") for each in wheel), name


def test_the_sdist_has_the_package_alone(built: Path) -> None:
    [sdist] = built.glob("*.tar.gz")
    assert [*check_release.sdist_problems(sdist, VERSION)] == []


def test_the_check_finds_what_is_wrong_with_a_wheel(wheel: dict[str, bytes], tmp_path: Path) -> None:
    info = f"antiphon-{VERSION}.dist-info"
    broken = {name: content for name, content in wheel.items() if not name.endswith("py.typed")}
    broken["tests/test_it.py"] = b""
    broken[f"{info}/METADATA"] = broken[f"{info}/METADATA"].replace(b"Python :: 3.14", b"Python :: 2.7")
    broken[f"{info}/entry_points.txt"] = b""
    assert [*check_release.wheel_problems(broken, VERSION)] == [
        "The wheel lacks antiphon/py.typed.",
        "The wheel has tests/test_it.py, which is not part of the package.",
        "The wheel has no typed marker: antiphon/py.typed.",
        "The metadata lacks the classifier 'Programming Language :: Python :: 3.14'.",
        "The wheel lacks the entry point 'antiphon = antiphon.cli:main'.",
        "The wheel lacks the entry point 'antiphon = antiphon.testing.pytest_plugin'.",
    ]
    assert "The wheel has no metadata for the version 9.9.9." in [
        *check_release.wheel_problems(wheel, "9.9.9")
    ]


def test_the_readme_is_the_long_description(wheel: dict[str, bytes], tmp_path: Path) -> None:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "README.md").write_text("# Another\n")
    assert [*check_release.wheel_problems(wheel, VERSION, tmp_path)] == [
        "The long description is not README.md."
    ]
