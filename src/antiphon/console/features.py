"""The parts of the console: which there are, and in which order their routes are tried."""

from __future__ import annotations

from collections.abc import Sequence

from antiphon.console.apps.api import AppsApi
from antiphon.console.inbox import InboxApi
from antiphon.console.live import Live
from antiphon.console.routes import Feature
from antiphon.console.sources import Sources
from antiphon.console.task_view import TaskApi
from antiphon.console.tasks import TasksApi
from antiphon.console.workbench.api import WorkbenchApi
from antiphon.console.workers import WorkersApi

__all__ = ["create_features"]

_FEATURES = (InboxApi, TasksApi, TaskApi, WorkersApi, WorkbenchApi, AppsApi)


def create_features(sources: Sources, live: Live) -> Sequence[Feature]:
    """Return the parts of a console."""
    return [feature(sources, live) for feature in _FEATURES]
