"""The calls under way on one session or connection, by their ids, so that a client can cancel them."""

from __future__ import annotations

from antiphon.model.request import RequestId
from antiphon.runtime.execution.supervisor import Supervised
from antiphon.wire.jsonrpc import Frame
from antiphon.wire.server.dialect import read_cancellation

__all__ = ["ActiveCalls"]


class ActiveCalls(dict[RequestId, Supervised]):
    """The calls under way, by request id."""

    def notified(self, frame: Frame) -> RequestId | None:
        """Take a notification; cancel the call that it names, if it is a cancellation.

        Returns the id of a call that is to be cancelled and is not under way here.
        """
        cancel = read_cancellation(frame)
        if cancel is None or self.cancel(cancel.request_id):
            return None
        return cancel.request_id

    def cancel(self, request_id: RequestId) -> bool:
        """Stop a call; return false if it is not under way here."""
        watched = self.get(request_id)
        if watched is not None:
            watched.stop("cancelled")
        return watched is not None
