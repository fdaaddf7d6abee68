"""The limits of a server: the bounds of its buffers and its waits, with defaults for one process.

Owns the names, the units and the defaults. The modules that enforce a limit read it from here.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from antiphon.errors import DefinitionError

__all__ = ["Limits"]

_POSITIVE = (
    "lease_seconds",
    "max_running_tasks_per_principal",
    "max_threads",
    "max_head_bytes",
    "max_headers",
    "head_timeout",
    "max_connections",
    "max_connections_per_address",
)
"""The limits with which a server could do nothing if they were 0."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a server. Times are in seconds, sizes in bytes. Each limit applies to one process."""

    max_body_bytes: int = 4 * 1024 * 1024
    """The size of the largest request body."""
    body_timeout: float = 30.0
    """How long a client may take to send a request body, and may read nothing of its answer."""
    max_head_bytes: int = 64 * 1024
    """The size of the largest head of a request: the request line and all headers."""
    max_headers: int = 100
    """How many headers a request may have."""
    head_timeout: float = 10.0
    """How long a client may take to send the head of a request, from the connection or the first byte on."""
    max_connections: int = 4096
    """How many HTTP connections are open at once. Further ones are refused with 503 and `Retry-After`."""
    max_connections_per_address: int = 3072
    """How many of these connections one address may have. A load balancer is one address."""
    max_calls: int = 1000
    """How many calls run at once. Further calls are refused with 503 and `Retry-After`."""
    call_timeout: float = 300.0
    """How long a call may take, unless its tool has a `timeout`."""
    principal_share: float = 0.5
    """The part of a limit that one caller may use at once; 1.0 for all of it.

    A caller is an authenticated principal, or a network address on a server without authentication. Applies
    to everything that callers can fill: calls, listeners, sessions, threads, held runs, tasks and memory.
    """
    max_memory_bytes: int = 256 * 1024 * 1024
    """How much memory callers may make the process use: for sessions, subscriptions, replayed events, bodies
    and responses. Further requests are refused with 503 and `Retry-After`."""
    max_threads: int = 40
    """How many functions that are not `async` run at once. Those with `replay=False` have own threads."""
    max_listeners: int = 1000
    """How many clients may listen for changes at once."""
    keep_alive_interval: float = 15.0
    """How long a stream may be silent before the server sends a comment to keep the connection open."""
    drain_timeout: float = 30.0
    """How long a shutdown waits for calls and tasks that still run, both together."""
    shutdown_delay: float = 0.0
    """How long a server that gets SIGTERM still accepts requests, while `/readyz` returns 503."""
    max_sessions: int = 10_000
    """How many sessions a process holds, with their log level, subscriptions and streams."""
    session_lifetime: float = 24 * 3600.0
    """How long a session id is valid."""
    max_capabilities_bytes: int = 16 * 1024
    """The size of the capabilities and the description of a client, when it opens a session."""
    max_subscriptions: int = 1000
    """How many resources a session or a listener may subscribe to, and how many tasks a listener may name."""
    max_uri_bytes: int = 2048
    """The length of the longest URI to which a client may subscribe."""
    max_answer_bytes: int = 64 * 1024 * 1024
    """How much a tool may emit in a call that is not a task."""
    max_state_bytes: int = 64 * 1024
    """The size of the largest `requestState` that a caller gets with a question."""
    state_lifetime: float = 24 * 3600.0
    """How long a caller may take to come back with the `requestState` and its answers."""
    max_held_runs: int = 1000
    """How many calls of functions with `replay=False` wait for an answer. Beyond it, the one that has waited
    longest fails."""
    max_running_tasks: int = 100
    """How many tasks a process runs at once."""
    max_running_tasks_per_principal: int | None = None
    """How many tasks of one authenticated principal a process runs at once; `None` for no such limit. It does
    not apply to a call that becomes a task while its function runs."""
    max_queued_tasks: int = 100_000
    """How many tasks may wait for a worker. Further tasks are refused with 503 and `Retry-After`."""
    max_queued_tasks_per_principal: int | None = None
    """How many of these tasks one authenticated principal may have; `None` for its `principal_share`."""
    max_waiting_tasks: int = 100_000
    """How many tasks may wait for an answer, a time or an event. Further tasks are refused with 503 and
    `Retry-After`."""
    max_task_bytes: int = 64 * 1024 * 1024
    """How much a task may emit in all. A task that emits more fails."""
    max_event_bytes: int = 1024 * 1024
    """The size of an event that tasks may wait for, with its name, key and id."""
    lease_seconds: float = 15.0
    """How long a worker may go without renewing its leases before other workers take over its tasks."""
    unwind_timeout: float = 60.0
    """How long the function of a cancelled or expired task may clean up before it is cancelled once more."""
    max_artifact_bytes: int = 64 * 1024 * 1024
    """The size of the largest artifact."""
    max_stored_artifact_bytes: int = 256 * 1024 * 1024
    """The total size of all artifacts. Beyond it, the caller that uses most space loses its oldest ones."""
    artifact_lifetime: float = 24 * 3600.0
    """How long an artifact is kept, unless it has a `ttl`."""
    artifact_page_bytes: int = 1024 * 1024
    """How much of an artifact one request may read."""
    max_replay_events: int = 1000
    """How many events of a stream are kept for a caller that reconnects."""
    max_replay_bytes: int = 1024 * 1024
    """The total size of the events of a stream that are kept for a caller that reconnects."""
    max_replay_streams: int = 16
    """How many streams of a session are kept for a caller that reconnects."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None and field.default is None:
                continue
            if not isinstance(value, int | float) or not value >= 0:  # also refuses NaN
                raise DefinitionError(f"Limits({field.name}={value!r}): a limit is a number of at least 0.")
        for name in _POSITIVE:
            if getattr(self, name) == 0:
                raise DefinitionError(f"Limits({name}=0): this limit must be greater than 0.")
        if not 0 < self.principal_share <= 1:
            raise DefinitionError(
                f"Limits(principal_share={self.principal_share!r}): a share is greater than 0, and at most 1."
            )
