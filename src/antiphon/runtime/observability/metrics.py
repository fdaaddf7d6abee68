"""Renders the metrics of a process in the text format of Prometheus.

Owns the names of the metrics. The telemetry, the worker and the store count; this module only reads.
https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from antiphon import wall_clock
from antiphon.errors import StoreError
from antiphon.runtime.budget import MemoryBudget
from antiphon.runtime.observability.telemetry import Telemetry
from antiphon.runtime.tasks.worker import Worker
from antiphon.store.contract import Phase, Store

__all__ = ["CONTENT_TYPE", "render"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_STORE_TIMEOUT_SECONDS = 2.0
"""How long a scrape waits for the store.

Not a setting: a scraper has its own timeout, which is longer.
"""
_PHASES: tuple[Phase, ...] = ("ready", "waiting", "ended")


async def render(
    telemetry: Telemetry,
    store: Store | None,
    worker: Worker | None,
    budget: MemoryBudget | None = None,
    *,
    held: int = 0,
    server: str | None = None,
) -> str:
    """Return all metrics of this process. `held` is how many runs it holds while their callers are asked."""
    page = _Page()
    page.add(
        "antiphon_calls_total",
        "counter",
        "Tool calls, by kind of response and outcome.",
        (
            ({"tool": key.tool, "response": key.response, "outcome": key.outcome}, count)
            for key, count in telemetry.counters.items()
        ),
    )
    for tool, timing in telemetry.timings.items():
        page.histogram(
            "antiphon_call_seconds",
            "Duration of tool calls.",
            {"tool": tool},
            timing.buckets,
            timing[1],
            timing.total,
        )
    if budget is not None:
        about = "Memory that this process keeps for its callers, of at most Limits.max_memory_bytes."
        page.add("antiphon_memory_reserved_bytes", "gauge", about, [({}, budget.reserved)])
    about = "Calls that wait for an answer in this process, of at most Limits.max_held_runs."
    page.add("antiphon_held_runs", "gauge", about, [({}, held)])
    if worker is not None:
        _add_worker(page, worker)
    if store is not None:
        await _add_store(page, store, server)
    return page.text


def _add_worker(page: _Page, worker: Worker) -> None:
    page.add("antiphon_tasks_running", "gauge", "Tasks that run in this process.", [({}, worker.running)])
    page.add(
        "antiphon_tasks_total",
        "counter",
        "Tasks that this process ran, by resulting status.",
        (({"tool": tool, "status": status}, count) for (tool, status), count in worker.finished_runs.items()),
    )
    page.add(
        "antiphon_leases_lost_total",
        "counter",
        "Tasks that this process stopped because another worker took over or the task was gone.",
        [({}, worker.lost_leases)],
    )


async def _add_store(page: _Page, store: Store, server: str | None) -> None:
    try:
        async with asyncio.timeout(_STORE_TIMEOUT_SECONDS):
            counts = [({"phase": phase}, await store.count(phase)) for phase in _PHASES]
            oldest = await store.oldest_ready(server=server)
            stored = await store.stored_bytes(server=server)
        up = 1
    except (StoreError, TimeoutError):
        counts, oldest, stored, up = [], None, 0, 0
    page.add("antiphon_store_up", "gauge", "Whether the store responds.", [({}, up)])
    page.add("antiphon_tasks", "gauge", "Tasks in the store, by phase; the same for all processes.", counts)
    if up:
        age = 0.0 if oldest is None else max(0.0, wall_clock.now() - oldest / 1000)
        about = "Age of the oldest task of this server that waits for a worker."
        page.add("antiphon_queue_age_seconds", "gauge", about, [({}, round(age, 3))])
        about = "Bytes of the logs of this server's tasks in the store."
        page.add("antiphon_stored_task_bytes", "gauge", about, [({}, stored)])
    stats = getattr(store, "commit_stats", None)
    if stats is not None:
        about = "Operations that shared one commit."
        sizes = [(size, count) for size, count in stats.sizes]
        page.histogram("antiphon_commit_operations", about, {}, sizes, stats.commits, stats.operations)


class _Page:
    """The lines of the page."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._declared: set[str] = set()

    @property
    def text(self) -> str:
        return "".join(f"{line}\n" for line in self._lines)

    def add(
        self, name: str, kind: str, about: str, samples: Iterable[tuple[Mapping[str, str], float]]
    ) -> None:
        self._begin(name, kind, about)
        for labels, value in samples:
            self._sample(name, labels, value)

    def histogram(
        self,
        name: str,
        about: str,
        labels: Mapping[str, str],
        buckets: Iterable[tuple[float, int]],
        count: int,
        total: float,
    ) -> None:
        self._begin(name, "histogram", about)
        for bound, reached in buckets:
            self._sample(f"{name}_bucket", {**labels, "le": f"{bound:g}"}, reached)
        self._sample(f"{name}_bucket", {**labels, "le": "+Inf"}, count)
        self._sample(f"{name}_sum", labels, total)
        self._sample(f"{name}_count", labels, count)

    def _begin(self, name: str, kind: str, about: str) -> None:
        if name not in self._declared:
            self._declared.add(name)
            self._lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]

    def _sample(self, name: str, labels: Mapping[str, str], value: Any) -> None:
        written = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
        self._lines.append(f"{name}{{{written}}} {value}" if written else f"{name} {value}")


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
