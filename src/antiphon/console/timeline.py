"""Computes the timeline of a task from the entries of its log: runs, steps, questions, waits and output.

Pure: it does not know how the timeline is drawn. Other versions may have written the entries, and somebody
may have damaged them, so it takes nothing about their data for granted.

A log says when something was recorded, not when it began. A step begins after the entry before it at the
earliest, and a run begins after its task was ready. The bars begin there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from antiphon.model.task import HELD, STORED_QUESTIONS
from antiphon.printable import printable
from antiphon.store.contract import Entry

__all__ = ["MAX_BARS", "Bar", "Timeline", "timeline_of"]

MAX_BARS = 200
"""How many bars a timeline has at most. The bars in the middle are left out."""
MAX_TICKS = 200
"""How many points of the output a timeline has at most. Points next to each other are added up."""
_MAX_LABEL_CHARACTERS = 120
_MAX_DETAIL_CHARACTERS = 300


class Bar(msgspec.Struct):
    """One bar. Times are in milliseconds since 1970."""

    kind: str
    """`run`, `step`, `question`, `sleep`, `event` or `retry`."""
    label: str
    start: int
    entry: int
    """The number of the entry that the bar was read from."""
    end: int | None = None
    """When the bar ends; `None` while it is open."""
    state: str = ""
    """`open`, `ok`, `failed`, `lost`, `declined` or `expired`."""
    detail: str = ""


class Timeline(msgspec.Struct):
    """The bars of a task in the order in which they begin, and its output."""

    start: int
    end: int | None
    """When the task ended; `None` if it has not ended."""
    bars: list[Bar]
    output: list[tuple[int, int]]
    """When segments were written, and how many."""
    left_out: int = 0
    """How many bars are left out, because there are too many."""
    entries_left_out: int = 0
    """How many entries in the middle of the log were not read, because there are too many."""


def timeline_of(
    parts: Sequence[Sequence[Entry]], *, created: int, ended: int | None, total: int | None = None
) -> Timeline:
    """Return the timeline of a task from parts of its log: the whole log, or its beginning and its end.

    `total` is the number of entries in the log; without it, the parts are taken to be the whole log.
    """
    reader = _Reader(created)
    for part in parts:
        for entry in part:
            reader.add(entry)
        if part is not parts[-1]:
            reader.skip()
    bars = reader.finish(ended)
    read = sum(map(len, parts))
    left_out = max(len(bars) - MAX_BARS, 0)
    if left_out:
        bars = [*bars[: MAX_BARS // 2], *bars[-(MAX_BARS - MAX_BARS // 2) :]]
    return Timeline(
        created, ended, bars, _joined(reader.output), left_out, 0 if total is None else max(total - read, 0)
    )


class _Reader:
    """Reads entries in order, and keeps the bars that are open."""

    def __init__(self, created: int) -> None:
        self.output: list[tuple[int, int]] = []
        self._bars: list[Bar] = []
        self._open: dict[str, Bar] = {}  # questions and waits, by key
        self._run: Bar | None = None
        self._token: int | None = None
        self._runs = 0
        self._ready_since: int | None = created
        self._last_at = created
        self._woken_at: int | None = None

    def skip(self) -> None:
        """Note that the entries which follow are not the next ones of the log."""
        if self._run is not None:
            self._run.detail = "Entries in the middle of the log are left out."
            self._end_run("")
        self._ready_since = None

    def add(self, entry: Entry) -> None:
        data = _mapping(entry.data)
        self._note_run(entry, data)
        self._read_journal(entry, _mapping(data.get("journal")))
        if entry.kind == "emitted":
            blocks = data.get("blocks")
            self.output.append((entry.at, len(blocks) if isinstance(blocks, list) else 1))
        elif entry.kind in ("asked", "parked"):
            self._read_waits(entry, data)
        elif entry.kind == "answered":
            self._read_answers(entry, data)
        elif entry.kind == "woken":
            self._woken_at = entry.at
            for bar_key, bar in [*self._open.items()]:
                if bar.kind == "sleep" and bar.end is not None and bar.end <= entry.at:
                    del self._open[bar_key]
                    bar.state, bar.end = "ok", entry.at
        self._end_after(entry, data)
        self._last_at = entry.at

    def finish(self, ended: int | None) -> list[Bar]:
        """Return all bars, in the order in which they begin."""
        if self._run is not None and ended is not None:
            self._end_run("")
        elif self._run is not None:
            self._run.state, self._run.end = "open", None
        elif ended is None and self._ready_since is not None:
            number = f"Run {self._runs + 1}"
            self._bars.append(
                Bar("run", number, self._ready_since, 0, None, "open", "It is queued, or a worker has begun.")
            )
        for bar in self._open.values():
            bar.state, bar.end = ("open", None) if ended is None else ("", ended)
        return sorted(self._bars, key=lambda bar: bar.start)

    # Runs

    def _note_run(self, entry: Entry, data: Mapping[str, Any]) -> None:
        by = data.get("by")
        if not isinstance(by, int):
            return
        if self._run is not None and by != self._token:
            self._end_run("lost", "The worker was lost, or has released the task.")
        if self._run is None:
            self._runs += 1
            start = self._last_at if self._ready_since is None else self._ready_since
            self._run = self._add(Bar("run", f"Run {self._runs}", start, entry.number))
            self._token, self._ready_since = by, None
        self._run.end = entry.at
        if isinstance(attempt := data.get("attempt"), int) and attempt:
            self._run.detail = f"{attempt} attempt{'s' if attempt > 1 else ''} failed before."

    def _end_after(self, entry: Entry, data: Mapping[str, Any]) -> None:
        """End the run and open its successor, if an entry does so."""
        if self._run is not None:
            if entry.kind == "faulted" or (entry.kind == "ended" and _is_error(data)):
                self._end_run("failed", _error_text(data))
            elif entry.kind in ("ended", "cancelled") or (
                entry.kind in ("asked", "parked") and not data.get(HELD)
            ):
                self._end_run("ok")
            elif data.get("released"):
                message = data.get("message")
                self._end_run(
                    "", message if isinstance(message, str) else "The worker has released the task."
                )
                self._ready_since = entry.at
        elif entry.kind in ("answered", "woken") or data.get("retry"):
            self._ready_since = entry.at
        if entry.kind in ("ended", "faulted", "cancelled"):
            self._ready_since = None

    def _end_run(self, state: str, detail: str = "") -> None:
        assert self._run is not None
        self._run.state = state
        self._run.detail = printable(detail, _MAX_DETAIL_CHARACTERS) or self._run.detail
        if self._run.end is None:
            self._run.end = self._last_at
        self._run = self._token = None

    # Steps

    def _read_journal(self, entry: Entry, journal: Mapping[str, Any]) -> None:
        begun = self._last_at if self._run is None else max(self._last_at, self._run.start)
        for key, value in journal.items():
            kind, _, name = str(key).partition(":")
            if kind in ("step", "nested"):
                self._add(Bar("step", name, min(begun, entry.at), entry.number, entry.at, "ok"))
            elif kind == "tried":
                self._read_attempts(entry, name, value)
            elif kind == "sleep" and isinstance(value, int) and entry.kind != "parked":
                # A sleep that is too short to park the task. A longer one is read from the waits.
                self._add(Bar("sleep", name or "sleep", min(begun, value), entry.number, value, "ok"))
            elif kind == "unanswered" and (bar := self._open.pop(name, None)) is not None:
                bar.state, bar.end = "expired", entry.at

    def _read_attempts(self, entry: Entry, name: str, value: Any) -> None:
        """Add a bar for the last failed attempt at a step, which lasts until the next attempt."""
        last = _mapping(value).get("last") if isinstance(value, dict) else value
        attempt = last[-1] if isinstance(last, list) and last else None
        if not (isinstance(attempt, list) and len(attempt) == 3):
            return
        at, text, until = attempt
        if isinstance(at, int) and isinstance(until, int):
            self._add(Bar("retry", name, at, entry.number, max(at, until), "failed", _line(text)))

    # Questions and waits

    def _read_waits(self, entry: Entry, data: Mapping[str, Any]) -> None:
        asked, waits = _mapping(data.get(STORED_QUESTIONS)), _mapping(data.get("waits"))
        if not data.get(HELD):
            over = self._woken_at if self._woken_at is not None else entry.at
            for key in [key for key in self._open if key not in asked and key not in waits]:
                bar = self._open.pop(key)
                bar.state, bar.end = "ok", max(bar.start, over)
        self._woken_at = None
        for key, question in asked.items():
            self._open_bar(entry, key, "question", _message_of(question) or key, "To the caller.")
        for key, wait in waits.items():
            wait = _mapping(wait)
            if key in asked:
                continue
            if wait.get("question") is not None:
                names = ", ".join(map(str, (*_list(wait.get("to")), *_list(wait.get("people")))))
                self._open_bar(entry, key, "question", _message_of(wait["question"]) or key, f"To {names}.")
            elif (event := _list(wait.get("event"))) and len(event) == 2:
                self._open_bar(entry, key, "event", f"{event[0]} {event[1]}", "Waits for an event.")
            else:
                bar = self._open_bar(entry, key, "sleep", key.partition(":")[2] or "sleep", "")
                until = wait.get("until")
                bar.end = until if isinstance(until, int) else None

    def _open_bar(self, entry: Entry, key: str, kind: str, label: str, detail: str) -> Bar:
        bar = self._open.get(key)
        if bar is None:
            bar = self._open[key] = self._add(
                Bar(kind, label, entry.at, entry.number, None, "", _line(detail))
            )
        return bar

    def _read_answers(self, entry: Entry, data: Mapping[str, Any]) -> None:
        who = data.get("answered_by")
        for key, response in _mapping(data.get("responses")).items():
            self._end_question(key, entry.at, response, [who] if isinstance(who, str) else [])
        resolved = _list(data.get("resolved"))
        for key, answer in _mapping(data.get("others")).items():
            person, response = (answer[0], answer[2]) if len(_list(answer)) == 3 else ("", None)
            if key in resolved:
                self._end_question(key, entry.at, response, [str(person)])
            elif (bar := self._open.get(key)) is not None:
                bar.detail = _line(f"{bar.detail} {person} has answered.")

    def _end_question(self, key: str, at: int, response: Any, people: Iterable[str]) -> None:
        bar = self._open.pop(key, None)
        if bar is None:
            return
        action = _mapping(response).get("action")
        bar.state = "declined" if action in ("decline", "cancel") else "ok"
        bar.end = at
        if names := ", ".join(people):
            bar.detail = _line(f"{bar.detail} Answered by {names}.")

    def _add(self, bar: Bar) -> Bar:
        bar.label = printable(bar.label, _MAX_LABEL_CHARACTERS)
        self._bars.append(bar)
        return bar


def _joined(output: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the output with at most `MAX_TICKS` points."""
    size = -(-len(output) // MAX_TICKS)
    if size <= 1:
        return output
    groups = (output[at : at + size] for at in range(0, len(output), size))
    return [(group[0][0], sum(count for _, count in group)) for group in groups]


def _message_of(question: Any) -> str:
    """Return the text of a stored question: its kind, and its fields."""
    fields = question[1] if isinstance(question, list) and len(question) == 2 else None
    message = _mapping(fields).get("message")
    return message if isinstance(message, str) else ""


def _is_error(data: Mapping[str, Any]) -> bool:
    return bool(_mapping(data.get("result")).get("is_error"))


def _error_text(data: Mapping[str, Any]) -> str:
    message = _mapping(data.get("fault")).get("message")
    return message if isinstance(message, str) else "The tool says that it failed."


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()


def _line(text: Any) -> str:
    return printable(str(text), _MAX_DETAIL_CHARACTERS).strip()
