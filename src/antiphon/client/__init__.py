"""Calls a server of any protocol version: tools, resources, prompts, tasks and streams.

This package negotiates the version, answers the server's questions through callbacks, and reconnects. It
must not know the keys of the wire, which the dialects do, nor how bytes travel, which the channels do.
"""

from antiphon.client.callbacks import Elicitation, ElicitCallback, RequestHandler, Roots, SampleCallback
from antiphon.client.client import Client
from antiphon.client.inbox.changes import InboxChanges
from antiphon.client.inbox.items import InboxChange, InboxItem
from antiphon.client.streaming.stream import Stream
from antiphon.client.tasks.handle import TaskHandle
from antiphon.model.segment import Segment
from antiphon.model.task_status import TaskStatus

__all__ = [
    "Client",
    "ElicitCallback",
    "Elicitation",
    "InboxChange",
    "InboxChanges",
    "InboxItem",
    "RequestHandler",
    "Roots",
    "SampleCallback",
    "Segment",
    "Stream",
    "TaskHandle",
    "TaskStatus",
]
