"""`antiphon doctor`: what it says of our servers, of others' and of what is none."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from antiphon.cli.doctor.checks import _is_local, run_doctor
from antiphon.cli.exit_codes import UNREACHABLE, CommandError
from antiphon.cli.targets import Target
from tests.cli.command import antiphon
from tests.cli.raw_http_server import http_response, raw_http_server

VERSIONS = ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"]


def target(place: str, *, timeout: float = 10.0) -> Target:
    return Target.parse(place, headers=(), token=None, timeout=timeout)


def examined(place: str, capsys: pytest.CaptureFixture[str], *, code: int = 0) -> dict[str, Any]:
    """What is found out about a server, by the name of the check."""
    assert run_doctor(target(place), as_json=True) == code
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] is (code == 0)
    return {**report, "checks": {check["name"]: check for check in report["checks"]}}


def diagnosis(place: str, *, timeout: float = 10.0) -> str:
    with pytest.raises(CommandError) as raised:
        run_doctor(target(place, timeout=timeout), as_json=False)
    assert raised.value.code == UNREACHABLE
    return raised.value.message


def test_a_server_of_ours_speaks_every_version_and_says_what_it_offers(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = examined(url, capsys)
    assert found["server"]["name"] == "served"
    assert found["version"] == "2026-07-28"
    checks = found["checks"]
    assert checks["versions"]["data"] == {"spoken": VERSIONS, "refused": {}}
    assert {"greet", "slow"} <= set(checks["tools"]["data"])
    assert len(checks["ping"]["data"]["pings"]) == 5
    assert 0 < checks["ping"]["ms"] < 10_000
    assert checks["origins"]["state"] == "ok"
    assert checks["streaming"]["data"] == ["2026-07-28"]
    assert [name for name, check in checks.items() if check["state"] == "absent"] == [
        "resources",
        "prompts",
        "tasks",
    ]


@pytest.mark.parametrize(
    ("peer", "tasks", "origins"),
    [("mcp", [], "ok"), ("fastmcp", [], "advice"), ("fastmcp_tasks", ["2026-07-28"], "advice")],
)
def test_a_server_of_others_gets_as_good_a_look(
    peer: str,
    tasks: list[str],
    origins: str,
    start_peer: Callable[[str], str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = examined(start_peer(peer), capsys)
    assert (found["server"]["name"], found["server"]["version"]) == ("peer", "1.2.3")
    checks = found["checks"]
    assert checks["versions"]["data"]["spoken"] == VERSIONS
    assert "add" in checks["tools"]["data"]
    assert checks["tasks"]["data"] == tasks
    assert checks["streaming"]["state"] == "absent"
    assert checks["origins"]["state"] == origins


def test_on_a_terminal_or_in_a_pipe_it_is_a_line_for_each_check(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_doctor(target(url), as_json=False) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"served 0.0.0 at {url}, protocol version 2026-07-28"
    assert "none   tasks      none: a long call keeps its connection open" in lines
    assert lines[-1] == "The server works."


def test_a_file_is_started_and_looked_at(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "bare.py"
    file.write_text(
        'from antiphon import Server\n\nserver = Server("bare")\n\n\n'
        '@server.tool(task="optional")\nasync def mute() -> str:\n    return ""\n'
    )
    assert run_doctor(target(str(file)), as_json=False) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"bare 0.0.0 at {file}, protocol version 2026-07-28\n")
    assert "warn   tools      1: mute\n                  Describe mute:" in printed
    assert "ok     tasks      in 2026-07-28, 2025-11-25; tools: mute" in printed
    assert printed.endswith("The server works, with 1 warning.\n")
    assert "origins" not in printed


def test_a_file_that_does_not_start_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "broken.py").write_text("1 / 0\n")
    with pytest.raises(CommandError, match="process exited. Its output is above"):
        run_doctor(target(str(tmp_path / "broken.py")), as_json=True)
    report = json.loads(capsys.readouterr().out)
    assert (report["ok"], report["target"]) == (False, str(tmp_path / "broken.py"))


def test_it_is_coloured_on_a_terminal(
    url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert run_doctor(target(url), as_json=False) == 0
    assert "\x1b[32mok" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("http://localhost:1/", True),
        ("http://a.localhost/", True),
        ("http://[::1]:8000/mcp", True),
        ("https://example.com/mcp", False),
        ("http://10.0.0.1/mcp", False),
    ],
)
def test_only_a_server_of_this_machine_is_asked_about_strange_origins(url: str, local: bool) -> None:
    assert _is_local(url) is local


def test_a_server_that_cannot_do_what_it_declares_has_failed(capsys: pytest.CaptureFixture[str]) -> None:
    with raw_http_server(_liar) as place:
        found = examined(f"{place}/mcp", capsys, code=1)
    assert found["checks"]["tools"]["state"] == "failed"
    assert "No such method." in found["checks"]["tools"]["says"]
    assert found["checks"]["versions"]["data"]["spoken"] == ["2025-06-18"]
    assert "2026-07-28 or 2025-11-25" in found["checks"]["versions"]["advice"]
    with raw_http_server(_liar) as place:
        assert run_doctor(target(f"{place}/mcp"), as_json=False) == 1
    printed = capsys.readouterr().out
    assert "FAILED ping   " in printed
    assert "FAILED tools" in printed
    assert "checks failed." in printed


def _liar(method: str, body: str) -> bytes:
    """Knows one old version, declares tools, and has no other method."""
    if method != "POST":
        return http_response("405 Method Not Allowed")
    asked = json.loads(body)
    answer: dict[str, Any] = {"jsonrpc": "2.0", "id": asked.get("id")}
    if asked["method"] == "initialize":
        answer["result"] = {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "liar", "version": "1"},
        }
    elif "id" not in asked:
        return http_response("202 Accepted", body="")
    else:
        answer["error"] = {"code": -32601, "message": "No such method."}
    return http_response(kind="application/json", body=json.dumps(answer))


def test_where_nobody_listens_it_says_so() -> None:
    assert "Is the server running" in diagnosis("http://127.0.0.1:9/mcp")


def test_the_wrong_path_leads_to_the_right_one(url: str) -> None:
    base = url.removesuffix("/mcp")
    assert diagnosis(f"{base}/api") == f"There is no MCP server at {base}/api, but there is one at {base}/mcp"


def test_a_server_beside_it_that_wants_a_token_is_one_too() -> None:
    with raw_http_server(
        lambda method, body: (
            http_response("401 Unauthorized") if next(turns) else http_response("404 Not Found")
        )
    ) as place:
        # The first two requests are for the address itself, and the third looks for the old transport.
        turns = iter([False, False, False, *[True] * 20])
        assert "but there is one at " in diagnosis(f"{place}/elsewhere")


def test_a_web_site_is_told_from_a_server() -> None:
    with raw_http_server(lambda method, body: http_response()) as place:
        said = diagnosis(f"{place}/mcp")
    assert "answered initialize with text/html, not JSON" in said
    assert said.endswith("Tried beside it, and found none: /mcp/, /, /sse.")


def test_a_page_that_is_not_there_is_told_too() -> None:
    with raw_http_server(lambda method, body: http_response("404 Not Found")) as place:
        assert "there seems to be no MCP server at this address" in diagnosis(place)


def test_the_transport_of_2024_is_recognised() -> None:
    with raw_http_server(
        lambda method, body: (
            http_response("405 Method Not Allowed")
            if method == "POST"
            else http_response(kind="text/event-stream", body="event: endpoint\ndata: /messages?id=1\n\n")
        )
    ) as place:
        assert "speaks HTTP+SSE, the transport of 2024-11-05" in diagnosis(f"{place}/sse")


@pytest.mark.parametrize(
    "stream",
    [
        http_response(kind="text/event-stream", body=""),
        http_response(kind="text/event-stream", body=": hello\n\n"),
        b"What?",
    ],
)
def test_a_stream_that_names_no_endpoint_is_not_the_transport_of_2024(stream: bytes) -> None:
    with raw_http_server(
        lambda method, body: http_response("404 Not Found") if method == "POST" else stream
    ) as place:
        assert diagnosis(f"{place}/mcp").endswith("Tried beside it, and found none: /mcp/, /, /sse.")


def test_a_server_that_wants_a_token_is_recognised(guarded_url: str) -> None:
    said = diagnosis(guarded_url)
    assert "wants to know who is calling (Bearer" in said
    assert "--token" in said


def test_a_door_that_stays_shut_is_told_apart() -> None:
    with raw_http_server(lambda method, body: http_response("403 Forbidden")) as place:
        assert "lets nobody in who comes like this" in diagnosis(place)


def test_silence_ends_with_the_deadline() -> None:
    with raw_http_server(None) as place:
        assert "--timeout" in diagnosis(place, timeout=0.3)


def test_a_program_hears_of_it_as_json() -> None:
    done = antiphon("doctor", "http://127.0.0.1:9/mcp", "--json")
    assert done.returncode == 3
    report = json.loads(done.stdout)
    assert (report["ok"], report["target"]) == (False, "http://127.0.0.1:9/mcp")
    assert report["error"] in done.stderr


def test_without_a_target_it_asks_for_one() -> None:
    done = antiphon("doctor")
    assert (done.returncode, done.stderr) == (
        2,
        "Error: Say which server: a URL, or a Python file. Or set ANTIPHON_URL.\n",
    )
