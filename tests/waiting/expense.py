"""A process with the task of examples/approvals.py, and with its managers. It can kill itself.

`python -m tests.waiting.expense STORE PAYMENTS WRITES`: submits an expense if the store has none, answers as
the managers, and prints the result. It kills itself after so many writes to the store, 0 for never. Each
payment adds a line to the file PAYMENTS, outside of the store.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import importlib.util
import sys
from pathlib import Path
from typing import Any

from antiphon import Client
from antiphon.errors import TaskNotFound
from antiphon.store import open_store
from tests.support.leases import LONG_LEASE_SECONDS
from tests.support.polling import until
from tests.support.process import ROOT
from tests.waiting.journey import count_writes
from tests.waiting.support import accept, inbox


def load_example(payments: Path) -> Any:
    """Return the module of the example. Its payments are counted."""
    spec = importlib.util.spec_from_file_location("approvals", ROOT / "examples" / "approvals.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["approvals"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    pay = module.pay

    @functools.wraps(pay)
    def counted(amount: float, purpose: str) -> Any:
        with payments.open("a") as file:
            file.write("paid\n")
        return pay(amount, purpose)

    module.pay = counted  # type: ignore[attr-defined]
    return module


async def main(url: str, payments: Path, writes: int) -> str:
    example = load_example(payments)
    server, store = example.server, open_store(url)
    server.configure(store=store)
    tasks = server.engine.tasks
    tasks.limits = dataclasses.replace(tasks.limits, lease_seconds=LONG_LEASE_SECONDS)
    count_writes(store, writes)
    managers = [example.PEOPLE[token] for token in ("bob-token", "eve-token")]
    async with Client(server, principal=example.PEOPLE["ada-token"]) as ada:
        known = (await store.list(None)).records
        handle = ada.task(known[0].id) if known else await ada.submit("expense", amount=1240, purpose="desk")

        async def has_ended() -> bool:
            if (await handle.status()).status != "working":
                return True
            for manager in managers:
                for item in (await inbox(server).list(manager)).items:
                    with contextlib.suppress(TaskNotFound):  # the task went on meanwhile
                        await inbox(server).answer(manager, item.task_id, item.key, accept(comment="Fine."))
            return False

        await until(has_ended, within=600)
        return (await handle.result()).text


if __name__ == "__main__":
    print(asyncio.run(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))))
