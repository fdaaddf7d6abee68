"""The servers of docs/howto/moving.md, before and after: the same client finds no difference."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from antiphon import Client, Server
from tests.pages import blocks
from tests.support.process import ROOT, environment

OLD, NEW = "2025-11-25", "2026-07-28"
PAGE = ROOT / "docs" / "howto" / "moving.md"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The files that the page shows, by name."""
    folder = tmp_path_factory.mktemp("moving")
    found = {}
    for block in blocks(PAGE):
        if block.language == "python":
            name = block.text.split("\n")[0].removeprefix("# ")
            found[name] = folder / name
            found[name].write_text(block.text, encoding="utf-8")
    return found


async def tracked(client: Client) -> list[Any]:
    """What a caller sees of the bugs."""
    first = await client.call("resolve", bug=8, check=False)
    left = await client.call("resolve", {"bug": 7}, check=False, timeout=60)
    counted = await client.call("count")
    read = await client.read("bugs://8")
    prompted = await client.prompt("triage", {"component": "door"})
    return [
        client.instructions,
        {
            tool.name: (tool.description, sorted(tool.input_schema["properties"]))
            for tool in await client.tools()
        },
        [template.uri_template for template in await client.templates()],
        (first.is_error, first.text),
        (left.is_error, left.text),
        counted.data,
        read.contents[0],
        prompted.messages[0].content,
    ]


async def lent(client: Client) -> list[Any]:
    """What a caller sees of the library."""
    result = await client.call("lend", check=False, timeout=60)
    return [
        [tool.name for tool in await client.tools()],
        (result.is_error, result.text),
        (await client.read("shelf://all")).contents[0],
    ]


async def seen(file: Path, look: Any, answer: Any, protocol: str = OLD) -> tuple[list[Any], list[Any]]:
    """What a caller sees of a server in a process of its own, and hears meanwhile."""
    heard: list[Any] = []
    command = [sys.executable, "-W", "ignore", str(file)]
    client = Client(
        command,
        elicit=lambda question: answer,
        on_progress=lambda step: heard.append((step.progress, step.total, step.message)),
        env=environment(),
        protocol=protocol,
    )
    async with client:
        return await look(client), heard


@pytest.mark.parametrize("answer", [{"value": "Fixed"}, "decline"], ids=["answered", "declined"])
async def test_a_server_of_fastmcp_is_the_same_after_it_has_moved(
    files: dict[str, Path], answer: Any
) -> None:
    before = await seen(files["fastmcp_before.py"], tracked, answer)
    after = await seen(files["fastmcp_after.py"], tracked, answer)
    assert before == after
    # Where tools of FastMCP cannot ask at all, because the version has no requests of a server's:
    assert await seen(files["fastmcp_after.py"], tracked, answer, NEW) == after
    text = "Bug #7: Fixed." if answer != "decline" else "Then it stays open."
    assert (answer == "decline", text) in after[0]


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ({"title": "Emma"}, "Here is Emma."),
        ({"title": "Ulysses"}, "There is no Ulysses."),
        ("decline", "Another"),
    ],
    ids=["answered", "failing", "declined"],
)
async def test_a_server_of_the_official_sdk_is_the_same_after_it_has_moved(
    files: dict[str, Path], answer: Any, text: str
) -> None:
    before, heard_before = await seen(files["mcp_before.py"], lent, answer)
    after, heard_after = await seen(files["mcp_after.py"], lent, answer)
    assert heard_before == heard_after
    assert await seen(files["mcp_after.py"], lent, answer, NEW) == (after, heard_after)
    # The official SDK puts the tool's name before what it failed with.
    assert before[1][0] == after[1][0]
    assert before[1][1].endswith(after[1][1])
    assert text in after[1][1]
    assert [before[0], before[2]] == [after[0], after[2]]


def test_few_lines_differ(files: dict[str, Path]) -> None:
    for library, most in (("fastmcp", 10), ("mcp", 11)):
        before = files[f"{library}_before.py"].read_text().splitlines()
        after = files[f"{library}_after.py"].read_text().splitlines()
        assert len([line for line in after if line not in before]) <= most


def test_a_transport_that_there_is_not_is_answered_with_those_there_are() -> None:
    with pytest.raises(ValueError, match="Unknown transport 'sse': use 'stdio', 'http' or 'streamable-http'"):
        Server("x").run("sse")  # type: ignore[arg-type]
