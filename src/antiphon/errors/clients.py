"""Errors that only clients raise."""

from __future__ import annotations

from antiphon.errors.base import AntiphonError
from antiphon.printable import printable

__all__ = [
    "AuthorizationFailed",
    "BadAnswer",
    "ClientError",
    "ProcessEnded",
    "TaskCancelled",
    "TaskLost",
    "TimedOut",
    "Unreachable",
]


class ClientError(AntiphonError):
    """A call that the client could not complete, for a reason other than an error of the server.

    The message is one printable line, even if it quotes the server.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(printable(message))


class Unreachable(ClientError):
    """The client cannot connect to the server, or lost the connection before the response."""

    was_closed = False
    """Whether the server closed the connection, without an answer and of its own accord."""


class ProcessEnded(Unreachable):
    """The process of the server has exited."""

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        """The exit code, or `None` if it is unknown."""
        self.was_closed = code == 0


class TimedOut(ClientError, TimeoutError):
    """The deadline passed before the response."""


class AuthorizationFailed(ClientError):
    """The client could not get an access token: a person has to log in, or the login or the issuer failed."""


class TaskCancelled(ClientError):
    """The task was cancelled, and has no result."""


class TaskLost(ClientError):
    """The server does not know the task: it has expired, belongs to another caller, or never existed.

    A server without a store keeps its tasks in memory, and does not know them after a restart.
    """


class BadAnswer(ClientError):
    """The server sent something that is not valid MCP."""

    def __init__(self, message: str = "", *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        """The HTTP status, if that is what was bad."""
