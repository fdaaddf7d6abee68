"""The bounds of a server: every buffer and every wait, with a default that is sane for one process."""

from __future__ import annotations

from dataclasses import dataclass, fields

from antiphon.errors import DefinitionError

__all__ = ["Limits"]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a server takes upon itself at once, and for how long. Times are in seconds, sizes in bytes."""

    max_body_bytes: int = 4 * 1024 * 1024
    """The largest request."""
    body_timeout: float = 30.0
    """How long a request may take to arrive."""
    max_calls: int = 1000
    """Calls under way at once; one more is refused with 503 and `Retry-After`."""
    call_timeout: float = 300.0
    """How long a call may take, unless its tool says otherwise."""
    max_threads: int = 40
    """Functions that are not `async` running at once."""
    max_listeners: int = 1000
    """Listeners connected at once."""
    keep_alive_interval: float = 15.0
    """How long a connection may be silent before a comment is sent on it."""
    drain_timeout: float = 30.0
    """How long a shutdown waits for calls to end."""
    max_sessions: int = 10_000
    """Sessions whose log level, subscriptions and streams are kept in mind."""
    session_lifetime: float = 24 * 3600.0
    """How long a session id is good for."""
    max_answer_bytes: int = 64 * 1024 * 1024
    """What a tool may emit in one answer that is no task."""
    max_state_bytes: int = 64 * 1024
    """What a caller may be given to carry between two rounds of a call."""
    state_lifetime: float = 24 * 3600.0
    """How long it may take to come back with it."""
    max_running_tasks: int = 100
    """Tasks that one process runs at once."""
    max_queued_tasks: int = 100_000
    """Tasks that may wait for a worker; one more is refused with 503 and `Retry-After`."""
    lease_seconds: float = 15.0
    """How long a worker may be silent before its tasks are another's."""
    max_artifact_bytes: int = 64 * 1024 * 1024
    """The largest artifact."""
    max_stored_artifact_bytes: int = 256 * 1024 * 1024
    """All artifacts that are kept; whoever has most then loses its oldest."""
    artifact_lifetime: float = 24 * 3600.0
    """How long an artifact is kept, unless it says otherwise."""
    artifact_page_bytes: int = 1024 * 1024
    """How much of an artifact is read at once."""
    max_replay_events: int = 1000
    """Events of one stream that are kept for a caller whose connection broke."""
    max_replay_bytes: int = 1024 * 1024
    """The same, in bytes."""
    max_replay_streams: int = 16
    """Streams of one session that are kept for that."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, int | float) or value < 0:
                raise DefinitionError(f"Limits({field.name}={value!r}): a limit is a number from 0 up.")
