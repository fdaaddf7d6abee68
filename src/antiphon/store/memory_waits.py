"""The waiting tasks of a store in memory, by time and by tag, and its events.

Owns the order in which waiting tasks wake and in which tagged tasks are listed. Does not own the rows of
tasks, and does not know why a task waits.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Sequence
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import TypeAlias

import msgspec

from antiphon.store import rules
from antiphon.store.contract import Event, KeptEvent
from antiphon.store.rules import Row

__all__ = ["EventLog", "StoredEvent", "WaitingTasks"]

_Position: TypeAlias = tuple[int, int]
"""A time and the key of a task."""

_MIN_REBUILT_HEAP = 64
"""Items that a heap may hold before outdated items are removed from it."""


class _WakeQueue:
    """The tasks of one server that wake at a time, earliest first."""

    def __init__(self) -> None:
        self._times: dict[int, int] = {}  # by key
        self._heap: list[_Position] = []

    def put(self, key: int, time: int) -> None:
        if self._times.get(key) == time:
            return
        self._times[key] = time
        heappush(self._heap, (time, key))
        if len(self._heap) > _MIN_REBUILT_HEAP + 2 * len(self._times):
            self._heap = [(time, key) for key, time in self._times.items()]
            heapify(self._heap)

    def remove(self, key: int) -> None:
        self._times.pop(key, None)  # its item in the heap is outdated from now on

    def first(self) -> _Position | None:
        while self._heap:
            time, key = self._heap[0]
            if self._times.get(key) == time:
                return time, key
            heappop(self._heap)
        return None


class WaitingTasks:
    """The tasks that wake at a time or have tags."""

    def __init__(self) -> None:
        self._queues: dict[str, _WakeQueue] = {}  # by server
        self._tags: dict[int, tuple[str, ...]] = {}  # by key
        self._by_tag: dict[str, list[_Position]] = {}

    def update(self, row: Row) -> None:
        """Note the time and the tags of a task that was created or has changed."""
        if row.wakes is not None:
            self._queues.setdefault(row.server, _WakeQueue()).put(row.key, row.wakes)
        elif queue := self._queues.get(row.server):
            queue.remove(row.key)
        if row.tags is not None or row.key in self._tags:
            self._set_tags(row, rules.decode_tags(row.tags))

    def take_due(self, now: int, limit: int, servers: Collection[str] | None) -> list[int]:
        """Remove and return the keys of tasks whose time has passed, earliest first.

        `servers` are the names of the servers; `None` for all of them.
        """
        queues = [queue for name, queue in self._queues.items() if servers is None or name in servers]
        keys: list[int] = []
        while len(keys) < limit:
            tops = [(top, queue) for queue in queues if (top := queue.first()) and top[0] <= now]
            if not tops:
                break
            (_, key), queue = min(tops, key=lambda item: item[0])
            queue.remove(key)
            keys.append(key)
        return keys

    def tagged(self, tags: Collection[str], after: _Position, limit: int) -> list[int]:
        """Return the keys of tasks above a position that have one of the tags, oldest first."""
        found: set[_Position] = set()
        for tag in tags:
            order = self._by_tag.get(tag, [])
            start = bisect_right(order, after)
            found.update(order[start : start + max(limit, 0)])
        return [key for _, key in sorted(found)[: max(limit, 0)]]

    def _set_tags(self, row: Row, tags: tuple[str, ...]) -> None:
        position = (row.created, row.key)
        before = self._tags.pop(row.key, ())
        if tags:
            self._tags[row.key] = tags
        for tag in before:
            order = self._by_tag[tag]
            del order[bisect_left(order, position)]
            if not order:
                del self._by_tag[tag]
        for tag in tags:
            insort(self._by_tag.setdefault(tag, []), position)


class StoredEvent(msgspec.Struct):
    """An event whose data is JSON text, and when it is deleted."""

    number: int
    id: str
    at: int
    data: str
    until: int


class EventLog:
    """The events of all topics."""

    def __init__(self) -> None:
        self._last_number = 0
        self._by_topic: dict[str, list[StoredEvent]] = {}  # in the order of their numbers
        self._ids: set[tuple[str, str]] = set()  # by topic and id
        self._until: list[tuple[int, int, str]] = []

    def add(self, topic: str, id: str, data: str, *, until: int, now: int) -> bool:
        """Add an event; return false if the topic has an event of this id."""
        self.delete_old(now)
        if (topic, id) in self._ids:
            return False
        self._last_number = rules.next_event_number(now, self._last_number)
        self._insert(topic, StoredEvent(self._last_number, id, now, data, until))
        return True

    def restore(self, topic: str, event: StoredEvent, *, now: int) -> bool:
        """Add an event of another store; return false if the topic has an event of this id."""
        self.delete_old(now)
        if (topic, event.id) in self._ids:
            return False
        used = {kept.number for kept in self._by_topic.get(topic, ())}
        while event.number in used:
            event.number += 1
        self._last_number = max(self._last_number, event.number)
        self._insert(topic, event)
        return True

    def _insert(self, topic: str, event: StoredEvent) -> None:
        self._ids.add((topic, event.id))
        insort(self._by_topic.setdefault(topic, []), event, key=lambda event: event.number)
        heappush(self._until, (event.until, event.number, topic))

    def list(self, after: tuple[str, int] | None, limit: int, now: int) -> Sequence[KeptEvent]:
        """Return events of all topics that come after a topic and a number."""
        kept = (
            (topic, event)
            for topic in sorted(self._by_topic)
            for event in self._by_topic[topic]
            if event.until > now and (after is None or (topic, event.number) > after)
        )
        return [
            KeptEvent(topic, _decoded(event), event.until) for topic, event in islice(kept, max(limit, 0))
        ]

    def read(self, topic: str, *, after: int, limit: int, now: int) -> Sequence[Event]:
        """Return the events of a topic that are numbered above `after`, in order."""
        events = self._by_topic.get(topic, [])
        first = bisect_right(events, after, key=lambda event: event.number)
        kept = (event for event in events[first:] if event.until > now)
        return [_decoded(event) for event in islice(kept, max(limit, 0))]

    def delete_old(self, now: int) -> None:
        """Delete the events whose time has passed."""
        while self._until and self._until[0][0] <= now:
            _, number, topic = heappop(self._until)
            events = self._by_topic[topic]
            event = events.pop(bisect_left(events, number, key=lambda event: event.number))
            self._ids.discard((topic, event.id))
            if not events:
                del self._by_topic[topic]


def _decoded(event: StoredEvent) -> Event:
    return Event(event.number, event.id, event.at, msgspec.json.decode(event.data))
