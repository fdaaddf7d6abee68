"""Notifications that a server sends: about a running call, or about a change of its lists and resources."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from antiphon.model.identity import LogLevel
from antiphon.model.request import RequestId, SubscriptionFilter

__all__ = [
    "Acknowledged",
    "Change",
    "ListChanged",
    "Log",
    "Notification",
    "Progress",
    "ResourceUpdated",
]


class Progress(msgspec.Struct, frozen=True):
    """The progress of a call."""

    token: RequestId
    """The progress token of the call."""
    progress: float
    """How much is done. It rises with every notification."""
    total: float | None = None
    """The value of `progress` at the end, if it is known."""
    message: str | None = None
    """A description of the progress, for people."""


class Log(msgspec.Struct, frozen=True):
    """A log message about a call."""

    level: LogLevel
    """The level, from `"debug"` to `"emergency"`."""
    data: Any
    """The message: a text, or any JSON value."""
    logger: str | None = None
    """The name of the logger."""


class ListChanged(msgspec.Struct, frozen=True):
    """The list of `tools`, `resources` or `prompts` has changed."""

    kind: str
    """Which list: `"tools"`, `"resources"` or `"prompts"`."""
    assumed: bool = False
    """Whether a client assumes the change: it was disconnected, and may have missed a notification."""


class ResourceUpdated(msgspec.Struct, frozen=True):
    """A resource has changed."""

    uri: str
    assumed: bool = False
    """Whether a client assumes the change: it was disconnected, and may have missed a notification."""


Change: TypeAlias = ListChanged | ResourceUpdated


class Acknowledged(msgspec.Struct, frozen=True):
    """The server has accepted a subscription, for the changes in `interests`."""

    interests: SubscriptionFilter


Notification: TypeAlias = Progress | Log | Change | Acknowledged
