"""`DRAFT-001-messages`, as a client speaks it: `tasks/result` is answered by the message that asks."""

from __future__ import annotations

from antiphon.wire.client.draft_000_messages import ClientDraft000Messages

__all__ = ["ClientDraft001Messages"]


class ClientDraft001Messages(ClientDraft000Messages):
    """The first option of the draft, which names the task in the result of the response that answers it."""

    meta_is_within = True
