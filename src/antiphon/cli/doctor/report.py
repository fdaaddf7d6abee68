"""What `antiphon doctor` prints: a line for each thing that it looked at, or JSON for programs."""

from __future__ import annotations

import sys
from typing import Any

import msgspec

from antiphon.cli import render
from antiphon.cli.doctor.checks import Check, Report, State
from antiphon.cli.targets import Target

__all__ = ["as_json", "report", "unreachable"]

_WORDS: dict[State, tuple[str, str]] = {
    "ok": ("ok", "green"),
    "absent": ("none", "dim"),
    "advice": ("look", "yellow"),
    "failed": ("FAILED", "bold red"),
}


def as_json(report: Report) -> None:
    """Print everything."""
    checks = [_plain(check) for check in report.checks]
    print(render.pretty({"ok": report.ok, **msgspec.structs.asdict(report), "checks": checks}))


def unreachable(target: Target, message: str) -> None:
    """Print, as JSON, that there is nothing to look at."""
    place = target.place if isinstance(target.place, str) else target.place[4]
    print(render.pretty({"ok": False, "target": place, "error": message, "checks": []}))


def report(report: Report) -> None:
    """Print a line for each check, and what is to be done under it."""
    name = " ".join(filter(None, (report.server.get("name"), report.server.get("version"))))
    _print(
        [(f"{name or 'A server without a name'} at {report.target}, spoken to in {report.version}", "bold")]
    )
    for check in report.checks:
        word, style = _WORDS[check.state]
        _print([(f"{word:<7}", style), (f"{check.name:<11}{check.says}", "")])
        if check.advice:
            _print([(f"{'':<18}{check.advice}", "dim")])
    _print([(_verdict(report), "bold")])


def _verdict(report: Report) -> str:
    failed = sum(check.state == "failed" for check in report.checks)
    looks = sum(check.state == "advice" for check in report.checks)
    if failed:
        return f"{failed} of {len(report.checks)} checks failed."
    return (
        f"It works, and {looks} {'thing is' if looks == 1 else 'things are'} worth a look."
        if looks
        else "It works."
    )


def _print(parts: list[tuple[str, str]]) -> None:
    """A line, with styles on a terminal that takes them."""
    cleaned = [(render.clean(text).replace("\n", " "), style) for text, style in parts]
    if not sys.stdout.isatty():
        print("".join(text for text, _ in cleaned))
        return
    from rich.console import Console
    from rich.text import Text

    Console().print(Text.assemble(*cleaned), soft_wrap=True)


def _plain(check: Check) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(check)
    if check.name == "tools":
        found["data"] = [tool.name for tool in check.data]
    return found
