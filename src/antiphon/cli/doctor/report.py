"""Prints the report of `antiphon doctor`: one line for each check, or JSON."""

from __future__ import annotations

import sys
from typing import Any

import msgspec

from antiphon.cli import render
from antiphon.cli.targets import Target
from antiphon.doctor.checks import Check, Report, State
from antiphon.printable import printable

__all__ = ["print_json", "print_report", "print_unreachable_json"]

_LABELS: dict[State, tuple[str, str]] = {
    "ok": ("ok", "green"),
    "absent": ("none", "dim"),
    "advice": ("warn", "yellow"),
    "failed": ("FAILED", "bold red"),
    "skipped": ("skip", "dim"),
}


def print_json(report: Report) -> None:
    """Print the report as JSON."""
    checks = [_check_as_json(check) for check in report.checks]
    print(render.pretty({"ok": report.ok, **msgspec.structs.asdict(report), "checks": checks}))


def print_unreachable_json(target: Target, message: str) -> None:
    """Print, as JSON, that the server cannot be checked."""
    print(render.pretty({"ok": False, "target": target.name, "error": message, "checks": []}))


def print_report(report: Report) -> None:
    """Print one line for each check, with its advice on the next line."""
    name = " ".join(filter(None, (report.server.get("name"), report.server.get("version"))))
    version = f", protocol version {report.version}" if report.version else ""
    header = f"{name or 'A server without a name'} at {report.target}{version}"
    _print_line([(header, "bold")])
    for check in report.checks:
        label, style = _LABELS[check.state]
        _print_line([(f"{label:<7}", style), (f"{check.name:<11}{check.says}", "")])
        if check.advice:
            _print_line([(f"{'':<18}{check.advice}", "dim")])
    _print_line([(_summary(report), "bold")])


def _summary(report: Report) -> str:
    failed = sum(check.state == "failed" for check in report.checks)
    warnings = sum(check.state == "advice" for check in report.checks)
    if failed:
        return f"{failed} of {len(report.checks)} checks failed."
    if warnings:
        return f"The server works, with {warnings} warning{'' if warnings == 1 else 's'}."
    return "The server works."


def _print_line(parts: list[tuple[str, str]]) -> None:
    """Print a line, with styles if the output is a terminal."""
    cleaned = [(printable(text), style) for text, style in parts]
    if not sys.stdout.isatty():
        print("".join(text for text, _ in cleaned))
        return
    from rich.console import Console
    from rich.text import Text

    Console().print(Text.assemble(*cleaned), soft_wrap=True)


def _check_as_json(check: Check) -> dict[str, Any]:
    value: dict[str, Any] = msgspec.to_builtins(check)
    if check.name == "tools":
        value["data"] = [tool.name for tool in check.data]
    return value
