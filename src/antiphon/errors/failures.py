"""Errors of tools: a tool ran and failed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from antiphon.errors.base import AntiphonError, clean_message

__all__ = ["CommandFailed", "Declined", "Failure", "RetriesExhausted", "Unanswered", "UnknownArtifact"]


class Failure(AntiphonError):
    """A failed tool call. Raise it in a tool to fail the call; a client raises it for a call that failed.

    In a prompt or a resource, the request gets a JSON-RPC error with the message.
    """

    def __init__(
        self,
        message: str,
        *,
        details: Mapping[str, Any] | None = None,
        partial: Any = None,
        data: Any = None,
        content: tuple[Any, ...] = (),
    ) -> None:
        message = clean_message(message)
        super().__init__(message)
        self.message = message
        """The text that people and models read."""
        self.details: Mapping[str, Any] | None = details
        """Further fields of the structured content, for programs."""
        self.partial: Any = partial
        """The part of the result that the tool has in spite of the failure."""
        if partial is None and isinstance(data, Mapping):
            self.partial = data.get("partial_results")
        self.data = data
        """The whole structured content. A tool passes it in place of `details`."""
        self.content = content
        """The content blocks of the result, if there are more than the message."""


class CommandFailed(Failure):
    """A program that a tool ran failed. The caller gets its exit code and its error output."""

    def __init__(self, exit_code: int, stderr: str, *, partial: Any = None) -> None:
        fence = "`" * (1 + max([2, *map(len, re.findall("`+", stderr))]))
        super().__init__(
            f"Command failed (exit code {exit_code}):\n\n{fence}\n{stderr}\n{fence}",
            partial=partial,
            data={"status": "error", "exit_code": exit_code, "stderr": stderr},
        )
        self.exit_code = exit_code
        """The exit code of the program."""
        self.stderr = stderr
        """The error output of the program."""


class UnknownArtifact(Failure):
    """The caller has no artifact with this id: it has expired, is another caller's, or never existed."""


class Declined(Failure):
    """A person declined to answer a question. Unless the tool catches it, the call fails."""

    def __init__(self, message: str, *, action: str) -> None:
        super().__init__(message)
        self.action = action
        """`"decline"` if the person said no, `"cancel"` if they closed the dialog."""


class Unanswered(Failure):
    """Nobody answered a question, or no event came, within the time that the tool allowed.

    Unless the tool catches it, the call fails.
    """


class RetriesExhausted(Failure):
    """A step failed as often as its `Retry` allows. Unless the tool catches it, the call fails."""

    def __init__(self, message: str, *, attempts: int) -> None:
        super().__init__(message)
        self.attempts = attempts
        """How often the step was tried."""
