"""The check of the sources: exceptions from it are explained."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.process import ROOT
from tests.support.scripts import load_script

check_security = load_script("check_security")


@pytest.mark.parametrize(
    ("comment", "problems"),
    [
        ("", 0),
        ("# nosec B311 # jitter", 0),
        ("# nosec B311,B112 # both harmless", 0),
        ("# nosec", 1),
        ("# nosec B311", 1),
        ("# nosec B311 #", 1),
        ("# nosec # harmless", 1),
        ("#nosec", 1),
    ],
)
def test_an_exception_names_its_check_and_its_reason(comment: str, problems: int, tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(f"pass  {comment}\n")
    assert len(check_security.unexplained(path)) == problems


def test_every_exception_in_the_library_is_explained() -> None:
    sources = sorted((ROOT / "src").rglob("*.py"))
    assert [problem for path in sources for problem in check_security.unexplained(path)] == []
