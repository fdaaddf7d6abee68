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
    progress: float
    total: float | None = None
    message: str | None = None


class Log(msgspec.Struct, frozen=True):
    """A log message about a call."""

    level: LogLevel
    data: Any
    logger: str | None = None


class ListChanged(msgspec.Struct, frozen=True):
    """The list of `tools`, `resources` or `prompts` has changed."""

    kind: str
    """Which list: `"tools"`, `"resources"` or `"prompts"`."""


class ResourceUpdated(msgspec.Struct, frozen=True):
    """A resource has changed."""

    uri: str


Change: TypeAlias = ListChanged | ResourceUpdated


class Acknowledged(msgspec.Struct, frozen=True):
    """The server has accepted a subscription, for the changes in `interests`."""

    interests: SubscriptionFilter


Notification: TypeAlias = Progress | Log | Change | Acknowledged
