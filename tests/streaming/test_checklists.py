"""The checklists of SEP-1905 in the documentation name tests that are there."""

from __future__ import annotations

import re

import pytest

from tests.support.process import ROOT

PAGE = (ROOT / "docs" / "reference" / "streaming.md").read_text(encoding="utf-8")
NAMED = re.findall(r"\| `(tests/[\w/]+\.py)::(\w+)` \|", PAGE)


def test_every_line_of_both_checklists_is_there() -> None:
    server, client = PAGE.split("The server:\n")[1].split("The client:\n")
    assert (server.count("| `tests/"), client.count("| `tests/")) == (12, 13)


@pytest.mark.parametrize(("file", "name"), sorted(set(NAMED)))
def test_each_names_a_test_that_is_there(file: str, name: str) -> None:
    assert re.search(rf"^(async )?def {name}\(", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)
