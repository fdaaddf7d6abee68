"""The tables that callers can fill: what bounds each of them, and what one caller gets of it.

Owns the list, which the threat model prints and the tests fill. The modules that keep a table enforce its
bounds. A new table that a caller can fill gets a row here.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["TABLES", "Table"]


@dataclass(frozen=True, slots=True)
class Table:
    """A table, queue or cache that grows with what callers send."""

    name: str
    """What it holds."""
    number: str
    """The setting or the constant that bounds how many it holds."""
    size: str
    """What bounds its bytes."""
    share: str
    """The part that one caller may have, or the reason why it needs none."""
    beyond: str
    """What happens to what exceeds the bound or the share."""

    @property
    def is_shared(self) -> bool:
        """Whether one caller may have a part of it only."""
        return not self.share.startswith("none")


_SHARE = "`principal_share`"
_REFUSED = "refused with 503"
_BUDGET = "`max_memory_bytes`"
_STORED = "`max_stored_task_bytes`"
_CACHE = "none: a cache, whose loss costs some work"

TABLES = (
    Table(
        "connections",
        "`max_connections`",
        "`max_head_bytes` each",
        "`max_connections_per_address`",
        f"{_REFUSED}; on a full server idle ones are closed",
    ),
    Table("running calls", "`max_calls`", _BUDGET, _SHARE, _REFUSED),
    Table("bodies and answers of more than 8 KiB", "`max_calls`", _BUDGET, _SHARE, _REFUSED),
    Table("requests to an author's pages", "`max_calls`", "`max_body_bytes` each", _SHARE, _REFUSED),
    Table(
        "threads",
        "`max_threads`",
        "–",
        _SHARE,
        "waits: a thread that comes free goes to the caller that has fewest",
    ),
    Table(
        "threads of functions with `replay=False`, which are their own",
        "`max_calls`, `max_held_runs` and `max_running_tasks`",
        "–",
        "`principal_share`: one of each running call and each held run",
        _REFUSED,
    ),
    Table("streams of changes", "`max_listeners`", _BUDGET, _SHARE, _REFUSED),
    Table(
        "subscriptions",
        "`max_subscriptions` of a session or stream",
        _BUDGET,
        _SHARE,
        "refused",
    ),
    Table(
        "sessions",
        "`max_sessions`",
        _BUDGET,
        _SHARE,
        "an idle one of the same caller goes, or of the caller who has most; if none is idle, refused",
    ),
    Table(
        "ended sessions",
        "10 * `max_sessions`",
        "600 bytes each",
        _SHARE,
        "the first of the same caller, or of the caller who has most, are forgotten; sessions of this caller "
        "that expire as early count as ended",
    ),
    Table(
        "events to replay",
        "`max_replay_streams` of a session, `max_replay_events` of a stream",
        "`max_replay_bytes` of a stream, `max_memory_bytes`",
        _SHARE,
        "the oldest events of the same stream go",
    ),
    Table(
        "held runs",
        "`max_held_runs`",
        "a quarter of `max_memory_bytes`",
        _SHARE,
        "the one that has waited longest fails: of the same caller, or of the caller who has most",
    ),
    Table("tasks that wait for a worker", "`max_queued_tasks`", _STORED, _SHARE, _REFUSED),
    Table("tasks that wait for an answer", "`max_waiting_tasks`", _STORED, _SHARE, _REFUSED),
    Table(
        "logs of tasks",
        "128 bytes count for each entry",
        _STORED,
        _SHARE,
        "refused with 503: new tasks at once, answers from a quarter more on; then tasks wait to run, too",
    ),
    Table(
        "artifacts",
        "one for 4 KiB of `max_stored_artifact_bytes`, or 1,000",
        "`max_stored_artifact_bytes`",
        "`max_stored_artifact_bytes`: what others leave",
        "the caller that has most loses its oldest ones",
    ),
    Table(
        "heads of requests that connections share",
        "1,024",
        "2 KiB each",
        _SHARE,
        "the oldest one of the same address goes, or of the address that has most",
    ),
    Table(
        "connections of a gateway to a server",
        "100, or 16 processes",
        "64 MiB for a message",
        _SHARE,
        "waits for a connection of the same caller",
    ),
    Table(
        "resources of a server to which the callers of a gateway are subscribed",
        "10,000",
        _BUDGET,
        _SHARE,
        _REFUSED,
    ),
    Table("streams of a console", "200", "some KiB each", "24 of a person", "refused"),
    Table(
        "connections of a console's workbench to servers",
        "64",
        "256 MiB, 32 MiB of messages each",
        "12 of a person",
        "the one of the same person that was used least recently is closed",
    ),
    # Without a share
    Table(
        "running tasks",
        "`max_running_tasks`",
        "`max_body_bytes` each",
        "none: workers take turns between callers; `max_running_tasks_per_principal` sets one",
        "waits for a worker",
    ),
    Table(
        "requests that wait behind another one of their connection",
        "16 of a connection",
        "`max_memory_bytes`",
        "none: a connection is one caller's",
        "the connection is closed",
    ),
    Table(
        "answers in a session, without a store",
        "1,000 of a session",
        _BUDGET,
        "none: a session is one caller's",
        "the oldest one is forgotten, and from then on late answers are refused",
    ),
    Table(
        "records in the store of ended sessions, used request states, and answers in sessions",
        "as many as callers end in `session_lifetime`, use in `state_lifetime`, or give in an hour",
        "some 200 bytes each",
        "none: limit the rate in front of the server",
        "removed when the session id, the state or the question would have expired",
    ),
    Table(
        "events in the store",
        "as many as your code sends",
        "`max_event_bytes` each",
        "none: your code sends them, and decides for whom and for how long",
        "removed when their time is over",
    ),
    Table(
        "messages between processes, in the store",
        "those of the last seconds",
        "32 MiB of a process in SQLite; in PostgreSQL what is sent in a minute",
        "none: a request sends one at most, to a process that asked for it",
        "removed",
    ),
    Table("why held runs have ended", "10,000", "a sentence each", _CACHE, "the oldest one is forgotten"),
    Table(
        "paths and headers that were checked before",
        "256, and 256 for each address of the server",
        "1 KiB each",
        _CACHE,
        "forgotten",
    ),
    Table("metadata of requests, read before", "256", "4 KiB each", _CACHE, "forgotten"),
    Table("tasks that have ended", "1,000", "4 MiB", _CACHE, "read from the store again"),
    Table("content of tasks that have ended", "–", "32 MiB", _CACHE, "read from the store again"),
    Table("addresses of callers, read before", "1,024", "some 400 bytes each", _CACHE, "read again"),
    Table("keys that have opened tokens", "256", "some 500 bytes each", _CACHE, "derived again"),
    Table(
        "functions of other libraries that return their questions",
        "1,000 of a server",
        "8 KiB each",
        _CACHE,
        "forgotten",
    ),
    Table(
        "what each caller uses",
        "twice the callers that use something, or 1,024",
        "some 200 bytes each",
        "none: one for each caller",
        "those that use nothing are forgotten",
    ),
    Table(
        "messages that wait to be sent to other processes",
        "10,000",
        "some KiB each",
        "none: they are sent at once, unless the store is away",
        "dropped: what counts is in the store",
    ),
    Table("tokens that were verified", "`max_cached_tokens`", "8 MiB of tokens", _CACHE, "verified again"),
    Table("tokens that are not active", "4,096", "32 bytes each", _CACHE, "introspected again"),
    Table(
        "tokens that wait for their introspection",
        "64, and 1,024 that wait",
        "16 KiB each",
        "none: nobody knows yet whose they are",
        _REFUSED,
    ),
    Table(
        "buckets of `RateLimit`",
        "`max_callers`",
        "some 200 bytes each",
        "none: one for each caller",
        "the one used least recently is forgotten",
    ),
    Table(
        "sessions of an adopted server",
        "1,000",
        "as the server keeps them",
        "none: one for each principal",
        "the one used least recently is dropped",
    ),
)
"""Each table, those with a share first."""
