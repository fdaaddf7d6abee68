"""Lays a timeline out for the page: where each bar begins and ends, in percent of the width, and the axis.

Pure. A task may wait for days and work for seconds. If it waited most of the time, the waits are drawn
shorter than the work, so that the steps can be seen.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

from antiphon.console.timeline import Bar, Timeline

__all__ = ["duration_text", "lay_out"]

TICKS = 5
MIN_PERCENT = 0.4
"""The width of the shortest bar."""
TICK_PERCENT = 0.2
"""The width of a point of the output."""
WAITS_PERCENT = 30.0
"""The width of all waits together, if they are shortened."""
_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000))
_KINDS = {
    "run": "Run",
    "step": "Step",
    "question": "Question",
    "sleep": "Sleep",
    "event": "Event",
    "retry": "Failed attempt",
}
_STATES = {
    "open": "open",
    "failed": "failed",
    "lost": "its worker was lost",
    "declined": "declined",
    "expired": "nobody answered in time",
}


def lay_out(timeline: Timeline, now: int) -> dict[str, Any]:
    """Return a timeline as the page draws it. Bars that are open end `now`."""
    end = max(now if timeline.end is None else timeline.end, timeline.start + 1)
    waits = _waits(timeline.bars, timeline.start, end)
    shortens = 2 * sum(to - begin for begin, to in waits) > end - timeline.start
    scale = _Scale(timeline.start, end, waits if shortens else ())
    notes = []
    if shortens:
        notes.append("Waits are drawn shorter than work.")
    if timeline.left_out or timeline.entries_left_out:
        bars, entries = timeline.left_out, timeline.entries_left_out
        notes.append(f"{bars:,} bars and {entries:,} entries in the middle are left out.")
    ticks = [100 * number / TICKS for number in range(TICKS)]
    rows = [_row(bar, scale, end) for bar in timeline.bars]
    if timeline.output:
        rows.append(
            {
                "kind": "output",
                "words": "Segments",
                "label": "Output",
                "start": timeline.output[0][0],
                "length": f"{sum(count for _, count in timeline.output):,}",
                "bars": [[_rounded(scale.percent_at(at)), TICK_PERCENT] for at, _ in timeline.output],
            }
        )
    return {
        "axis": [[tick, duration_text(scale.time_at(tick) - timeline.start)] for tick in ticks],
        "rows": rows,
        "note": " ".join(notes),
    }


def duration_text(milliseconds: float) -> str:
    """Return a duration as text: `340 ms`, `4.2 s`, `3 m 20 s`, `2 d 4 h`."""
    if milliseconds < 1000:
        return f"{max(round(milliseconds), 0)} ms"
    if milliseconds < 10_000:
        return f"{milliseconds / 1000:.1f} s"
    at = next(at for at, (_, size) in enumerate(_UNITS) if milliseconds >= size)
    unit, size = _UNITS[at]
    whole, rest = divmod(int(milliseconds), size)
    smaller = _UNITS[at + 1] if at + 1 < len(_UNITS) else None
    more = f" {rest // smaller[1]} {smaller[0]}" if smaller and rest >= smaller[1] else ""
    return f"{whole} {unit}{more}"


def _row(bar: Bar, scale: _Scale, end: int) -> dict[str, Any]:
    ended = end if bar.end is None else bar.end
    left = scale.percent_at(bar.start)
    width = max(scale.percent_at(ended) - left, MIN_PERCENT)
    return {
        "kind": bar.kind,
        "state": bar.state,
        "words": ", ".join(filter(None, (_KINDS.get(bar.kind, bar.kind), _STATES.get(bar.state, "")))),
        "label": bar.label,
        "detail": bar.detail,
        "start": bar.start,
        "length": duration_text(ended - bar.start),
        "bars": [[_rounded(min(left, 100 - MIN_PERCENT)), _rounded(width)]],
        "entry": bar.entry,
    }


def _rounded(percent: float) -> float:
    return round(percent, 2)


def _waits(bars: Sequence[Bar], start: int, end: int) -> list[tuple[int, int]]:
    """Return the parts of the time in which no run was under way."""
    parts: list[tuple[int, int]] = []
    at = start
    for bar in bars:
        if bar.kind == "run":
            if bar.start > at:
                parts.append((at, bar.start))
            at = max(at, end if bar.end is None else bar.end)
    return [*parts, (at, end)] if at < end else parts


class _Scale:
    """Turns times into percentages and back, by a line through points. Waits take their own share."""

    def __init__(self, start: int, end: int, waits: Sequence[tuple[int, int]]) -> None:
        idle = sum(to - begin for begin, to in waits)
        busy = end - start - idle
        share = 0.0 if not idle else 100.0 if not busy else WAITS_PERCENT
        self._times: list[float] = [start]
        self._percents: list[float] = [0.0]
        for begin, to in waits:
            self._add(begin, 100 - share, busy)
            self._add(to, share, idle)
        self._add(end, 100 - share, busy)

    def percent_at(self, time: float) -> float:
        return _between(self._times, self._percents, time)

    def time_at(self, percent: float) -> float:
        return _between(self._percents, self._times, percent)

    def _add(self, time: float, share: float, whole: int) -> None:
        if time > self._times[-1]:
            self._percents.append(self._percents[-1] + share * (time - self._times[-1]) / whole)
            self._times.append(time)


def _between(xs: Sequence[float], ys: Sequence[float], x: float) -> float:
    """Return the y of an x on the line through the points; that of the nearest end outside of it."""
    at = bisect_left(xs, x)
    if at == 0:
        return ys[0]
    if at == len(xs):
        return ys[-1]
    part = (x - xs[at - 1]) / (xs[at] - xs[at - 1])
    return ys[at - 1] + part * (ys[at] - ys[at - 1])
