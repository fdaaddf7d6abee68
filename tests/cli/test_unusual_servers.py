"""`antiphon call` and `antiphon tasks` at servers with unusual responses."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from antiphon.cli.call.command import call_tool, stream_tool
from antiphon.cli.call.questions import ElicitationHandler, PreparedAnswers
from antiphon.cli.exit_codes import UNREACHABLE, USAGE, CommandError
from antiphon.cli.targets import Target
from antiphon.cli.tasks.actions import answer_task, show_task, task_source
from antiphon.cli.tasks.questions import answer_questions
from antiphon.cli.tasks.server_tasks import ServerTasks
from antiphon.client import Client
from antiphon.model.question import ListRoots, OpenUrl, Sample
from tests.cli import questions_server
from tests.cli.raw_http_server import Answer, http_response, raw_http_server

MODERN, LEGACY = "2026-07-28", "2025-11-25"
TOOLS = {"tools": [{"name": "greet", "inputSchema": {"type": "object"}}]}
TASKS = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}


def responding_with(answers: Mapping[str, Any], **capabilities: Any) -> Answer:
    """A server without a name that has one response for each method: a result, or the code of an error."""

    def answer(verb: str, body: str) -> bytes:
        asked = json.loads(body) if body else {}
        if verb != "POST" or "id" not in asked:
            return http_response("202 Accepted" if verb == "POST" else "405 Method Not Allowed", body="")
        said = {
            "server/discover": {
                "resultType": "complete",
                "supportedVersions": [MODERN],
                "capabilities": capabilities,
            },
            "initialize": {
                "protocolVersion": LEGACY,
                "capabilities": capabilities,
                "serverInfo": {"name": "odd", "version": "1"},
            },
            **answers,
        }.get(asked["method"], -32601)
        told = {"error": {"code": said, "message": "No."}} if isinstance(said, int) else {"result": said}
        return http_response(
            kind="application/json", body=json.dumps({"jsonrpc": "2.0", "id": asked["id"], **told})
        )

    return answer


def target(address: str) -> Target:
    return Target.parse(f"{address}/mcp", headers=(), token=None, timeout=60)


def no_answers() -> ElicitationHandler:
    return ElicitationHandler(PreparedAnswers(), no_input=True)


# antiphon call


def test_reports_that_a_server_without_a_name_has_no_tools() -> None:
    with raw_http_server(responding_with({})) as address, pytest.raises(CommandError) as raised:
        call_tool(target(address), "greet", (), None, no_answers(), as_json=False)
    assert (raised.value.message, raised.value.code) == ("The server has no tools.", USAGE)


@pytest.mark.parametrize("status", ["200 OK", "404 Not Found"])
def test_a_server_that_opens_no_session_and_lists_no_tools_is_called_all_the_same(
    status: str, capsys: pytest.CaptureFixture[str]
) -> None:
    known = responding_with({"tools/call": {"content": [{"type": "text", "text": "Sunny."}]}})

    def answer(verb: str, body: str) -> bytes:
        asked = json.loads(body) if body else {}
        if asked.get("method") == "tools/call":
            return known(verb, body)
        if status.startswith("404"):
            return http_response(status)
        error = {"jsonrpc": "2.0", "id": asked.get("id"), "error": {"code": -32601, "message": "What?"}}
        return http_response(kind="application/json", body=json.dumps(error))

    with raw_http_server(answer) as address:
        code = call_tool(
            target(address), "get_weather", ("city=New York",), None, no_answers(), as_json=False
        )
    assert code == 0
    assert capsys.readouterr().out == "Sunny.\n"


def test_an_error_response_exits_with_code_3() -> None:
    answers = {"tools/list": TOOLS, "tools/call": -32602}
    with (
        raw_http_server(responding_with(answers, tools={})) as address,
        pytest.raises(CommandError) as raised,
    ):
        call_tool(target(address), "greet", (), None, no_answers(), as_json=False)
    assert (raised.value.message, raised.value.code) == (
        "The server returned an error: No. (code -32602)",
        UNREACHABLE,
    )


def test_a_stream_without_segments_prints_the_data_of_the_result(capsys: pytest.CaptureFixture[str]) -> None:
    given = {"resultType": "complete", "content": [], "structuredContent": {"a": 1}}
    with raw_http_server(responding_with({"tools/list": TOOLS, "tools/call": given}, tools={})) as address:
        assert stream_tool(target(address), "greet", (), None, no_answers(), as_json=False) == 0
    assert capsys.readouterr().out == '{"a":1}\n'


def test_an_unanswered_question_is_an_error_even_if_the_tool_continues() -> None:
    class InProcessTarget(Target):
        """A server in this process. In its version, a tool can continue without an answer."""

        def client(self, **options: Any) -> Client:
            return Client(questions_server.server, protocol=LEGACY, **options)

    with pytest.raises(CommandError, match="The question has no answer") as raised:
        call_tool(
            InProcessTarget("questions", "questions", {}, 10), "both", (), None, no_answers(), as_json=False
        )
    assert raised.value.code == USAGE
    assert "First?" in raised.value.details


def test_a_question_in_a_session_of_an_older_version_is_not_taken_for_a_result() -> None:
    question = {"method": "elicitation/create", "params": {"message": "Who?", "requestedSchema": {}}}
    asking = {"resultType": "input_required", "inputRequests": {"who": question}, "content": []}
    answers = {"server/discover": -32601, "tools/list": TOOLS, "tools/call": asking}
    with (
        raw_http_server(responding_with(answers, tools={})) as address,
        pytest.raises(CommandError, match="The question has no answer") as raised,
    ):
        call_tool(target(address), "greet", (), None, no_answers(), as_json=False)
    assert raised.value.code == USAGE


# antiphon tasks


def legacy_tasks(address: str) -> ServerTasks:
    return ServerTasks(target(address), LEGACY)


def test_key_is_refused_in_versions_without_keys() -> None:
    task = {"taskId": "t1", "status": "input_required"}
    with (
        raw_http_server(responding_with({"tasks/get": task}, tasks=TASKS)) as address,
        pytest.raises(
            CommandError, match="Questions have no keys in protocol version 2025-11-25. Omit --key"
        ),
    ):
        answer_task(legacy_tasks(address), "t1", no_answers(), "name", as_json=False)


def test_requests_the_error_of_a_task_if_the_status_lacks_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    answers = {"tasks/get": {"taskId": "t1", "status": "failed"}, "tasks/result": -32603}
    with raw_http_server(responding_with(answers, tasks=TASKS)) as address:
        show_task(legacy_tasks(address), "t1", as_json=True)
    shown = json.loads(capsys.readouterr().out)
    assert (shown["status"], shown["error"]) == ("failed", {"code": -32603, "message": "No."})


def test_reports_a_task_without_questions_at_a_server_without_a_name() -> None:
    task = {"resultType": "complete", "taskId": "t1", "status": "working", "ttlMs": None}
    extension = {"io.modelcontextprotocol/tasks": {}}
    with (
        raw_http_server(responding_with({"tasks/get": task}, extensions=extension)) as address,
        pytest.raises(CommandError, match="Task t1 has no open question: its status is working"),
    ):
        answer_task(ServerTasks(target(address), None), "t1", no_answers(), None, as_json=False)


def test_a_url_of_another_scheme_is_a_usage_error() -> None:
    with pytest.raises(CommandError, match="'ftp://example.com' is neither the URL of a server"):
        task_source("ftp://example.com", None, None, 10, None)


@pytest.mark.parametrize("ask", [Sample({"messages": []}), ListRoots()])
async def test_refuses_questions_that_only_a_program_can_answer(ask: Sample | ListRoots) -> None:
    questions = {"visit": OpenUrl("Log in.", "https://example.com"), "other": ask}
    handler = ElicitationHandler(PreparedAnswers(), default_answer="accept")
    with pytest.raises(CommandError, match="The question 'other' is for a program"):
        await answer_questions(handler, questions, None)
    assert await answer_questions(handler, questions, "visit") == {"visit": {"action": "accept"}}
