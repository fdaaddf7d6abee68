"""`antiphon doctor`: checks a server, prints the report, and returns the exit code."""

from __future__ import annotations

from antiphon.cli.doctor.report import print_json, print_report, print_unreachable_json
from antiphon.cli.exit_codes import FAILED, CommandError
from antiphon.cli.targets import Target, run_async
from antiphon.doctor.checks import examine

__all__ = ["run_doctor"]


def run_doctor(target: Target, *, as_json: bool) -> int:
    """Check a server and print the report. Return the exit code. Raises `CommandError`."""
    try:
        report = run_async(examine(target), target)
    except CommandError as error:
        if as_json:
            print_unreachable_json(target, error.message)
        raise
    if as_json:
        print_json(report)
    else:
        print_report(report)
    return 0 if report.ok else FAILED
