"""`antiphon tasks ls --failed` and `antiphon tasks retry`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cli import command
from tests.cli.command import running
from tests.support.polling import wait_until

SERVER = """
from pathlib import Path

from antiphon import BearerTokens, Context, Failure, Server

FOLDER = Path(__file__).parent
server = Server("shop", authenticate=BearerTokens({"token-of-ada": "ada"}))


def charge() -> str:
    with (FOLDER / "charges").open("a") as file:
        file.write("charged\\n")
    return "charged"


@server.tool(task="required", poll_interval=0.05)
async def buy(ctx: Context) -> str:
    receipt = await ctx.step(charge)
    if not (FOLDER / "open").exists():
        raise Failure("The shop is closed.")
    return receipt


@server.tool(task="required", poll_interval=0.05)
async def look() -> str:
    return "nothing"


@server.tool(task="required", poll_interval=0.05)
async def order(ctx: Context) -> str:
    receipt = await ctx.step(charge)
    return receipt + await ctx.elicit(" Which size?", str, key="size")
"""


antiphon = partial(command.antiphon, env={"ANTIPHON_TOKEN": "token-of-ada"})


class Shop(NamedTuple):
    url: str
    store: str
    folder: Path


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    """A server with a tool that fails until its shop is open."""
    script, store = tmp_path / "shop.py", f"sqlite:///{tmp_path / 'tasks.db'}"
    script.write_text(SERVER)
    with running(script, directory=tmp_path, env={"ANTIPHON_STORE": store}) as server:
        yield Shop(server.url, store, tmp_path)


def test_a_failed_task_is_listed_and_retried_with_its_journal(shop: Shop) -> None:
    assert antiphon("tasks", "ls", shop.store, "--failed").stdout == "There are no failed tasks.\n"
    failed = antiphon("call", shop.url, "buy", "--task")
    assert failed.returncode == 1
    id = failed.stderr.splitlines()[0].removeprefix("Task: ")
    looked = antiphon("call", shop.url, "look", "--task").stderr.removeprefix("Task: ").strip()
    for options in ((shop.store,), (shop.url, "--protocol", "2025-11-25")):
        listed = json.loads(antiphon("tasks", "ls", *options, "--failed", "--json").stdout)
        assert [task["taskId"] for task in listed] == [id]
    (shop.folder / "open").touch()
    retried = antiphon("tasks", "retry", shop.store, id)
    assert (retried.returncode, retried.stderr) == (0, "")
    assert retried.stdout == f"Queued {id} again. Its finished steps do not run again.\n"
    watched = antiphon("tasks", "watch", shop.url, id)
    assert (watched.returncode, watched.stdout.splitlines()[-1][9:]) == (0, "completed")
    assert (shop.folder / "charges").read_text() == "charged\n"
    assert antiphon("tasks", "ls", shop.store, "--failed").stdout == "There are no failed tasks.\n"
    refused = antiphon("tasks", "retry", shop.store, looked)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert (
        "a task that has failed or was cancelled can be retried. Its status is completed." in refused.stderr
    )
    refused = antiphon("tasks", "retry", shop.url, id)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "Tasks can only be retried in a store." in refused.stderr


def test_a_cancelled_task_goes_on_as_a_new_one_whose_id_is_printed(shop: Shop) -> None:
    asked = antiphon("call", shop.url, "order", "--task", "--no-input")
    id = asked.stderr.splitlines()[0].removeprefix("Task: ")
    assert antiphon("tasks", "cancel", shop.url, id).returncode == 0
    retried = antiphon("tasks", "retry", shop.store, id)
    assert (retried.returncode, retried.stderr) == (0, "")
    assert retried.stdout.startswith(f"{id} stays cancelled. order_")
    new = retried.stdout.split()[3]
    assert retried.stdout.endswith(f"{new} goes on for it: its finished steps do not run again.\n")
    again = json.loads(antiphon("tasks", "retry", shop.store, id, "--json").stdout)
    assert again["taskId"] == new
    shown = ("tasks", "show", shop.url, new, "--json")
    wait_until(lambda: json.loads(antiphon(*shown).stdout)["status"] == "input_required")
    assert antiphon("tasks", "answer", shop.url, new, "value=: small").returncode == 0
    assert antiphon("tasks", "watch", shop.url, new).returncode == 0
    assert "charged: small" in antiphon("tasks", "show", shop.url, new).stdout
    assert (shop.folder / "charges").read_text() == "charged\n"
    assert json.loads(antiphon("tasks", "show", shop.url, id, "--json").stdout)["status"] == "cancelled"
