"""Every command against a server whose every string is poisoned: the terminal gets printable text alone."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import COMMAND, PATIENCE, plain_environment
from tests.client.fakes import Reply
from tests.hostile.hostile_server import POISON, TASKS, fails_with, hostile_server, scripted, text, tool
from tests.hostile.terminal import assert_printable, foreign_text, in_pipes, in_pseudo_terminal

URL = f"https://ada:pw@аррӏе.example/{POISON}"
TASK = {"taskId": f"t{POISON}", "statusMessage": POISON, "ttlMs": None, "pollIntervalMs": 10}
SCHEMA = {
    "type": "object",
    "properties": {f"a{POISON}": {"type": ["string", POISON], "default": POISON, "description": POISON}},
    "required": [POISON],
}
FORM = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": POISON, "description": POISON, "default": POISON},
        f"n{POISON}": {"type": "string", "enum": [POISON, f"b{POISON}"], "enumNames": [POISON, POISON]},
    },
    "required": ["name"],
}
CONTENT = [
    {"type": "text", "text": f"# Head {POISON}\n\n[{POISON}]({URL}) &#x202e; &#27; **b** `{POISON}`"},
    {"type": "resource_link", "uri": URL, "name": POISON, "title": POISON},
    {"type": "image", "mimeType": POISON, "data": "aGk="},
    {"type": "resource", "resource": {"uri": URL, "blob": "aGk=", "mimeType": POISON}},
    {"type": "resource", "resource": {"uri": URL, "text": POISON}},
    {"type": POISON, "text": POISON, "url": URL},
    {"type": POISON, POISON: [POISON]},
]


async def noisy(reply: Reply) -> None:
    """Send progress and log messages, then the result."""
    token = reply.request.params["_meta"].get("progressToken")
    await reply.events()
    progress = {"progressToken": token, "progress": 1, "total": 2, "message": POISON}
    await reply.event({"method": "notifications/progress", "params": progress})
    log = {"level": "info", "logger": POISON, "data": POISON}
    await reply.event({"method": "notifications/message", "params": log})
    await reply.event({"method": "notifications/message", "params": {**log, "data": {POISON: POISON}}})
    result = {"resultType": "complete", "content": CONTENT, "structuredContent": {POISON: [POISON]}}
    await reply.event({"id": reply.request.id, "result": result})


async def unauthorized(reply: Reply) -> None:
    await reply.body(401, "text/plain", b"", www_authenticate="Bearer realm=\xc2\x9b2J")


async def moved(reply: Reply) -> None:
    await reply.head(301, None, location="https://evil.example/\xe2\x80\xae", content_length="0")


def asks(question: Mapping[str, Any]) -> dict[str, Any]:
    """Ask a question in place of the result."""
    request = {"method": "elicitation/create", "params": question}
    return {"resultType": "input_required", "inputRequests": {POISON: request}, "requestState": "s"}


def task(status: str, **fields: Any) -> dict[str, Any]:
    return {"resultType": "complete", **TASK, "status": status, **fields}


LISTED: dict[str, Any] = {"tools/list": tool(SCHEMA, description=f"x{POISON}", title=POISON)}
LISTED["tools/list"]["tools"].append({"name": f"other{POISON}", "inputSchema": {}})
LISTED |= {
    "resources/list": {"resources": [{"uri": URL, "name": POISON}]},
    "resources/templates/list": {"resourceTemplates": [{"uriTemplate": POISON, "name": POISON}]},
    "prompts/list": {"prompts": [{"name": POISON}]},
    "tools/call": noisy,
}
QUESTION = {"mode": "form", "message": POISON, "requestedSchema": FORM}
PAGE = {"mode": "url", "message": POISON, "url": URL, "elicitationId": POISON}
ASKING = {
    POISON: {"method": "elicitation/create", "params": QUESTION},
    "page": {"method": "elicitation/create", "params": PAGE},
}
INBOX = {
    "dev.antiphon/inbox/list": {
        "resultType": "complete",
        "items": [
            {"taskId": f"{TASK['taskId']}", "key": POISON, "tool": POISON, "owner": POISON, "to": [POISON]}
            | {"request": {"method": "elicitation/create", "params": params}}
            for params in (QUESTION, PAGE)
        ],
    },
    "dev.antiphon/inbox/answer": fails_with(POISON, -32602),
}
PROMPTS = {
    "prompts/list": {"prompts": [{"name": "ask", "arguments": [{"name": f"a{POISON}", "required": False}]}]},
    "prompts/get": {
        "description": POISON,
        "messages": [{"role": "user", "content": block} for block in CONTENT[:5]],
    },
}
READ = {
    "resources/read": {
        "contents": [
            {"uri": URL, "text": POISON, "mimeType": "text/markdown"},
            {"uri": URL, "text": POISON, "mimeType": POISON, "_meta": {"next": f"{URL}?{POISON}"}},
            {"uri": URL, "blob": "aGk=", "mimeType": POISON},
        ]
    }
}
FAULT = {"code": -32603, "message": POISON, "data": POISON}
AS_TASK = {"tools/call": {**TASK, "resultType": "task", "status": "working"}}

CASES: dict[str, tuple[dict[str, Any], Sequence[str]]] = {
    "tools": ({}, ("tools", "URL")),
    "tools-json": ({}, ("tools", "URL", "--json")),
    "tools-error": ({"tools/list": fails_with(POISON)}, ("tools", "URL")),
    "call": ({}, ("call", "URL", "tool")),
    "call-json": ({}, ("call", "URL", "tool", "--json")),
    "call-unknown": ({}, ("call", "URL", "nothing")),
    "call-similar": ({}, ("call", "URL", "othe")),
    "call-invalid": ({}, ("call", "URL", "tool", "--args", "{nope")),
    "call-failed": ({"tools/call": text(POISON, isError=True)}, ("call", "URL", "tool")),
    "call-error": ({"tools/call": fails_with(POISON)}, ("call", "URL", "tool")),
    "call-unknown-result": ({"tools/call": {"resultType": POISON}}, ("call", "URL", "tool")),
    "call-bad-content": ({"tools/call": {"content": [POISON]}}, ("call", "URL", "tool")),
    "call-stream": ({}, ("call", "URL", "tool", "--stream")),
    "call-question": ({"tools/call": asks(QUESTION)}, ("call", "URL", "tool", "--no-input")),
    "call-page": ({"tools/call": asks(PAGE)}, ("call", "URL", "tool", "--no-input")),
    "call-file": ({"tools/call": asks({**PAGE, "url": f"file:{POISON}"})}, ("call", "URL", "tool")),
    "call-prompted": ({"tools/call": asks(QUESTION)}, ("call", "URL", "tool")),
    "call-prompted-page": ({"tools/call": asks(PAGE)}, ("call", "URL", "tool")),
    "call-save": ({}, ("call", "URL", "tool", "--save", "FOLDER")),
    "resources": ({}, ("resources", "URL")),
    "resources-json": ({}, ("resources", "URL", "--json")),
    "read": (READ, ("read", "URL", "a://b")),
    "read-save": (READ, ("read", "URL", "a://b", "--save", "FOLDER")),
    "read-error": ({"resources/read": fails_with(POISON)}, ("read", "URL", "a://b")),
    "prompts": ({}, ("prompts", "URL")),
    "prompt": (PROMPTS, ("prompt", "URL", "ask")),
    "prompt-argument": (PROMPTS, ("prompt", "URL", "ask", "b=c")),
    "prompt-unknown": ({}, ("prompt", "URL", "nothing")),
    "complete": (
        {"completion/complete": {"completion": {"values": [POISON, f"b{POISON}"], "hasMore": True}}},
        ("complete", "URL", "ask", "a"),
    ),
    "task": (
        {**AS_TASK, "tasks/get": task("completed", result=text(POISON))},
        ("call", "URL", "tool", "--task"),
    ),
    "task-failed": ({**AS_TASK, "tasks/get": task("failed", error=FAULT)}, ("call", "URL", "tool", "--task")),
    "task-cancelled": ({**AS_TASK, "tasks/get": task("cancelled")}, ("call", "URL", "tool", "--task")),
    "task-late": (
        {**AS_TASK, "tasks/get": task("working")},
        ("call", "URL", "tool", "--task", "--timeout", "1"),
    ),
    "doctor": ({}, ("doctor", "URL")),
    "doctor-json": ({}, ("doctor", "URL", "--json")),
    "doctor-lists": ({"resources/list": fails_with(POISON)}, ("doctor", "URL")),
    "doctor-401": ({"server/discover": unauthorized}, ("doctor", "URL")),
    "doctor-301": ({"server/discover": moved, "initialize": moved}, ("doctor", "URL")),
    "show": ({"tasks/get": task("completed", result=text(POISON))}, ("tasks", "show", "URL", TASK["taskId"])),
    "show-asking": (
        {"tasks/get": task("input_required", inputRequests=ASKING)},
        ("tasks", "show", "URL", TASK["taskId"]),
    ),
    "show-json": (
        {"tasks/get": task("failed", error=FAULT)},
        ("tasks", "show", "URL", TASK["taskId"], "--json"),
    ),
    "show-other": ({"tasks/get": task("working", taskId=f"other{POISON}")}, ("tasks", "show", "URL", "t")),
    "watch": ({"tasks/get": task("failed", error=FAULT)}, ("tasks", "watch", "URL", TASK["taskId"])),
    "watch-asking": (
        {"tasks/get": task("input_required", inputRequests=ASKING)},
        ("tasks", "watch", "URL", TASK["taskId"], "--timeout", "1"),
    ),
    "answer": (
        {"tasks/get": task("input_required", inputRequests=ASKING)},
        ("tasks", "answer", "URL", TASK["taskId"], "--no-input"),
    ),
    "answer-key": (
        {"tasks/get": task("input_required", inputRequests=ASKING)},
        ("tasks", "answer", "URL", TASK["taskId"], "--key", "none"),
    ),
    "answer-late": ({"tasks/get": task("working")}, ("tasks", "answer", "URL", TASK["taskId"])),
    "cancel": (
        {"tasks/get": task("working"), "tasks/cancel": task("working")},
        ("tasks", "cancel", "URL", TASK["taskId"]),
    ),
    "ls": ({}, ("tasks", "ls", "URL")),
    "inbox": (INBOX, ("inbox", "URL")),
    "inbox-list": (INBOX, ("inbox", "URL", "--no-input")),
    "inbox-json": (INBOX, ("inbox", "URL", "--json")),
    "inbox-task": (INBOX, ("inbox", "URL", TASK["taskId"], "--no-input")),
    "inbox-declined": (INBOX, ("inbox", "URL", TASK["taskId"], "--default-answer", "decline")),
    "inbox-nothing": (INBOX, ("inbox", "URL", POISON)),
    "inbox-error": ({"dev.antiphon/inbox/list": fails_with(POISON)}, ("inbox", "URL", "--timeout", "2")),
}


# On these commands, the output differs between a terminal and a pipe.
PIPED = (
    "tools",
    "tools-json",
    "call",
    "call-json",
    "call-failed",
    "call-stream",
    "call-prompted",
    "resources",
    "read",
    "task",
    "doctor",
)


@pytest.mark.parametrize(
    ("case", "on_terminal"), [*((case, True) for case in CASES), *((case, False) for case in PIPED)]
)
def test_the_terminal_gets_printable_text_alone(case: str, on_terminal: bool, tmp_path: Path) -> None:
    answers, words = CASES[case]
    script = scripted(
        {**LISTED, **answers},
        name=f"srv{POISON}",
        tools={},
        resources={},
        prompts={},
        extensions=TASKS,
    )
    with hostile_server(script) as server:
        # An argument of a process cannot have a NUL.
        arguments = [word.replace("URL", server.url).replace("\0", "") for word in words]
        arguments = [word.replace("FOLDER", str(tmp_path)) for word in arguments]
        shown = in_pseudo_terminal(arguments) if on_terminal else in_pipes(arguments)
    assert shown.strip(), "it printed nothing"
    assert "Traceback" not in shown
    rest = foreign_text(shown) if on_terminal else shown
    assert_printable(rest)
    if case in ("call", "call-save", "call-stream", "prompt"):
        assert "***@xn--80ak6aa92e.example/" in rest
    elif "json" not in case:
        assert "ada:pw" not in rest.replace("\n", "")
    # The line that the server forges begins no line, except in the text of a result.
    if not any(name in case for name in ("call-failed", "task", "show")) and case not in (
        "call",
        "call-save",
        "call-stream",
        "read",
        "prompt",
    ):
        assert "\nError: forged" not in rest.replace("\r", "")


def test_a_terminal_without_unicode_gets_escapes() -> None:
    with hostile_server(scripted({**LISTED, "tools/call": text("snow ☃ \ufffd")}, tools={})) as server:
        done = subprocess.run(
            [*COMMAND, "call", server.url, "tool"],
            env={**plain_environment(), "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE,
            check=False,
        )
    assert (done.returncode, done.stdout) == (0, b"snow \\u2603 \\ufffd\n")


def test_the_cases_cover_every_command_that_talks_to_a_server() -> None:
    from antiphon.cli.commands import app
    from antiphon.cli.tasks.commands import app as tasks
    from tests.hostile.test_terminal_logins import CASES as LOGIN_CASES

    # The gateway and `dev` print the names of tools, as `run` does: tests/cli/test_serve.py. The console
    # prints its own address; what servers say stands in its pages: tests/console. `install`, `mcp-json` and
    # `new` read and write files of the user.
    local = {"run", "dev", "console", "gateway", "worker", "export", "import", "retry", "rm", "send"}
    local |= {"install", "mcp-json", "new"}
    names = {each.name or each.callback.__name__ for each in app.registered_commands if each.callback}
    names |= {each.name or each.callback.__name__ for each in tasks.registered_commands if each.callback}
    covered = {word for _, words in [*CASES.values(), *LOGIN_CASES.values()] for word in words[:2]}
    assert names - local <= covered
