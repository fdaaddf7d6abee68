"""The running calls of one session or connection, so that a client can cancel them by request id."""

from __future__ import annotations

from antiphon.model.request import RequestId
from antiphon.runtime.execution.supervisor import Supervised
from antiphon.wire.jsonrpc import Frame
from antiphon.wire.server.dialect import read_cancellation

__all__ = ["ActiveCalls"]


class ActiveCalls(dict[RequestId, Supervised]):
    """The running calls, by request id."""

    def handle_notification(self, frame: Frame) -> RequestId | None:
        """Handle a notification of the client. A cancellation stops the call that it names.

        Returns the id of a call that should be cancelled, but does not run in this process.
        """
        cancel = read_cancellation(frame)
        if cancel is None or self.cancel(cancel.request_id):
            return None
        return cancel.request_id

    def remove(self, request_id: RequestId, work: Supervised) -> None:
        """Forget a call that has ended, unless another call uses its id by now."""
        if self.get(request_id) is work:
            del self[request_id]

    def cancel(self, request_id: RequestId) -> bool:
        """Stop a call; return false if it does not run in this process."""
        call = self.get(request_id)
        if call is not None:
            call.stop("cancelled")
        return call is not None
