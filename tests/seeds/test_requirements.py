"""Each requirement of the seeds has a line of its seed, a verdict, and a test that there is."""

from __future__ import annotations

import re

from tests.seeds.blocks import SEEDS
from tests.seeds.requirements import requirements
from tests.support.process import ROOT

LINES = {"000": 293, "001": 259, "002": 1387, "003": 426, "004": 774}


def test_there_are_all_requirements_in_the_order_of_the_seeds() -> None:
    rows = requirements()
    assert len(rows) == 229
    assert [row.seed for row in rows] == sorted(row.seed for row in rows)
    assert {row.seed for row in rows} == set(SEEDS)
    assert [row for row in rows if not 1 <= row.line <= LINES[row.seed]] == []


def test_the_test_of_each_requirement_exists() -> None:
    missing = []
    for row in requirements():
        file, _, name = row.test.partition("::")
        path = ROOT / file
        if not path.is_file() or not re.search(rf"def {name}\(", path.read_text(encoding="utf-8")):
            missing.append((row.text, row.test))
    assert missing == []
