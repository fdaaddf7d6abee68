"""What is kept is all that the seeds print, and the script that counts notices a missing block."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.seeds.blocks import SEEDS, Block, blocks_of
from tests.seeds.count import main
from tests.support.process import ROOT

ALL = [block for seed in SEEDS for block in blocks_of(seed)]
NO_JSON = ["000:22", "000:181", "000:214", "000:240", "001:65", "001:156", "001:174", "001:186", "001:227"]
FRAGMENTS = ["002:247", "002:297", "004:215"]
"""Two members without the object around them, and the data of an event."""


def test_there_are_as_many_messages_as_the_seeds_print() -> None:
    counts = [sum('"jsonrpc"' in block.text for block in blocks_of(seed)) for seed in SEEDS]
    assert counts == [13, 12, 26, 0, 9]
    assert [len(blocks_of(seed)) for seed in SEEDS] == [13, 12, 28, 0, 11]


def test_what_is_no_json_is_kept_as_printed_with_its_repair_beside() -> None:
    assert [block.name for block in ALL if block.repaired is not None] == NO_JSON + FRAGMENTS
    for block in ALL:
        assert isinstance(block.message, dict)
        if block.repaired is not None:
            with pytest.raises(json.JSONDecodeError):
                json.loads(block.text)


def texts(folder: Path, blocks: list[Block]) -> Path:
    """Write the texts of the seeds, with nothing but these blocks, each at its line."""
    for seed in SEEDS:
        lines: list[str] = []
        for block in blocks:
            if block.seed == seed:
                lines += ["words"] * (block.line - 1 - len(lines)) + block.text.split("\n")
        (folder / f"{seed}_text.txt").write_text("\n".join([*lines, ""]), encoding="utf-8")
    return folder


def test_the_script_finds_every_block_of_the_texts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(texts(tmp_path, ALL))]) == 0
    assert "No block is missing." in capsys.readouterr().out


@pytest.mark.parametrize(
    "more",
    [
        {"000": '{\n  "jsonrpc": "2.0"\n}'},
        {"001": 'one line with "jsonrpc" in it'},
        {"003": '  {\n    "capabilities": {}\n  }'},
        {"003": "```rust\nOk(())\n```"},
    ],
    ids=["a block", "a line", "an indented block", "Rust"],
)
def test_the_script_notices_what_is_not_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: Mapping[str, str]
) -> None:
    texts(tmp_path, ALL)
    ((seed, text),) = more.items()
    with (tmp_path / f"{seed}_text.txt").open("a", encoding="utf-8") as file:
        file.write(f"\n{text}\n")
    assert main([str(tmp_path)]) == 1
    assert f"missing: {seed}:" in capsys.readouterr().out


def test_each_example_in_rust_is_followed_by_one_in_python() -> None:
    page = (ROOT / "docs" / "howto" / "patterns.md").read_text(encoding="utf-8")
    languages = re.findall(r"^```(\w+)$", page.split("## The same in Rust")[1], re.MULTILINE)
    assert languages == ["python", *["rust", "python"] * 22]  # the first one is the server


def test_the_script_notices_a_block_that_is_kept_in_another_way(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts(tmp_path, ALL)
    file = tmp_path / "002_text.txt"
    file.write_text(file.read_text(encoding="utf-8").replace("octocat", "hexacat", 1), encoding="utf-8")
    assert main([str(tmp_path)]) == 1
    assert "printed in another way" in capsys.readouterr().out
