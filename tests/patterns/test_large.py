"""A result of 50 MB becomes an artifact and is read back without a large increase of memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.process import ROOT, environment

SIZE = 50 * 1024 * 1024
ALLOWED = 20 * 1024 * 1024


@pytest.mark.skipif(sys.platform != "linux", reason="the memory of a process is read from /proc")
@pytest.mark.parametrize("url", ["sqlite:///{}/a.db", "file:///{}/artifacts"], ids=["sqlite", "file"])
def test_fifty_megabytes_cost_less_than_twenty(url: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.patterns.large", url.format(tmp_path)],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["size"], found["kept"], found["same"]) == (SIZE, SIZE, True)
    assert found["pages"] >= 50
    assert found["text"] < 2000, "the content has its beginning"
    assert found["grown"] < ALLOWED
