"""The root of the errors, and the errors of definitions, replays and sealed texts."""

from __future__ import annotations

from typing import Any

__all__ = ["AntiphonError", "DefinitionError", "ReplayMismatch", "SealError", "clean_message"]


class AntiphonError(Exception):
    """The base class of all errors of this library."""


def clean_message(message: Any) -> str:
    """Return a message without lone surrogates, which names of files may have: JSON has none."""
    text = message if isinstance(message, str) else str(message)
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


class DefinitionError(AntiphonError, TypeError):
    """A tool, a prompt, a resource or a setting is not valid as written. The message says what to change."""


class ReplayMismatch(AntiphonError):
    """A function runs again and does something else than the journal of its earlier run recorded.

    Its code has changed in an incompatible way, or it does not take the same path in every run. A call gets
    an error; a task is released for a worker that has the right version.
    """

    def __init__(self, message: str, *, found: str, recorded: str) -> None:
        super().__init__(message)
        self.found = found
        """The key of the step or question that this version has reached."""
        self.recorded = recorded
        """The key of the step or question in the journal."""


class SealError(AntiphonError):
    """A request state or a session id was altered, has expired, or was encrypted with another secret."""
