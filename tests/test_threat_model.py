"""The threat model says what is true: its tests exist, and its table of memory follows from the limits."""

from __future__ import annotations

import ast
import dataclasses
import re
import sys
import tracemalloc
from pathlib import Path

import msgspec
import pytest

from antiphon import Limits
from antiphon.runtime.budget import SMALL_MESSAGE_BYTES
from antiphon.runtime.tasks import finished_content, finished_tasks
from antiphon.transport.server.http import known_heads, sessions
from antiphon.transport.server.http.ended_sessions import EndedSessions
from antiphon.wire.server import v2026_07_28
from tests.support.process import ROOT, started

MODEL = ROOT / "docs" / "discussions" / "threat-model.md"
MIB = 1024 * 1024
CONNECTION_BUFFER = 64 * 1024
"""How much a transport of asyncio keeps before it makes its writer wait."""
DECODED_FACTOR = 28
"""How much larger JSON can become when it is decoded."""
PROCESS = 80 * MIB
"""The memory of an idle server."""
ENDED_SESSION = 10 * 600
"""The memory of the ended sessions that a process remembers for each session that it may have."""
CHECKED_HEADERS = 2 * MIB
"""The memory of the paths and headers that were checked. `tests/transport/test_tables.py` measures it."""
KNOWN_HEAD = 10 * 1024
"""The memory of a head that is kept, with its headers."""


def _rows(heading: str) -> list[list[str]]:
    """Return the cells of the tables below a heading, without the headers."""
    section = MODEL.read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_every_promise_names_a_test_that_exists() -> None:
    promises = [row for row in _rows("What holds") if row[0] != "promise"]
    assert len(promises) > 15
    assert [row[0] for row in promises if not re.search(r"`tests/", row[1])] == []


@pytest.mark.parametrize("page", ["docs/discussions/threat-model.md", "SECURITY.md"])
def test_the_tests_that_are_named_exist(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    missing = []
    for path, name in re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", text):
        if not (ROOT / path).is_file() or (name and name not in _functions(ROOT / path)):
            missing.append(f"{path}::{name}")
    assert missing == []


def _functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def _bounds(limits: Limits) -> list[int]:
    """Return the numbers of the table of memory, in bytes, with other limits perhaps."""
    numbers = dataclasses.asdict(limits) | {
        "CONNECTION_BUFFER": CONNECTION_BUFFER,
        "SMALL_MESSAGE": SMALL_MESSAGE_BYTES,
        "DECODED_FACTOR": DECODED_FACTOR,
        "PROCESS": PROCESS,
        "ENDED_SESSION": ENDED_SESSION,
        "KNOWN_HEADS": known_heads.MAX_HEADS,
        "KNOWN_HEAD": KNOWN_HEAD,
        "FINISHED_CONTENT": finished_content.MAX_BYTES,
        "FINISHED_TASKS": finished_tasks.MAX_BYTES,
        "METAS": v2026_07_28.MAX_CACHED_METAS,
        "META": v2026_07_28.MAX_CACHED_META_BYTES,
        "CHECKED_HEADERS": CHECKED_HEADERS,
    }
    formulas = [row[1].strip("`") for row in _rows("Memory at worst") if row[1].startswith("`")]
    return [int(eval(formula, {}, numbers)) for formula in formulas]


def memory_at_worst(limits: Limits) -> int:
    """Return the most memory that strangers can make a process with these limits use."""
    return sum(_bounds(limits))


def test_the_table_of_memory_follows_from_the_limits() -> None:
    *rows, total = [row for row in _rows("Memory at worst") if row[0] != "what"]
    computed = [round(size / MIB) for size in _bounds(Limits())]
    assert [f"{size} MiB" for size in computed] == [row[2] for row in rows]
    assert f"**{sum(computed)} MiB**" == total[2]


@pytest.mark.parametrize("item", [b"[]", b"{}", b"0", b'""', b"[0]", b'{"":0}', b"1e5", b'"a"'])
def test_decoded_json_is_at_most_so_many_times_as_large(item: bytes) -> None:
    body = b"[" + b",".join([item] * (SMALL_MESSAGE_BYTES // (len(item) + 1))) + b"]"
    decode = msgspec.json.Decoder().decode
    decode(body)
    tracemalloc.start()
    try:
        value = decode(body)
        size = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert value
    assert size <= len(body) * DECODED_FACTOR, size / len(body)


@pytest.mark.parametrize("callers", [1, 20_000])
def test_an_ended_session_needs_little(callers: int) -> None:
    count = 20_000
    tracemalloc.start()
    try:
        ended = EndedSessions(count, 1.0)
        for number in range(count):
            ended.add(f"{number:032}", 2**50 + number, f"2001:db8:{number % callers:x}::/64")
        size = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert len(ended) == count
    assert size / count * sessions.ENDED_PER_SESSION <= ENDED_SESSION, size / count


@pytest.mark.parametrize("count", [1, 8, known_heads.MAX_HEADERS - 1])
def test_a_head_that_is_kept_needs_little(count: int) -> None:
    room = known_heads.MAX_HEAD_BYTES - 100
    lines = [(b"x-%03d" % number, b"a" * (room // count - 9)) for number in range(count)]
    lines.append((b"content-length", b"1"))
    head = b"".join(b"%b: %b\r\n" % line for line in lines)
    data = b"POST /mcp HTTP/1.1\r\n" + head + b"\r\n0"
    tracemalloc.start()
    try:
        heads = known_heads.KnownHeads()
        # Copies, as the parser makes them.
        headers = known_heads.KnownHeaders((name.lower(), value.lower()) for name, value in lines)
        kept = known_heads.read_head(data, b"/mcp", headers, b"0")
        assert kept is not None
        heads.add(kept)
        size = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert size <= KNOWN_HEAD, size


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_an_idle_server_needs_no_more_than_the_table_says(tmp_path: Path) -> None:
    with started("load.py", tmp_path) as server:
        assert server.memory <= PROCESS


def test_reports_go_to_a_private_place() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    assert "Report a vulnerability" in text
    assert not re.search(r"[\w.]+@[\w.]+", text)
