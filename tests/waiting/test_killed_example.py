"""The process of examples/approvals.py is killed after any write: the expense is approved and paid once."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from antiphon.store import open_store
from tests.support.fork_server import run_process
from tests.support.leases import end_leases
from tests.support.process import ROOT, environment

WRITES = range(1, 6)
"""Created, parked with the question, answered by Bob and by Eve, and paid. The next write ends the task."""
NEVER = 0


async def run(url: str, payments: Path, writes: int) -> tuple[int, str, str]:
    """Run the process; return its exit code and what it printed."""
    command = [sys.executable, "-m", "tests.waiting.expense", url, str(payments), str(writes)]
    done = await asyncio.to_thread(run_process, command, cwd=ROOT, env=environment(), timeout=600)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("writes", WRITES)
async def test_an_expense_survives_a_kill(store_url: str, tmp_path: Path, writes: int) -> None:
    payments = tmp_path / "payments"
    code, _, errors = await run(store_url, payments, writes)
    assert code == -9, errors
    await end_leases(store_url)
    code, said, errors = await run(store_url, payments, NEVER)
    assert code == 0, errors
    order = "eve and bob" if "eve and bob" in said else "bob and eve"  # they answer whenever they are asked
    assert said == f"Paid 1,240.00 € for a desk. Approved by {order}. Fine. Fine.\n"
    assert payments.read_text().splitlines() == ["paid"]
    store = open_store(store_url)
    await store.open()
    (record,) = (await store.list(None)).records
    entries = await store.read(record.id)
    await store.close()
    answers = [entry.data["others"]["approval"][0] for entry in entries if "others" in entry.data]
    assert answers == order.split(" and ")
