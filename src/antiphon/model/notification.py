"""What a server says without being asked: about a call in flight, or about a change of what it offers."""

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
    """How far a call has come."""

    token: RequestId
    progress: float
    total: float | None = None
    message: str | None = None


class Log(msgspec.Struct, frozen=True):
    """A log message about a call."""

    level: LogLevel
    data: Any
    logger: str | None = None


class ListChanged(msgspec.Struct, frozen=True):
    """The list of `tools`, `resources` or `prompts` is no longer what it was."""

    kind: str


class ResourceUpdated(msgspec.Struct, frozen=True):
    """A resource no longer holds what it did."""

    uri: str


Change: TypeAlias = ListChanged | ResourceUpdated


class Acknowledged(msgspec.Struct, frozen=True):
    """A subscription is in force, for these interests."""

    interests: SubscriptionFilter


Notification: TypeAlias = Progress | Log | Change | Acknowledged
