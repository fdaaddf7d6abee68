"""`antiphon doctor` on our servers, on servers of other libraries, and on addresses that are not servers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from antiphon.cli.doctor.command import run_doctor
from antiphon.cli.exit_codes import UNREACHABLE, CommandError
from antiphon.cli.targets import Target
from antiphon.doctor.checks import is_local
from tests.cli.command import antiphon
from tests.cli.raw_http_server import http_response, raw_http_server

VERSIONS = ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"]


def target(place: str, *, timeout: float = 10.0) -> Target:
    return Target.parse(place, headers=(), token=None, timeout=timeout)


def report_of(place: str, capsys: pytest.CaptureFixture[str], *, code: int = 0) -> dict[str, Any]:
    """Return the JSON report of a server, with its checks by name."""
    assert run_doctor(target(place), as_json=True) == code
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] is (code == 0)
    return {**report, "checks": {check["name"]: check for check in report["checks"]}}


def error_of(place: str, *, timeout: float = 10.0) -> str:
    with pytest.raises(CommandError) as raised:
        run_doctor(target(place, timeout=timeout), as_json=False)
    assert raised.value.code == UNREACHABLE
    return raised.value.message


def test_reports_all_versions_and_features_of_our_server(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = report_of(url, capsys)
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
def test_checks_servers_of_other_libraries(
    peer: str,
    tasks: list[str],
    origins: str,
    start_peer: Callable[[str], str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = report_of(start_peer(peer), capsys)
    assert (found["server"]["name"], found["server"]["version"]) == ("peer", "1.2.3")
    checks = found["checks"]
    assert checks["versions"]["data"]["spoken"] == VERSIONS
    assert "add" in checks["tools"]["data"]
    assert checks["tasks"]["data"] == tasks
    assert checks["streaming"]["state"] == "absent"
    assert checks["origins"]["state"] == origins


def test_prints_one_line_for_each_check(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_doctor(target(url), as_json=False) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"served 0.0.0 at {url}, protocol version 2026-07-28"
    assert "none   tasks      none: a long call keeps its connection open" in lines
    assert lines[-1] == "The server works."


def test_checks_a_server_started_from_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
    assert "skip   origins    web pages cannot reach a server over stdio" in printed


def test_reports_a_file_that_cannot_be_imported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "broken.py").write_text("1 / 0\n")
    with pytest.raises(CommandError, match="process exited. Its output is above"):
        run_doctor(target(str(tmp_path / "broken.py")), as_json=True)
    report = json.loads(capsys.readouterr().out)
    assert (report["ok"], report["target"]) == (False, str(tmp_path / "broken.py"))


def test_the_report_is_coloured_on_a_terminal(
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
def test_checks_origins_only_for_local_servers(url: str, local: bool) -> None:
    assert is_local(url) is local


def test_a_declared_feature_that_does_not_work_fails(capsys: pytest.CaptureFixture[str]) -> None:
    with raw_http_server(_broken_server) as place:
        found = report_of(f"{place}/mcp", capsys, code=1)
    assert found["checks"]["tools"]["state"] == "failed"
    assert "No such method." in found["checks"]["tools"]["says"]
    assert found["checks"]["versions"]["data"]["spoken"] == ["2025-06-18"]
    assert "2026-07-28 or 2025-11-25" in found["checks"]["versions"]["advice"]
    with raw_http_server(_broken_server) as place:
        assert run_doctor(target(f"{place}/mcp"), as_json=False) == 1
    printed = capsys.readouterr().out
    assert "FAILED ping   " in printed
    assert "FAILED tools" in printed
    assert "checks failed." in printed


def _broken_server(method: str, body: str) -> bytes:
    """A server that declares tools, but implements no method except initialize."""
    if method != "POST":
        return http_response("405 Method Not Allowed")
    asked = json.loads(body)
    answer: dict[str, Any] = {"jsonrpc": "2.0", "id": asked.get("id")}
    if asked["method"] == "initialize":
        answer["result"] = {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "broken", "version": "1"},
        }
    elif "id" not in asked:
        return http_response("202 Accepted", body="")
    else:
        answer["error"] = {"code": -32601, "message": "No such method."}
    return http_response(kind="application/json", body=json.dumps(answer))


def test_explains_that_nothing_listens() -> None:
    assert "Is the server running" in error_of("http://127.0.0.1:9/mcp")


def test_finds_the_server_at_another_path(url: str) -> None:
    base = url.removesuffix("/mcp")
    assert error_of(f"{base}/api") == f"There is no MCP server at {base}/api, but there is one at {base}/mcp"


def test_finds_a_nearby_server_that_requires_a_token() -> None:
    with raw_http_server(
        lambda method, body: (
            http_response("401 Unauthorized") if next(turns) else http_response("404 Not Found")
        )
    ) as place:
        # Four requests go to the address itself, and the fifth looks for the transport of 2024-11-05.
        turns = iter([False] * 5 + [True] * 20)
        assert "but there is one at " in error_of(f"{place}/elsewhere")


def test_explains_that_a_web_site_is_not_a_server() -> None:
    with raw_http_server(lambda method, body: http_response()) as place:
        said = error_of(f"{place}/mcp")
    assert "answered initialize with text/html, not JSON" in said
    assert said.endswith("Other paths were tried and are not MCP servers: /mcp/, /, /sse.")


def test_explains_a_404() -> None:
    with raw_http_server(lambda method, body: http_response("404 Not Found")) as place:
        assert "there seems to be no MCP server at this address" in error_of(place)


def test_explains_that_http_sse_is_not_supported() -> None:
    with raw_http_server(
        lambda method, body: (
            http_response("405 Method Not Allowed")
            if method == "POST"
            else http_response(kind="text/event-stream", body="event: endpoint\ndata: /messages?id=1\n\n")
        )
    ) as place:
        assert "uses HTTP+SSE, the transport of 2024-11-05" in error_of(f"{place}/sse")


@pytest.mark.parametrize(
    "stream",
    [
        http_response(kind="text/event-stream", body=""),
        http_response(kind="text/event-stream", body=": hello\n\n"),
        b"What?",
    ],
)
def test_a_stream_without_an_endpoint_event_is_not_http_sse(stream: bytes) -> None:
    with raw_http_server(
        lambda method, body: http_response("404 Not Found") if method == "POST" else stream
    ) as place:
        assert error_of(f"{place}/mcp").endswith(
            "Other paths were tried and are not MCP servers: /mcp/, /, /sse."
        )


def test_explains_that_a_server_requires_a_token(guarded_url: str) -> None:
    said = error_of(guarded_url)
    assert "requires authentication (Bearer" in said
    assert "--token" in said


def test_explains_a_forbidden_connection() -> None:
    with raw_http_server(lambda method, body: http_response("403 Forbidden")) as place:
        assert "refuses the connection" in error_of(place)


def test_a_silent_server_times_out() -> None:
    with raw_http_server(None) as place:
        assert "--timeout" in error_of(place, timeout=0.3)


def test_prints_an_unreachable_server_as_json() -> None:
    done = antiphon("doctor", "http://127.0.0.1:9/mcp", "--json")
    assert done.returncode == 3
    report = json.loads(done.stdout)
    assert (report["ok"], report["target"]) == (False, "http://127.0.0.1:9/mcp")
    assert report["error"] in done.stderr


def test_a_missing_target_is_a_usage_error() -> None:
    done = antiphon("doctor")
    assert (done.returncode, done.stderr) == (
        2,
        "Error: Missing target: name a URL, a Python file or a command (-- COMMAND), or set ANTIPHON_URL.\n",
    )
