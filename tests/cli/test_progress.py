"""Progress and log messages of a running call, on a terminal and in a pipe."""

from __future__ import annotations

import io
import sys

import pytest

from antiphon.cli.call.progress import ProgressDisplay
from antiphon.model.notification import Log, Progress


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
