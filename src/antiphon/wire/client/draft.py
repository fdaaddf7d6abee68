"""The draft, as a client speaks it: 2025-11-25 with SEP-2322 and SEP-1905.

Questions come as the result of a call, or of the request for a task's result. The client opens a session, in
which it declares which questions it answers, and goes on with bare requests if the server opens none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from antiphon.model.capabilities import ServerCapabilities
from antiphon.wire.client.v2025_11_25 import ClientV2025
from antiphon.wire.server.draft import Draft
from antiphon.wire.server.inbox import INBOX

__all__ = ["ClientDraft"]


class ClientDraft(ClientV2025):
    """The draft, in which every result names its type."""

    methods = {kind: method for method, kind in Draft.methods.items()}
    closing_cancels = True
    resumes_streams = False
    asks_in_task_result = True

    def read_capabilities(self, fields: Mapping[str, Any]) -> ServerCapabilities:
        """Return the capabilities of the server; the inbox is an extension."""
        extensions = fields.get("extensions")
        has_inbox = isinstance(extensions, Mapping) and INBOX in extensions
        return msgspec.structs.replace(super().read_capabilities(fields), inbox=has_inbox)
