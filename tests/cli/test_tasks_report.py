"""Tasks as a table, as details, as a status line and as JSON."""

from __future__ import annotations

import pytest

from antiphon.cli.tasks import report
from antiphon.cli.tasks.report import TaskView, as_json, details, status_line, table
from antiphon.model.outcome import Result
from antiphon.model.question import Elicit, ListRoots, OpenUrl, Question, Sample
from antiphon.model.task import Fault
from antiphon.model.task_status import TaskStatus
from antiphon.store.contract import Record

NOW = 1_785_230_000_000
HOUR = 3_600_000


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop the clock."""
    monkeypatch.setattr(report, "now", lambda: NOW)


def test_details_contain_only_known_properties() -> None:
    assert (
        details(TaskView.from_status(TaskStatus("t1", "working")))
        == "id         t1\nstatus     working\nttl        -"
    )


def test_json_contains_only_known_properties() -> None:
    assert as_json(TaskView.from_status(TaskStatus("t1", "working"))) == {
        "taskId": "t1",
        "status": "working",
        "ttl": None,
    }


def test_a_table_shows_a_dash_for_unknown_values() -> None:
    heading, told, untold = table(
        [
            TaskView("t1", "working", created=NOW - 3 * HOUR, ttl=72 * HOUR),
            TaskView("t2", "completed", ttl=90_000),
        ]
    ).splitlines()
    assert heading.split() == ["ID", "STATUS", "AGE", "TTL", "MESSAGE"]
    assert told.split() == ["t1", "working", "3h", "3d", "(2d", "left)"]
    assert untold.split() == ["t2", "completed", "-", "90s"]
    assert table([TaskView("t3", "working")]).splitlines()[1].split() == ["t3", "working", "-", "-"]


def test_shows_the_error_of_a_task() -> None:
    task = TaskView("t1", "failed", fault=Fault(-32603, "It broke."))
    assert details(task).splitlines()[-1] == "error      It broke. (-32603)"
    assert as_json(task)["error"] == Fault(-32603, "It broke.")


@pytest.mark.parametrize(
    ("result", "line"),
    [
        (Result("Done."), "result     Done."),
        (Result([], data={"a": 1}), 'result     {"a":1}'),
        (Result("Out of tea.", is_error=True), "failure    Out of tea."),
    ],
)
def test_shows_the_result_of_a_task(result: Result, line: str) -> None:
    assert details(TaskView("t1", "completed", result=result)).splitlines()[-1] == line


@pytest.mark.parametrize(
    ("ask", "question"),
    [
        (Elicit("Name?", {"properties": {"first": {}, "last": {}}}), "Name? (first, last)"),
        (Elicit("Agree?", {}), "Agree? (yes or no)"),
        (OpenUrl("Log in.", "https://example.com/login"), "Log in. https://example.com/login"),
        (Sample({"messages": []}), "asks the client's model"),
        (ListRoots(), "asks for the client's roots"),
    ],
)
def test_describes_the_questions_of_a_task(ask: Question, question: str) -> None:
    task = TaskView("t1", "input_required", updated=NOW, questions={"key": ask})
    assert details(task).splitlines()[-1] == f"question   key: {question}"
    assert status_line(task) == f"09:13:20 input_required: key: {question}"


def test_a_record_that_is_no_task_is_shown_as_unreadable() -> None:
    record = Record("bad", "ann", "echo", "ready", 0, 1, 1, None, {"id": 7}, "here")
    view = TaskView.from_record(record)
    assert (view.id, view.status, view.tool, view.server) == ("bad", "unreadable", "echo", "here")
    assert "unreadable" in table([view])
