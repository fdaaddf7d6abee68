"""The calls under way on a session or connection, by request id."""

from __future__ import annotations

from antiphon.runtime.execution.supervisor import Supervised
from antiphon.transport.server.active_calls import ActiveCalls


def test_a_call_that_ends_leaves_another_with_its_id_alone() -> None:
    calls, first, second = ActiveCalls(), Supervised(), Supervised()
    calls[0] = first
    calls[0] = second
    calls.remove(0, first)
    assert calls[0] is second
    calls.remove(0, second)
    assert not calls
