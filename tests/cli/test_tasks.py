"""`antiphon tasks` and `antiphon call --task`, at a server and on its store."""

from __future__ import annotations

import json
import re
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.cli.command import COMMAND, PATIENCE, antiphon, plain_environment, running
from tests.cli.pseudo_terminal import CTRL_C, in_terminal
from tests.support.polling import wait_until

TASKS_SERVER = Path(__file__).parent.parent / "promises" / "patient.py"
LEGACY = ("--protocol", "2025-11-25")


class Served(NamedTuple):
    url: str
    store: str


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server whose tools run as tasks, and its store."""
    directory = tmp_path_factory.mktemp("patient")
    store = f"sqlite:///{directory / 'tasks.db'}"
    with running(TASKS_SERVER, directory=directory, env={"ANTIPHON_STORE": store}) as server:
        yield Served(server.url, store)


def start_waiting_task(served: Served, tool: str) -> str:
    """Start a task that waits for an answer. Return its ID."""
    done = antiphon("call", served.url, tool, "--task", "--no-input")
    found = re.match(r"Task: (\S+)\n", done.stderr)
    assert found, done.stderr
    assert (done.returncode, done.stdout) == (2, "")
    assert f"antiphon tasks answer {served.url} {found[1]}" in done.stderr
    assert "--answer name=…" in done.stderr
    return found[1]


def show(place: str, id: str, *options: str) -> dict[str, Any]:
    done = antiphon("tasks", "show", place, id, "--json", *options)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def wait_for_status(served: Served, id: str, status: str) -> dict[str, Any]:
    return wait_until(lambda: (task := show(served.store, id))["status"] == status and task)


# antiphon call --task


def test_prints_the_task_id_first_and_the_result_last(served: Served) -> None:
    done = antiphon("call", served.url, "sleep", "--task")
    assert (done.returncode, done.stdout) == (0, "slept\n")
    assert re.fullmatch(r"Task: sleep_\S+\n", done.stderr)


def test_a_tool_that_cannot_run_as_a_task_prints_no_task_id(served: Served) -> None:
    done = antiphon("call", served.url, "at_once", "--task")
    assert (done.returncode, done.stdout, done.stderr) == (0, "at once\n", "")


def test_a_failed_task_exits_with_code_1(served: Served) -> None:
    done = antiphon("call", served.url, "fails", "--task", "--json")
    assert (done.returncode, json.loads(done.stdout)["isError"]) == (1, True)


def test_questions_are_answered_from_the_command_line(served: Served) -> None:
    done = antiphon("call", served.url, "greet", "--task", "--answer", "name=Ada", "--answer", "name=Byron")
    assert (done.returncode, done.stdout) == (0, "Hello, Ada Byron!\n")
    plain = antiphon("call", served.url, "greet", "--answer", "name=Ada", "--answer", "name=Byron")
    assert (plain.returncode, plain.stdout, plain.stderr) == (0, "Hello, Ada Byron!\n", "")


def test_an_answer_to_another_field_is_named_and_the_hint_fits_the_command(served: Served) -> None:
    done = antiphon("call", served.url, "greet", "--answer", "how=Fixed", "--no-input")
    assert done.returncode == 2
    assert "The question has no field how. Answer it with --answer name=…, or run" in done.stderr
    id = start_waiting_task(served, "greet")
    done = antiphon("tasks", "answer", served.url, id, "--no-input")
    assert done.returncode == 2
    assert "The question has no answer. Answer it with name=…, or run" in done.stderr


def test_shows_the_status_of_a_task_on_a_terminal(served: Served) -> None:
    with in_terminal("call", served.url, "greet", "--task") as terminal:
        terminal.expect("Task: greet_")
        terminal.expect("First name?")
        terminal.expect("name (text): ")
        terminal.type_line("Ada")
        terminal.expect("name (text): ")
        terminal.type_line("Byron")
        assert terminal.wait() == (0, "Hello, Ada Byron!\n")
        assert " s, working" in terminal.screen


def test_the_progress_of_a_task_is_shown(served: Served) -> None:
    for options in (["--task"], []):
        done = antiphon("call", served.url, "pack", *options)
        assert (done.returncode, done.stdout) == (0, "packed\n")
        assert "[3/3] box 3\n" in done.stderr


def test_the_progress_of_a_task_is_shown_in_its_line(served: Served, tmp_path: Path) -> None:
    goes_on = tmp_path / "goes on"
    with in_terminal("call", served.url, "pack", f"until={goes_on}", "--task") as terminal:
        terminal.expect(" s, working: 3 of 3: box 3")
        goes_on.touch()
        assert terminal.wait()[0] == 0
        assert "[3/3]" not in terminal.screen


def test_ctrl_c_does_not_cancel_the_task(served: Served) -> None:
    process = subprocess.Popen(
        [*COMMAND, "call", served.url, "ponder", "--task"],
        env=plain_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
    assert process.stderr is not None
    try:
        id = process.stderr.readline().removeprefix("Task: ").strip()
        process.send_signal(signal.SIGINT)
        _, complained = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 130
    assert f"antiphon tasks watch {served.url} {id}" in complained
    assert "Traceback" not in complained
    assert show(served.store, id)["status"] == "working"
    assert antiphon("tasks", "cancel", served.url, id).stdout == f"Cancelled {id}.\n"
    watched = antiphon("tasks", "watch", served.store, id)
    assert (watched.returncode, watched.stdout[9:18]) == (1, "cancelled")


@pytest.mark.parametrize("options", [(), ("--task",), LEGACY, ("--protocol", "DRAFT-2026-v1", "--task")])
def test_ctrl_c_leaves_the_question_of_a_task_open(served: Served, options: tuple[str, ...]) -> None:
    with in_terminal("call", served.url, "greet", *options) as terminal:
        terminal.expect("name (text): ")
        terminal.press(CTRL_C)
        terminal.expect(f"The question is still open. To answer it: antiphon tasks answer {served.url} ")
        assert terminal.wait() == (130, "")
    assert "Traceback" not in terminal.screen
    found = re.search(r"tasks answer \S+ (greet_\S+)", terminal.screen)
    assert found, terminal.screen
    assert show(served.store, found[1])["status"] == "input_required"
    with in_terminal("tasks", "answer", served.url, found[1]) as terminal:
        terminal.expect("name (text): ")
        terminal.press(CTRL_C)
        assert terminal.wait() == (130, "")
    assert show(served.store, found[1])["status"] == "input_required"
    assert antiphon("tasks", "answer", served.url, found[1], "name=Ada").returncode == 0


def test_ctrl_c_cancels_a_call_whose_task_asks_nothing(served: Served) -> None:
    with in_terminal("call", served.url, "ponder") as terminal:
        listed = ("tasks", "ls", served.store, "--json", "--limit", "1")
        id = wait_until(lambda: _newest(json.loads(antiphon(*listed).stdout), "ponder"))
        terminal.press(CTRL_C)
        terminal.expect(f"Cancelled task {id}.")
        terminal.expect(f"antiphon tasks retry STORE {id}")
        assert terminal.wait() == (130, "")
    assert wait_for_status(served, id, "cancelled")


def test_a_call_whose_server_goes_away_says_how_to_follow_its_task(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/tasks.db"
    with (
        running(TASKS_SERVER, "--store", store, directory=tmp_path) as server,
        in_terminal("call", server.url, "ponder") as terminal,
    ):
        listed = ("tasks", "ls", store, "--json", "--limit", "1")
        id = wait_until(lambda: _newest(json.loads(antiphon(*listed).stdout), "ponder"))
        server.process.kill()
        server.process.wait()
        terminal.expect(
            "The call became a task, which may still be running. "
            f"To follow it: antiphon tasks watch {server.url} {id}"
        )
        assert terminal.wait()[0] == 3


def _newest(tasks: list[dict[str, Any]], tool: str) -> str:
    return next((str(task["taskId"]) for task in tasks if task["tool"] == tool), "")


# antiphon tasks


def test_a_store_lists_the_tasks_of_all_callers(served: Served) -> None:
    id = start_waiting_task(served, "greet")
    done = antiphon("tasks", "ls", served.store, "--limit", "5")
    heading, first, *_ = done.stdout.splitlines()
    assert heading.split() == ["ID", "STATUS", "TOOL", "PRINCIPAL", "AGE", "TTL", "MESSAGE"]
    assert first.split()[:4] == [id, "input_required", "greet", "-"]
    assert first.endswith("asks first")
    listed = json.loads(antiphon("tasks", "ls", served.store, "--json", "--limit", "1").stdout)
    assert [(task["taskId"], task["tool"], task["ttl"]) for task in listed] == [(id, "greet", None)]


def test_a_store_with_several_servers_names_them(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'shared.db'}"
    for name in ("one", "two"):
        program = tmp_path / f"{name}.py"
        program.write_text(
            f"from antiphon import Server\n\nserver = Server({name!r})\n\n\n"
            "@server.tool(task='required')\ndef done() -> str:\n    return 'done'\n"
        )
        with running(program, "--store", url, directory=tmp_path) as server:
            assert antiphon("call", server.url, "done").returncode == 0
        heading, *rows = antiphon("tasks", "ls", url).stdout.splitlines()
        assert ("SERVER" in heading.split()) == (name == "two")
    assert heading.split()[:5] == ["ID", "STATUS", "TOOL", "PRINCIPAL", "SERVER"]
    assert [row.split()[4] for row in rows] == ["two", "one"]
    listed = json.loads(antiphon("tasks", "ls", url, "--json").stdout)
    assert [task["server"] for task in listed] == ["two", "one"]
    assert "server     two" in antiphon("tasks", "show", url, listed[0]["taskId"]).stdout


def test_a_caller_lists_its_own_tasks_in_versions_that_support_it(served: Served, tmp_path: Path) -> None:
    done = antiphon("tasks", "ls", served.url)
    assert (done.returncode, done.stdout) == (2, "")
    assert "This server cannot list tasks in protocol version 2026-07-28" in done.stderr
    assert f"antiphon tasks show {served.url} ID" in done.stderr
    assert "antiphon tasks ls sqlite:///tasks.db" in done.stderr
    assert "antiphon inbox" not in done.stderr, (
        "it is always empty for somebody whom the server does not know"
    )
    stranger = antiphon("tasks", "ls", served.url, *LEGACY)
    assert (stranger.returncode, stranger.stdout) == (2, "")
    assert "A list of tasks needs authentication" in stranger.stderr
    assert "antiphon tasks ls sqlite:///tasks.db" in stranger.stderr
    program = tmp_path / "authenticated.py"
    program.write_text(
        "from antiphon import BearerTokens, Server\n\n"
        "server = Server('authenticated', authenticate=BearerTokens({'token-of-ada': 'ada'}))\n\n\n"
        "@server.tool(task='required')\ndef done() -> str:\n    return 'done'\n"
    )
    header = ("--header", "Authorization: Bearer token-of-ada")
    with running(program, directory=tmp_path) as server:
        assert antiphon("call", server.url, "done", *header).returncode == 0
        refused = antiphon("tasks", "ls", server.url, *header)
        assert refused.returncode == 2
        assert f"antiphon tasks ls {server.url} --protocol 2025-11-25" in refused.stderr
        assert f"antiphon inbox {server.url}" in refused.stderr
        assert antiphon("inbox", server.url, *header).stdout == "Nobody asks you anything.\n"
        (listed,) = json.loads(antiphon("tasks", "ls", server.url, *LEGACY, *header, "--json").stdout)
    assert listed["taskId"].startswith("done_")


def test_a_store_shows_the_log(served: Served) -> None:
    id = start_waiting_task(served, "greet")
    done = antiphon("tasks", "show", served.store, id)
    assert done.returncode == 0
    assert re.search(r"^question +first: First name\? \(name\)$", done.stdout, re.MULTILINE)
    assert re.findall(r"^ +\d+  \S+Z  (\w+)", done.stdout, re.MULTILINE) == ["created", "asked"]
    as_json = show(served.store, id)
    assert [entry["kind"] for entry in as_json["log"]] == ["created", "asked"]
    assert as_json["questions"]["first"]["message"] == "First name?"
    caller = antiphon("tasks", "show", served.url, id).stdout
    assert "First name?" in caller
    assert '"v":1' not in caller


@pytest.mark.parametrize("how", ["operator", "caller", "old caller"])
def test_answers_all_questions_of_a_task(served: Served, how: str) -> None:
    id = start_waiting_task(served, "greet")
    place = [served.store if how == "operator" else served.url, id, *(LEGACY if how == "old caller" else ())]
    assert antiphon("tasks", "answer", *place, "name=Ada").returncode == 0
    wait_until(lambda: "last" in show(served.store, id).get("questions", {}))
    done = antiphon("tasks", "answer", *place, "name=Byron", "--json")
    assert (done.returncode, json.loads(done.stdout)["taskId"]) == (0, id)
    assert wait_for_status(served, id, "completed")["result"]["content"][0]["text"] == "Hello, Ada Byron!"
    assert "Hello, Ada Byron!" in antiphon("tasks", "show", *place).stdout
    late = antiphon("tasks", "answer", *place, "name=Eve")
    assert (late.returncode, late.stdout) == (2, "")
    assert "has no open question: its status is completed" in late.stderr


def test_answers_concurrent_questions_together(served: Served) -> None:
    id = start_waiting_task(served, "both")
    assert antiphon("tasks", "answer", served.url, id, "name=Ada", "name=Byron", *LEGACY).returncode == 0
    text = wait_for_status(served, id, "completed")["result"]["content"][0]["text"]
    assert sorted(text.split()) == ["Ada", "Byron"]


def test_answers_one_question_by_its_key(served: Served) -> None:
    id = start_waiting_task(served, "both")
    wrong = antiphon("tasks", "answer", served.store, id, "name=Ada", "--key", "middle")
    assert (wrong.returncode, wrong.stderr) == (
        2,
        "Error: The task has no question 'middle'. Its questions: first, last.\n",
    )
    assert antiphon("tasks", "answer", served.url, id, "name=Ada", "--key", "first").returncode == 0
    assert set(show(served.store, id)["questions"]) == {"last"}
    open_question = antiphon("tasks", "answer", served.store, id, "--no-input")
    assert (open_question.returncode, open_question.stdout) == (2, "")
    assert "Last name?" in open_question.stderr
    declined = antiphon("tasks", "answer", served.store, id, "--default-answer", "decline")
    assert declined.stdout == f"Answered the questions of {id}: last.\n"
    wait_for_status(served, id, "failed")


def test_prompts_for_the_answer_in_a_terminal(served: Served) -> None:
    id = start_waiting_task(served, "greet")
    with in_terminal("tasks", "answer", served.store, id) as terminal:
        terminal.expect("greet asks: First name?")
        terminal.expect("name (text): ")
        terminal.type_line("Ada")
        assert terminal.wait() == (0, f"Answered the questions of {id}: first.\n")


@pytest.mark.parametrize("how", ["operator", "caller", "old caller"])
def test_watches_a_task_until_it_ends(served: Served, how: str) -> None:
    id = start_waiting_task(served, "greet")
    place = [served.store if how == "operator" else served.url, id, *(LEGACY if how == "old caller" else ())]
    process = subprocess.Popen(
        [*COMMAND, "tasks", "watch", *place, "--json"],
        env=plain_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    )
    assert process.stdout is not None
    try:
        assert json.loads(process.stdout.readline())["status"] == "input_required"
        assert antiphon("tasks", "cancel", served.store, id, "--json").returncode == 0
        rest, _ = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.communicate()
    assert json.loads(rest.splitlines()[-1])["status"] == "cancelled"
    assert process.returncode == 1


def test_does_not_cancel_a_finished_task(served: Served) -> None:
    id = antiphon("call", served.url, "sleep", "--task").stderr.removeprefix("Task: ").strip()
    for place in (served.url, served.store):
        done = antiphon("tasks", "cancel", place, id)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == f"Error: Cannot cancel task {id}: its status is already completed.\n"


def test_removes_expired_tasks(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'tasks.db'}"
    with running(TASKS_SERVER, directory=tmp_path, env={"ANTIPHON_STORE": store}) as server:
        assert antiphon("call", server.url, "lingering").returncode == 0

    def removed() -> int:
        done = antiphon("tasks", "rm", store, "--expired", "--json")
        assert done.returncode == 0
        return int(json.loads(done.stdout)["removed"])

    assert removed() == 0
    with closing(sqlite3.connect(tmp_path / "tasks.db", isolation_level=None)) as file:
        file.execute("UPDATE task_rows SET expires = 1")  # as if its lifetime were over
    assert removed() == 1
    assert antiphon("tasks", "ls", store).stdout == "There are no tasks.\n"
    assert antiphon("tasks", "rm", store, "--expired").stdout == "Removed 0 expired tasks.\n"


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("show", "{store}", "nobody"), 2, "There is no task nobody in this store"),
        (("show", "{url}", "nobody"), 2, "does not know the task nobody"),
        (("watch", "{store}", "nobody"), 2, "There is no task nobody"),
        (("cancel", "{url}", "nobody"), 2, "does not know the task nobody"),
        (("answer", "{url}", "nobody", "x=1"), 2, "does not know the task nobody"),
        (("rm", "{store}"), 2, "--expired"),
        (("rm", "{url}", "--expired"), 2, "can only be removed from a store"),
        (("ls", "sqlite:///nowhere.db"), 2, "There is no store at nowhere.db"),
        (("ls", "sqlite:nowhere"), 2, "names no file"),
        (("ls", "memory:"), 2, "visible to that server only"),
        (("ls", "localhost"), 2, "neither the URL of a server"),
        (("ls", "{store}", "--protocol", "x"), 2, "not to a store"),
        (("ls", "{url}", "--protocol", "x"), 2, "is not one of"),
        (("ls", "http://127.0.0.1:1/mcp"), 3, "No connection"),
    ],
)
def test_reports_wrong_usage(
    served: Served, arguments: tuple[str, ...], code: int, says: str, tmp_path: Path
) -> None:
    done = antiphon("tasks", *(word.format(**served._asdict()) for word in arguments), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (code, "")
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_a_file_that_is_not_a_store_exits_with_code_3(tmp_path: Path) -> None:
    (tmp_path / "notes.db").write_text("Not a database, and long enough to look like none of the kind." * 20)
    done = antiphon("tasks", "ls", "sqlite:///notes.db", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (3, "")
    assert "Cannot open the store" in done.stderr


# antiphon tasks export


def test_exports_the_history_of_a_task_of_a_store(served: Served, tmp_path: Path) -> None:
    id = start_waiting_task(served, "greet")
    printed = antiphon("tasks", "export", served.store, id)
    assert printed.returncode == 0, printed.stderr
    history = json.loads(printed.stdout)
    assert (history["format"], history["taskId"], history["tool"]) == (1, id, "greet")
    assert [entry["kind"] for entry in history["log"]] == ["created", "asked"]
    file = tmp_path / "history.json"
    written = antiphon("tasks", "export", served.store, id, "--output", file)
    assert (written.returncode, written.stdout) == (0, f"Wrote the history of {id} to {file}.\n")
    assert json.loads(file.read_text()) == history


def test_exports_from_stores_and_of_tasks_that_exist(served: Served, tmp_path: Path) -> None:
    at_a_server = antiphon("tasks", "export", served.url, "some-id")
    assert (at_a_server.returncode, "Only a store has the histories" in at_a_server.stderr) == (2, True)
    assert antiphon("tasks", "export", served.store, "some-id").returncode == 2
    id = start_waiting_task(served, "greet")
    nowhere = antiphon("tasks", "export", served.store, id, "-o", tmp_path / "missing" / "history.json")
    assert (nowhere.returncode, "Cannot write" in nowhere.stderr) == (2, True)
