"""`antiphon inbox`, `antiphon tasks answer` for questions to others, and `antiphon tasks send`."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from antiphon.cli.operator_name import operator_name
from tests.cli.command import COMMAND, PATIENCE, antiphon, plain_environment, running
from tests.cli.pseudo_terminal import in_terminal
from tests.support.polling import wait_until
from tests.support.process import ROOT

APPROVALS = ROOT / "examples" / "approvals.py"
EVENTS = """
from antiphon import Context, Server

server = Server("shop")

@server.tool(task="required", poll_interval=0.05)
async def order(ctx: Context, id: str) -> str:
    return f"Paid {await ctx.event('payment', key=id)}."
"""


class Served(NamedTuple):
    url: str
    store: str


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The example of expenses that managers approve, and its store."""
    directory = tmp_path_factory.mktemp("approvals")
    store = f"sqlite:///{directory / 'tasks.db'}"
    with running(APPROVALS, directory=directory, env={"ANTIPHON_STORE": store}) as server:
        yield Served(server.url, store)


def submit(served: Served, purpose: str) -> str:
    """Submit an expense as Ada, and wait until managers are asked. Return the ID of the task."""
    process = subprocess.Popen(
        [
            *COMMAND,
            *("call", served.url, "expense", "amount=1240", f"purpose={purpose}", "--task"),
            *("--token", "ada-token"),
        ],
        env=plain_environment(None),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        found = re.match(r"Task: (\S+)\n", process.stderr.readline())
        assert found
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE)
    wait_until(lambda: any(item["taskId"] == found[1] for item in inbox(served)))
    return found[1]


def inbox(served: Served, token: str = "bob-token") -> list[dict[str, Any]]:
    done = antiphon("inbox", served.url, "--token", token, "--json")
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout))


def result_of(served: Served, id: str) -> str:
    def ended() -> Any:
        done = antiphon("tasks", "show", served.store, id, "--json")
        task = json.loads(done.stdout)
        return task["status"] == "completed" and task["result"]["content"][0]["text"]

    return str(wait_until(ended))


def test_the_questions_are_listed(served: Served) -> None:
    id = submit(served, "desk")
    listed = antiphon("inbox", served.url, "--token", "bob-token")
    assert listed.returncode == 0
    heading, *rows = listed.stdout.splitlines()
    assert heading.split() == ["ID", "TOOL", "FROM", "TO", "AGE", "LEFT", "QUESTION"]
    (row,) = (row for row in rows if row.startswith(id))
    assert row.endswith("ada asks for 1,240.00 € for a desk. Do you approve?")
    (item,) = (item for item in inbox(served) if item["taskId"] == id)
    assert (item["tool"], item["owner"], item["to"], item["approvals"]) == ("expense", "ada", ["manager"], 2)
    assert antiphon("inbox", served.url, "--token", "ada-token").stdout == "Nobody asks you anything.\n"


def test_a_task_is_answered_from_the_command_line(served: Served) -> None:
    id = submit(served, "lamp")
    for name in ("bob", "eve"):
        done = antiphon("inbox", served.url, id, f"comment=By {name}.", "--token", f"{name}-token")
        assert (done.returncode, done.stdout) == (0, f"{id} approval: Answered.\n"), done.stderr
    text = "Paid 1,240.00 € for a lamp. Approved by bob and eve. By bob. By eve."
    assert result_of(served, id) == text
    again = antiphon("inbox", served.url, id, "comment=Again", "--token", "bob-token")
    assert (again.returncode, again.stdout) == (2, "")
    assert f"The task {id} asks you nothing." in again.stderr


def test_a_task_is_declined(served: Served) -> None:
    id = submit(served, "boat")
    done = antiphon("inbox", served.url, id, "--default-answer", "decline", "--token", "eve-token", "--json")
    assert json.loads(done.stdout) == {"taskId": id, "answered": {"approval": "Declined."}}
    assert result_of(served, id) == "Rejected by eve."


def test_without_a_terminal_a_question_needs_an_answer(served: Served) -> None:
    id = submit(served, "car")
    done = antiphon("inbox", served.url, id, "--token", "bob-token")
    assert (done.returncode, done.stdout) == (2, "")
    assert "expense for ada asks: ada asks for 1,240.00 € for a car." in done.stderr
    refused = antiphon("inbox", served.url, "--default-answer", "decline", "--token", "bob-token")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "name its ID" in refused.stderr


def test_a_terminal_asks_one_question_after_the_other(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'tasks.db'}"
    with running(APPROVALS, directory=tmp_path, env={"ANTIPHON_STORE": store}) as server:
        served = Served(server.url, store)
        first, second, third = (submit(served, purpose) for purpose in ("desk", "lamp", "boat"))
        with in_terminal("inbox", served.url, "--token", "bob-token") as terminal:
            terminal.expect("for a desk")
            terminal.expect("!cancel to leave the question for later")
            terminal.type_line("Fine.")
            terminal.expect("Answered.")
            terminal.expect("for a lamp")
            terminal.type_line("!cancel")
            terminal.expect("Left for later.")
            terminal.expect("for a boat")
            terminal.type_line("!decline")
            code, _ = terminal.wait()
        assert code == 0
        assert result_of(served, third) == "Rejected by bob."
        assert [item["taskId"] for item in inbox(served)] == [second]
        assert {item["taskId"]: item["answered"] for item in inbox(served, "eve-token")}[first] == 1


def test_the_inbox_is_watched(served: Served) -> None:
    process = subprocess.Popen(
        [*COMMAND, "inbox", served.url, "--watch", "--json", "--token", "eve-token"],
        env=plain_environment(None),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        id = submit(served, "chair")
        news = (json.loads(line) for line in process.stdout)
        assert next(each["kind"] for each in news if each["item"]["taskId"] == id) == "asked"
        assert antiphon("tasks", "cancel", served.store, id).returncode == 0
        assert next(each["kind"] for each in news if each["item"]["taskId"] == id) == "gone"
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE)


def test_an_operator_answers_for_others(served: Served) -> None:
    id = submit(served, "door")
    shown = antiphon("tasks", "show", served.store, id)
    assert "asks       manager: approval: ada asks for 1,240.00 € for a door." in shown.stdout
    task = json.loads(antiphon("tasks", "show", served.store, id, "--json").stdout)
    assert task["asksOthers"]["approval"]["to"] == ["manager"]
    done = antiphon("tasks", "answer", served.store, id, "comment=Fine.")
    assert (done.returncode, done.stdout) == (0, f"Answered the questions of {id}: approval.\n"), done.stderr
    task = json.loads(antiphon("tasks", "show", served.store, id, "--json").stdout)
    assert task["asksOthers"]["approval"]["answeredBy"] == [f"operator:{operator_name()}"]
    again = antiphon("tasks", "answer", served.store, id, "comment=Again.")
    assert again.returncode == 2
    assert "All operators count as one person" in again.stderr
    antiphon("inbox", served.url, id, "comment=", "--token", "bob-token")
    text = f"Paid 1,240.00 € for a door. Approved by operator:{operator_name()} and bob. Fine."
    assert result_of(served, id) == text


def test_the_caller_is_not_shown_the_question(served: Served) -> None:
    id = submit(served, "window")
    shown = antiphon("tasks", "show", served.url, id, "--token", "ada-token")
    assert shown.returncode == 0
    assert "Waiting for 2 answers from manager, 0 given." in shown.stdout
    assert "window" not in shown.stdout


def test_an_event_is_sent(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'tasks.db'}"
    file = tmp_path / "shop.py"
    file.write_text(EVENTS)
    with running(file, directory=tmp_path, env={"ANTIPHON_STORE": store}) as server:
        unknown = antiphon("tasks", "send", store, "payment", "42")
        assert (unknown.returncode, unknown.stdout) == (2, "")
        assert "The store has no tasks. Name the server" in unknown.stderr
        for data, id, sentence in [
            ('{"amount": 5}', "one", "Sent payment for 42 to the tasks of shop.\n"),
            ('{"amount": 6}', "one", "An event with the id one was sent before. It counts once.\n"),
        ]:
            sent = antiphon("tasks", "send", store, "payment", "42", data, "--id", id, "--server", "shop")
            assert (sent.returncode, sent.stdout) == (0, sentence), sent.stderr
        called = antiphon("call", server.url, "order", "id=42", "--task")
        assert called.stdout == "Paid {'amount': 5}.\n"
        found = antiphon("tasks", "send", store, "payment", "43", "7", "--json")
        assert json.loads(found.stdout) == {"server": "shop", "isNew": True}
        assert antiphon("call", server.url, "order", "id=43", "--task").stdout == "Paid 7.\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["http://localhost:1/mcp", "payment", "42"], "Events can only be sent to a store."),
        (["sqlite:///nowhere.db", "payment", "42", "paid"], "The data is not JSON"),
    ],
)
def test_an_event_that_cannot_be_sent(arguments: list[str], message: str) -> None:
    done = antiphon("tasks", "send", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


def test_a_server_without_tasks_has_no_inbox(url: str) -> None:
    done = antiphon("inbox", url)
    assert (done.returncode, done.stdout) == (2, "")
    assert "This server has no inbox" in done.stderr
