"""The client: everything it takes to call a server, whichever version that speaks."""

from antiphon.client.client import Client
from antiphon.client.handle import TaskHandle
from antiphon.client.handlers import Elicit, Elicitation, Handler, Roots, Sampler
from antiphon.client.streaming import Stream
from antiphon.model.segment import Segment
from antiphon.model.status import TaskStatus

__all__ = [
    "Client",
    "Elicit",
    "Elicitation",
    "Handler",
    "Roots",
    "Sampler",
    "Segment",
    "Stream",
    "TaskHandle",
    "TaskStatus",
]
