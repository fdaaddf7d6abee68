"""`DRAFT-001-messages`, as a server speaks it: `tasks/result` is answered by the message that asks.

The draft prints a task's questions and answers. It prints no answer to a question of a call, which is as in
`DRAFT-000-messages`.
"""

from __future__ import annotations

from antiphon.wire.server.draft_000_messages import Draft000Messages

__all__ = ["Draft001Messages"]


class Draft001Messages(Draft000Messages):
    """The first option of the draft, which names the task in the result of the response that answers it."""
