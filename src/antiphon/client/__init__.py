"""The client: everything it takes to call a server, whichever version that speaks."""

from antiphon.client.callbacks import Elicitation, ElicitCallback, RequestHandler, Roots, SampleCallback
from antiphon.client.client import Client
from antiphon.client.streaming.stream import Stream
from antiphon.client.tasks.handle import TaskHandle
from antiphon.model.segment import Segment
from antiphon.model.task_status import TaskStatus

__all__ = [
    "Client",
    "ElicitCallback",
    "Elicitation",
    "RequestHandler",
    "Roots",
    "SampleCallback",
    "Segment",
    "Stream",
    "TaskHandle",
    "TaskStatus",
]
