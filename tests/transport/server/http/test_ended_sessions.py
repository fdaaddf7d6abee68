"""What is recorded of ended sessions: bounded, shared by callers, and nobody's concern but theirs."""

from __future__ import annotations

import pytest

from antiphon.transport.server.http.ended_sessions import EndedSessions

HOUR = 3_600_000


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1_000_000.0]
    monkeypatch.setattr("antiphon.wall_clock.now", lambda: now[0])
    return now


def after(clock: list[float], milliseconds: int) -> int:
    """Return when a session expires that is valid for so long."""
    return int(clock[0] * 1000) + milliseconds


def test_however_many_callers_end_a_session_no_other_session_of_anybody_counts_as_ended(
    clock: list[float],
) -> None:
    ended = EndedSessions(20, 0.5)
    expires = after(clock, HOUR)
    for number in range(100):
        ended.add(f"session of {number}", expires + number, f"2001:db8:{number:x}::/64")
    assert len(ended) == 20
    assert ended.contains("session of 99", expires + 99, "2001:db8:63::/64")
    assert not ended.contains("of another caller", expires, "192.0.2.1")
    assert not ended.contains("a further one", expires + 100, "2001:db8:63::/64")


def test_what_has_expired_takes_the_room_of_nobody(clock: list[float]) -> None:
    ended = EndedSessions(20, 0.5)
    for number in range(19):
        ended.add(f"short {number}", after(clock, HOUR), f"192.0.2.{number}")
    clock[0] += 7200
    early, late = after(clock, HOUR), after(clock, 2 * HOUR)
    for number in range(5):
        ended.add(f"live {number}", late + number, "198.51.100.1")
    assert len(ended) == 5
    assert not ended.contains("open since long", early, "198.51.100.1")
    assert not ended.contains("open since then", late, "198.51.100.1")


def test_a_caller_that_ends_more_than_it_may_record_pays_with_its_own_sessions(clock: list[float]) -> None:
    ended = EndedSessions(20, 0.5)
    expires = after(clock, HOUR)
    for number in range(1000):
        ended.add(f"session {number}", expires + number, "192.0.2.1")
    assert len(ended) == 10
    assert all(ended.contains(f"session {number}", expires + number, "192.0.2.1") for number in range(1000))
    assert not ended.contains("of another caller", expires, "192.0.2.2")


def test_callers_that_come_and_go_leave_nothing(clock: list[float]) -> None:
    ended = EndedSessions(10, 0.5)
    for number in range(20_000):
        ended.add(f"session {number}", after(clock, HOUR), f"caller {number}")
    assert len(ended.expiring) < 3000
    clock[0] += 7200
    ended.add("last", after(clock, HOUR), "last")
    assert (len(ended), len(ended.records), len(ended.expiring)) == (1, 1, 1)
