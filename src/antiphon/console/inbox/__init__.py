"""The inbox of the console: the open questions of tasks that a person can answer."""

from __future__ import annotations

from antiphon.console.inbox.api import InboxApi

__all__ = ["InboxApi"]
