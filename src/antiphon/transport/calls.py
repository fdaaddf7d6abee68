"""The calls under way on one session or connection, by their ids, so that a client can cancel them."""

from __future__ import annotations

import msgspec

from antiphon.model.request import Cancel, RequestId
from antiphon.runtime.warden import Watched
from antiphon.wire.jsonrpc import Frame

__all__ = ["Calls"]


class Calls(dict[RequestId, Watched]):
    """What is under way, by id."""

    def told(self, frame: Frame) -> None:
        """Take a notification; only that a call is to be cancelled means anything."""
        if frame.method != "notifications/cancelled":
            return
        try:
            cancel = msgspec.convert(frame.params, Cancel)
        except msgspec.ValidationError:
            return
        watched = self.get(cancel.request_id)
        if watched is not None:
            watched.stop("cancelled")
