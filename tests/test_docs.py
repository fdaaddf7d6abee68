"""Every page does what it says: its code runs, its commands print what it shows, its links lead somewhere."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from antiphon import Limits
from tests.cli.command import plain_environment
from tests.diagrams import task_states
from tests.pages import RUN, Reader, blocks
from tests.support.process import ROOT

PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
TEXTS = [*PAGES, *(ROOT / name for name in ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"))]
_LINK = re.compile(r"\]\(([^)#:\s]*)(?:#([^)\s]*))?\)")
_HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)


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
    broken = []
    for link, anchor in _LINK.findall(_prose(page)):
        target = page.parent / link if link else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in _anchors(target)):
            broken.append(f"{link}#{anchor}")
    assert broken == []


def _prose(page: Path) -> str:
    """A page without its code."""
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def _anchors(page: Path) -> set[str]:
    """What the headings of a page can be reached by."""
    headings = [
        re.sub(r"[^\w\- ]", "", heading.lower()).strip() for heading in _HEADING.findall(_prose(page))
    ]
    return {heading.replace(" ", "-") for heading in headings}


def test_every_page_is_in_the_index_and_in_the_site() -> None:
    pages = [
        str(page.relative_to(ROOT / "docs")) for page in PAGES if page.name not in ("README.md", "index.md")
    ]
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert [page for page in pages if f"({page})" not in index or f": {page}\n" not in site] == []


def test_the_reference_is_made_from_the_docstrings() -> None:
    done = _script("write_reference.py", "--check")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as strictly as MkDocs can."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    return folder


def test_the_site_builds_without_a_warning(site: Path) -> None:
    assert "Call and response" in (site / "index.html").read_text(encoding="utf-8")
    assert (site / "reference" / "api" / "server.html").exists()


def test_the_site_loads_nothing_from_other_hosts(site: Path) -> None:
    loads = re.compile(r"<(?:script|img|iframe|link)\b[^>]*\b(?:src|href)=[\"']?((?:https?:)?//[^\"' >]+)")
    pages = {page: page.read_text(encoding="utf-8") for page in site.rglob("*.html")}
    assert len(pages) > len(PAGES) - 2
    assert {str(page): found for page, text in pages.items() if (found := loads.findall(text))} == {}
    # The theme's own script for Mermaid comes from another host. It runs only if a page has this class.
    assert [page for page, text in pages.items() if 'class="mermaid"' in text] == []
    styles = "".join(file.read_text(encoding="utf-8") for file in site.rglob("*.css"))
    assert re.findall(r"(?:@import|url\()\s*[\"']?(?:https?:)?//", styles) == []


def test_the_site_draws_its_diagrams_and_the_picture_of_the_landing_page(site: Path) -> None:
    for page in PAGES:
        drawn = sum(block.language == "mermaid" for block in blocks(page))
        if page.is_relative_to(ROOT / "docs"):
            built = site / page.relative_to(ROOT / "docs").with_suffix(".html")
            assert built.read_text(encoding="utf-8").count('<figure class="diagram ') == drawn, page
    landing = (site / "index.html").read_text(encoding="utf-8")
    assert 'class="language-console ' in landing  # assets/copy_commands.js finds the commands by it
    assert '<svg role="img" aria-label="One function' in landing
    for word in ("complete", "failure", "additional", "streaming", "client", "store", "connection"):
        assert f">{word}</text>" in landing


def _script(name: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "scripts" / name), *options],
        cwd=ROOT,
        env=plain_environment(),
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )


def test_the_readme_is_short_and_shows_code_on_its_first_screen() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) < 150
    assert any(line.startswith("```python") for line in lines[:30])
    assert {"make demo", "make test"} <= {line.partition("  ")[0] for line in lines[:15]}


def test_the_readme_quotes_what_was_measured() -> None:
    assert _script("quote_results.py", "--check").returncode == 0


def test_the_picture_of_the_tour_shows_all_of_it() -> None:
    drawn = (ROOT / "docs" / "tour.svg").read_text(encoding="utf-8").replace("&#160;", " ")
    for kind in ("Answer", "Promise"):
        for ending in ("complete", "failure", "additional information", "streaming"):
            assert f"▸ {kind}, {ending}" in drawn
    assert "✓" in drawn
    assert "✗" not in drawn
    assert "font-face" not in drawn


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
    diagrams = [block.text for page in PAGES for block in blocks(page) if block.language == "mermaid"]
    drawn = [text for text in diagrams if text.startswith("stateDiagram")]
    assert drawn == [f"{task_states()}\n"]


def test_the_map_of_the_code_is_printed_from_the_docstrings() -> None:
    done = _script("write_map.py", "--check")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_map_names_every_module() -> None:
    tree = _contributing().split("```text\n")[1].split("```")[0]
    package = ROOT / "src" / "antiphon"
    folders, named = [package], set()
    for line in tree.splitlines()[1:]:
        entry = line.split()[0]
        depth = (len(line) - len(line.lstrip())) // 2
        folders[depth:] = [folders[depth - 1] / entry]
        if entry.endswith(".py"):
            named.add(folders[depth])
    assert named == {file for file in package.rglob("*.py") if file.name != "__init__.py"}


def test_every_place_that_a_change_goes_to_exists() -> None:
    table = _contributing().split("## Where a change goes")[1].split("## Style")[0]
    paths = re.findall(r"`([\w./-]+(?:/|\.py|\.md))`", table)
    assert len(paths) > 30
    outside = ("tests/", "docs/", "examples/", "scripts/")
    roots = {path: ROOT if path.startswith(outside) else ROOT / "src" / "antiphon" for path in paths}
    assert [path for path, root in roots.items() if not (root / path).exists()] == []


def test_every_target_is_explained_where_contributors_look() -> None:
    targets = re.search(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert targets is not None
    checks = _contributing().split("```sh\n")[1].split("```")[0]
    assert [
        name for name in targets[1].split() if not re.search(rf"^make.*\b{name}\b", checks, re.MULTILINE)
    ] == []


def _contributing() -> str:
    return (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_the_page_about_the_design_documents_is_made_from_their_tests() -> None:
    done = _script("write_seeds.py", "--check")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_page_about_the_design_documents_names_what_there_is() -> None:
    page = (ROOT / "docs" / "reference" / "seeds.md").read_text(encoding="utf-8")
    paths = set(re.findall(r"`((?:[\w.-]+/)*[\w.-]+(?:\.py|/))`", page))
    assert len(paths) > 40
    places = (ROOT, ROOT / "src" / "antiphon")
    assert sorted(path for path in paths if not any((place / path).exists() for place in places)) == []


def test_the_tests_that_a_page_names_exist() -> None:
    named = {
        (page.name, name)
        for page in (ROOT / "docs").rglob("*.md")
        for name in re.findall(r"`(tests/[\w/]+\.py)`", page.read_text(encoding="utf-8"))
    }
    assert len(named) > 20
    assert [pair for pair in sorted(named) if not (ROOT / pair[1]).is_file()] == []
