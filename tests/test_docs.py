"""Every page does what it says: its code runs, its commands print what it shows, its links lead somewhere."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from antiphon import Limits
from tests.cli.command import plain_environment
from tests.diagrams import task_states
from tests.pages import RUN, Reader, blocks
from tests.support.process import ROOT

PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
TEXTS = [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
_LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_a_page_does_what_it_shows(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", plain_environment()["PYTHONPATH"])
    expected = [block for block in blocks(page) if block.language in RUN and not block.skipped]
    assert Reader(page, tmp_path).follow() == len(expected)


@pytest.mark.parametrize("page", TEXTS, ids=_name)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    broken = [link for link in _LINK.findall(page.read_text()) if not (page.parent / link).exists()]
    assert broken == []


def test_the_readme_is_short_and_shows_code_on_its_first_screen() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) < 150
    assert any(line.startswith("```python") for line in lines[:30])


def test_few_blocks_are_skipped() -> None:
    skipped = [block for page in PAGES for block in blocks(page) if block.skipped]
    assert len(skipped) <= 3


def test_every_limit_and_every_variable_is_in_the_reference() -> None:
    page = (ROOT / "docs" / "reference" / "settings.md").read_text(encoding="utf-8")
    limits = [field.name for field in dataclasses.fields(Limits)]
    sources = "".join(file.read_text(encoding="utf-8") for file in (ROOT / "src").rglob("*.py"))
    variables = sorted(set(re.findall(r"\bANTIPHON_[A-Z]+\b", sources)))
    assert "ANTIPHON_SECRETS" in variables
    assert [name for name in (*limits, *variables) if f"`{name}`" not in page] == []


def test_the_life_of_a_task_is_drawn_as_it_is() -> None:
    drawn = [block.text for page in PAGES for block in blocks(page) if block.language == "mermaid"]
    assert drawn == [f"{task_states()}\n"]


def test_the_map_of_the_code_is_true() -> None:
    tree = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("```")[3]
    package = ROOT / "src" / "antiphon"
    folders = {file.parent.name for file in package.rglob("*.py")}
    assert sorted(name for name in folders if f"{name}/" not in tree) == []
    modules = {file.name for file in [*package.rglob("*.py"), *(ROOT / "tests").glob("*.py")]}
    modules |= {file.name for file in (ROOT / "examples").glob("*.py")}
    assert sorted(set(re.findall(r"\b\w+\.py\b", tree)) - modules - {"test_docs.py"}) == []
