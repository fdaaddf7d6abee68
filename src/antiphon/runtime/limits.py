"""The bounds of a server: every buffer and every wait, with a default that is sane for one process."""

from __future__ import annotations

from dataclasses import dataclass, fields

from antiphon.errors import DefinitionError

__all__ = ["Limits"]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a server takes upon itself at once, and for how long. Times are in seconds, sizes in bytes."""

    body: int = 4 * 1024 * 1024
    """The largest request."""
    body_time: float = 30.0
    """How long a request may take to arrive."""
    calls: int = 1000
    """Calls under way at once; one more is refused with 503 and `Retry-After`."""
    call_time: float = 300.0
    """How long a call may take, unless its tool says otherwise."""
    threads: int = 40
    """Functions that are not `async` running at once."""
    streams: int = 1000
    """Listeners connected at once."""
    keep_alive: float = 15.0
    """How long a connection may be silent before a comment is sent on it."""
    drain: float = 30.0
    """How long a shutdown waits for calls to end."""
    sessions: int = 10_000
    """Sessions whose log level, subscriptions and streams are kept in mind."""
    session_time: float = 24 * 3600.0
    """How long a session id is good for."""
    answer: int = 64 * 1024 * 1024
    """What a tool may emit in one answer that is no task."""
    state: int = 64 * 1024
    """What a caller may be given to carry between two rounds of a call."""
    state_time: float = 24 * 3600.0
    """How long it may take to come back with it."""
    tasks: int = 100
    """Tasks that one process runs at once."""
    queued: int = 100_000
    """Tasks that may wait for a worker; one more is refused with 503 and `Retry-After`."""
    lease: float = 15.0
    """How long a worker may be silent before its tasks are another's."""
    artifact: int = 64 * 1024 * 1024
    """The largest artifact."""
    artifacts: int = 256 * 1024 * 1024
    """All artifacts that are kept; whoever has most then loses its oldest."""
    artifact_time: float = 24 * 3600.0
    """How long an artifact is kept, unless it says otherwise."""
    artifact_page: int = 1024 * 1024
    """How much of an artifact is read at once."""
    replay_events: int = 1000
    """Events of one stream that are kept for a caller whose connection broke."""
    replay_bytes: int = 1024 * 1024
    """The same, in bytes."""
    replay_streams: int = 16
    """Streams of one session that are kept for that."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, int | float) or value < 0:
                raise DefinitionError(f"Limits({field.name}={value!r}): a limit is a number from 0 up.")
