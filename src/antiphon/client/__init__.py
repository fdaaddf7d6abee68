"""The client: calls a server, whichever protocol version the server speaks.

Knows no key of the wire and no transport by name; the dialects in `wire/client` and the channels in
`transport/client` do.
"""

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
