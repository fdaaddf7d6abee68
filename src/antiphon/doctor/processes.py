"""Checks what a server process prints and how it ends, and names the checks that do not apply to it."""

from __future__ import annotations

from antiphon.doctor.checks import Check
from antiphon.transport.client.stdio import StdioChannel

__all__ = ["check_process"]


def check_process(process: StdioChannel) -> list[Check]:
    """Check a process that has ended."""
    return [
        _check_output(process),
        _check_ending(process),
        Check("origins", "skipped", "web pages cannot reach a server over stdio"),
        Check("login", "skipped", "a server over stdio has no logins: it gets secrets from its environment"),
    ]


def _check_output(process: StdioChannel) -> Check:
    """Warn about text on standard output, which other clients may take for a broken message."""
    if process.stray_line is None:
        return Check("output", "ok", "only messages on standard output")
    says = f"text on standard output that is not a message: {process.stray_line!r}"
    return Check("output", "advice", says, "Print to standard error: some clients give up at such a line.")


def _check_ending(process: StdioChannel) -> Check:
    """Warn about a process that goes on after its client has closed the connection."""
    if process.ending == "by itself":
        return Check("shutdown", "ok", "ends when its input is closed")
    advice = "End the process at the end of standard input: a client that crashes would leave it behind."
    return Check("shutdown", "advice", f"does not end when its input is closed, but {process.ending}", advice)
