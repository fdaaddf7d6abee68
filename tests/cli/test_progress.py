"""Progress and log messages of a running call, on a terminal and in a pipe."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator

import pytest

from antiphon.cli.call.progress import ProgressDisplay
from antiphon.model.notification import Log, Progress
from tests.cli.command import antiphon, running
from tests.cli.pseudo_terminal import in_terminal
from tests.cli.stored_tasks import sqlite_url


def step(done: float, total: float | None = None, message: str | None = None) -> Progress:
    return Progress("token", done, total, message)


class Screen(io.StringIO):
    """A standard error stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> Screen:
    """Replace standard error. Not a fixture, because pytest replaces the stream after fixtures ran."""
    shown = Screen()
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return shown


def read_and_clear(screen: Screen) -> str:
    """Return the content of the screen and clear it."""
    shown = screen.getvalue()
    screen.seek(0)
    screen.truncate()
    return shown


def test_prints_progress_as_lines_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    display = ProgressDisplay()
    display.progress(step(1, 4, "first"))
    display.progress(step(2.5))
    display.log(Log("info", {"a": 1}, None))
    display.close()
    assert capsys.readouterr().err.splitlines() == ["[1/4] first", "[2.5]", 'info: {"a":1}']


def test_shows_a_bar_with_messages_above_it_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = on_a_terminal(monkeypatch)
    display = ProgressDisplay()
    display.log(Log("warning", "before", None))
    display.progress(step(1, 4, "[b]first[/b]\nline"))
    display.log(Log("info", "[red]as it is[/red]", None))
    display.progress(step(4, 4, "last"))
    display.close()
    shown = screen.getvalue()
    assert shown.startswith("warning: before\n")
    assert "━" in shown
    assert "[b]first[/b] line" in shown
    assert "info: [red]as it is[/red]" in shown
    assert "4/4" in shown


async def test_the_bar_is_hidden_while_a_question_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = on_a_terminal(monkeypatch)
    display = ProgressDisplay()
    display.progress(step(1, 2, "one"))

    async def ask(question: str) -> str:
        read_and_clear(screen)
        display.progress(step(2, 2, "two"))
        assert read_and_clear(screen) == ""
        return question.upper()

    assert await display.hidden_during(ask)("what?") == "WHAT?"
    display.progress(step(2, 2, "three"))
    display.close()
    assert "three" in read_and_clear(screen)


@pytest.mark.parametrize("why", ["dumb", "beside output"])
def test_prints_lines_if_a_bar_is_not_possible(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = on_a_terminal(monkeypatch)
    if why == "dumb":
        monkeypatch.setenv("TERM", "dumb")
    ProgressDisplay(live=why == "dumb").progress(step(1, 2, "one"))
    assert read_and_clear(screen) == "[1/2] one\n"


PACKING = '''
from collections.abc import AsyncIterator

from antiphon import Context, Failure, Server

server = Server("packing")


@server.tool(task="optional")
async def pack(fails: bool, ctx: Context) -> AsyncIterator[str]:
    """Report progress right before the end."""
    yield "packed"
    await ctx.progress(2, 2, "closed")
    if fails:
        raise Failure("It does not fit.")
'''


@pytest.fixture(scope="module")
def packing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server whose task reports progress right before its end."""
    folder = tmp_path_factory.mktemp("packing")
    file = folder / "packing.py"
    file.write_text(PACKING)
    with running(file, "--store", sqlite_url(folder), directory=folder) as server:
        yield server.url


@pytest.mark.parametrize("protocol", ["2026-07-28", "2025-11-25", "DRAFT-2026-v1"])
@pytest.mark.parametrize("options", [("--task",), ("--task", "--stream")], ids=" ".join)
@pytest.mark.parametrize("fails", [False, True])
def test_prints_the_last_progress_of_a_task(
    packing: str, protocol: str, options: tuple[str, ...], fails: bool
) -> None:
    done = antiphon("call", packing, "pack", f"fails={fails}", "--protocol", protocol, *options)
    assert done.returncode == (1 if fails else 0)
    task, progress, *failure = done.stderr.splitlines()  # a failure has all text of the result
    assert task.startswith("Task: pack_")
    assert progress == "[2/2] closed"
    assert failure[-1:] == (["It does not fit."] if fails else [])


def test_shows_the_last_progress_of_a_task_on_a_terminal(packing: str) -> None:
    with in_terminal("call", packing, "pack", "fails=false", "--task") as command:
        command.expect("working: 2 of 2: closed")
        assert command.wait() == (0, "packed\n")
