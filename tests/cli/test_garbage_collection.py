"""A process of `antiphon run` collects garbage less often, unless its file has settings of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command import antiphon, running

FILE = """
import gc
from antiphon import Server

server = Server("collects")
{settings}

@server.tool
async def collector() -> str:
    return f"{{gc.get_threshold()[0]}} {{gc.get_freeze_count() > 10_000}}"
"""


@pytest.mark.parametrize("options", [(), ("--workers", "2")])
@pytest.mark.parametrize(("settings", "threshold"), [("", 40_000), ("gc.set_threshold(900)", 900)])
def test_a_served_file_decides_itself_how_often_garbage_is_collected(
    tmp_path: Path, settings: str, threshold: int, options: tuple[str, ...]
) -> None:
    (tmp_path / "mine.py").write_text(FILE.format(settings=settings))
    with running(tmp_path / "mine.py", *options, directory=tmp_path) as server:
        done = antiphon("call", server.url, "collector")
    assert done.stdout.strip() == f"{threshold} True"
