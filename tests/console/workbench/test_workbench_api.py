"""The API of the workbench over real HTTP: connections, calls, questions, messages and bounds."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from antiphon import Client, Context, Server
from antiphon.console.sources import ServerSource
from antiphon.console.workbench import calls, connections
from antiphon.console.workbench.catalog import expand, form_schema
from antiphon.server_target import ServerTarget
from antiphon.testing import replay
from tests.console.support import RunningConsole, serving_console
from tests.console.workbench.bench_server import bench_console, bench_server, source_at, source_of
from tests.support.polling import DEADLINE, until
from tests.support.serving import serving


class Bench:
    """A connection of the workbench, as a page uses it."""

    def __init__(self, console: RunningConsole, view: dict[str, Any]) -> None:
        self.console = console
        self.view = view
        self.path = f"/api/workbench/connections/{view['id']}"

    async def get(self, rest: str, **query: Any) -> Any:
        return await self.console.get(f"{self.path}/{rest}", **query)

    async def post(self, rest: str, body: Any = None, *, status: int = 200) -> Any:
        return await self.console.post(f"{self.path}/{rest}", body, status=status)

    async def start(self, name: str, arguments: Any = None, **options: Any) -> str:
        call = await self.post(
            "calls", {"kind": "tool", "name": name, "arguments": arguments or {}, **options}
        )
        return str(call["id"])

    async def ended(self, call: str) -> dict[str, Any]:
        """Return a call once it has ended."""
        return await self.until(f"calls/{call}", lambda view: view["status"] != "running")

    async def until(self, path: str, holds: Callable[[Any], bool]) -> Any:
        async def seen() -> Any:
            return view if holds(view := await self.get(path)) else None

        return await until(seen)

    async def call(self, name: str, arguments: Any = None, **options: Any) -> dict[str, Any]:
        return await self.ended(await self.start(name, arguments, **options))

    async def snapshot(self) -> dict[str, Any]:
        """Return what a page gets when it opens."""
        found: dict[str, Any] = (await self.events("snapshot"))[0][1]
        return found

    async def question(self) -> dict[str, Any]:
        """Return the question that is open, once there is one."""

        async def asked() -> list[dict[str, Any]]:
            return list((await self.snapshot())["questions"])

        return (await until(asked))[0]

    async def events(self, wanted: str) -> list[tuple[str, Any]]:
        """Return the events of the connection up to the first one of a name."""
        seen: list[tuple[str, Any]] = []
        async with (
            asyncio.timeout(DEADLINE),
            self.console.http.get(f"{self.console.url}{self.path}/events") as response,
        ):
            name = ""
            async for line in response.content:
                if line.startswith(b"event: "):
                    name = line[7:].strip().decode()
                elif line.startswith(b"data: "):
                    seen.append((name, json.loads(line[6:])))
                    if name == wanted:
                        return seen
        raise AssertionError(f"There was no event {wanted}.")


async def connected(console: RunningConsole, server: str = "bench", **options: Any) -> Bench:
    view = await console.post("/api/workbench/connections", {"server": server, **options})
    assert "error" not in view, view
    return Bench(console, view)


async def test_a_connection_describes_the_server_and_lists_what_it_offers() -> None:
    async with bench_console() as console:
        bench = await connected(console)
        assert bench.view["server"]["name"] == "bench"
        assert bench.view["version"] == "2026-07-28"
        assert bench.view["instructions"] == "Try the tools."
        catalog = await bench.get("catalog")
        items = {item["ref"]: item for item in catalog["items"]}
        assert items["add"]["schema"]["required"] == ["a"]
        assert items["add"]["about"] == "Adds two numbers."
        assert items["note://{name}"]["schema"]["properties"] == {"name": {"type": "string"}}
        assert not items["note://{name}"]["canSubscribe"]
        assert (items["add"]["verb"], items["note://{name}"]["verb"], items["greet"]["verb"]) == (
            "Call",
            "Read",
            "Get",
        )
        assert items["greet"]["schema"]["required"] == ["name"]
        assert catalog["errors"] == {}
        assert [(tab["label"], tab["error"]) for tab in catalog["tabs"]] == [
            ("Tools", None),
            ("Resources", None),
            ("Prompts", None),
        ]
        assert sum(tab["count"] for tab in catalog["tabs"]) == len(items)
        assert (bench.view["title"], bench.view["versions"][0]) == ("bench", ["", "Newest: 2026-07-28"])


async def test_two_pages_share_a_connection_and_a_version_has_its_own() -> None:
    async with bench_console() as console:
        first, second = await connected(console), await connected(console)
        older = await connected(console, protocol="2025-11-25")
        assert first.view["id"] == second.view["id"] != older.view["id"]
        assert older.view["version"] == "2025-11-25"
        assert (await older.call("add", {"a": 1}))["outcome"]["structuredContent"] == {"result": 3}


async def test_a_call_has_a_result_or_says_what_is_wrong() -> None:
    async with bench_console() as console:
        bench = await connected(console)
        done = await bench.call("add", {"a": 1, "b": 5})
        assert (done["status"], done["outcome"]["content"][0]["text"]) == ("done", "6")
        assert done["shown"] == {"data": 6, "repeating": [0]}
        wrong = await bench.call("add", {"a": "x"})
        assert wrong["status"] == "failed"
        assert "a" in json.dumps(wrong["error"] or wrong["outcome"])
        missing = await bench.call("nothing")
        assert missing["status"] == "failed"
        assert "nothing" in json.dumps(missing["error"] or missing["outcome"])


@pytest.mark.parametrize("protocol", ["2026-07-28", "2025-11-25"])
async def test_a_question_is_answered_in_place(protocol: str) -> None:
    async with bench_console() as console:
        bench = await connected(console, protocol=protocol)
        call = await bench.start("plan")
        question = await bench.question()
        assert question["message"] == "Where do you want to go?"
        assert question["kind"] == "form"
        assert question["call"] in (call, None)
        answer = f"questions/{question['id']}"
        refused = await bench.post(
            answer, {"action": "accept", "content": {"city": "Oslo", "days": 99}}, status=422
        )
        assert "at most 14" in refused["fields"]["days"]
        await bench.post(answer, {"action": "accept", "content": {"city": "Oslo", "days": 3}})
        done = await bench.ended(call)
        assert done["outcome"]["content"][0]["text"] == "3 days in Oslo"
        await bench.post(answer, {"action": "accept", "content": {}}, status=409)


async def test_a_person_answers_in_place_of_a_model_or_declines() -> None:
    async with bench_console() as console:
        bench = await connected(console)
        for action, status in (("accept", "done"), ("decline", "failed")):
            call = await bench.start("model")
            question = await bench.question()
            assert question["said"][-1]["content"]["text"] == "Say a word."
            await bench.post(f"questions/{question['id']}", {"action": action, "content": {"text": "Word."}})
            assert (await bench.ended(call))["status"] == status


@pytest.mark.parametrize("as_task", [False, True])
async def test_segments_and_progress_come_while_a_tool_runs(as_task: bool) -> None:
    server, may_end = bench_server(), asyncio.Event()

    @server.tool(task="optional")
    async def tell(ctx: Context) -> str:
        for number in range(1, 4):
            await ctx.emit(f"{number}")
        await ctx.progress(3, 4, "at 3")
        await may_end.wait()
        return "told"

    async with bench_console(server) as console:
        bench = await connected(console)
        call = await bench.start("tell", asTask=as_task)
        running = await bench.until(
            f"calls/{call}", lambda view: len(view["segments"]) == 3 and view["progress"]
        )
        assert [block["text"] for block in running["segments"]] == ["1", "2", "3"]
        assert (running["status"], running["progress"]["message"]) == ("running", "at 3")
        may_end.set()
        done = await bench.ended(call)
        assert done["status"] == "done", done
        assert [block["text"] for block in done["segments"]][:3] == ["1", "2", "3"]
        assert done["taskId"] or not as_task  # the server may make a task of any call


async def test_a_call_is_cancelled() -> None:
    async with bench_console() as console:
        bench = await connected(console)
        call = await bench.start("wait")
        await bench.post(f"calls/{call}/cancel")
        assert (await bench.ended(call))["status"] == "cancelled"


async def test_resources_prompts_and_completions() -> None:
    async with bench_console() as console:
        bench = await connected(console)
        read = await bench.post(
            "reads", {"kind": "resource", "name": "note://{name}", "arguments": {"name": "one"}}
        )
        contents = (await bench.ended(read["id"]))["outcome"]["contents"]
        assert contents[0]["text"] == "The note one."
        prompt = await bench.post("reads", {"kind": "prompt", "name": "greet", "arguments": {"name": "Ada"}})
        messages = (await bench.ended(prompt["id"]))["outcome"]["messages"]
        assert messages[0]["content"]["text"] == "Greet Ada warmly."
        found = await bench.post("completions", {"ref": "note://{name}", "argument": "name", "value": "o"})
        assert found["values"] == ["one", "other"]


async def test_every_message_is_kept_and_a_test_can_replay_them(tmp_path: Path) -> None:
    server = bench_server()
    async with serving(server) as address, serving_console(servers=[source_at(address.url)]) as console:
        bench = await connected(console, "remote")
        await bench.call("add", {"a": 1, "b": 5})
        snapshot = await bench.snapshot()
        sent = next(each for each in snapshot["messages"] if each["method"] == "tools/call")
        assert (sent["from"], sent["kind"]) == ("client", "request")
        answer = next(
            each for each in snapshot["messages"] if each["kind"] == "response" and each["id"] == sent["id"]
        )
        assert answer["method"] == "tools/call"
        assert answer["ms"] >= 0
        body = await bench.get(f"messages/{sent['number']}")
        assert body["message"]["params"]["arguments"] == {"a": 1, "b": 5}
        async with console.http.get(f"{console.url}{bench.path}/messages.jsonl") as exported:
            assert "attachment" in exported.headers["content-disposition"]
            content = await exported.read()
        assert b"a-secret-token" not in content
        path = tmp_path / "messages.jsonl"
        path.write_bytes(content)
        await bench.post("messages/clear")
        assert (await bench.snapshot())["messages"] == []
    async with Client(replay(path)) as client:
        assert (await client.call("add", a=1, b=5)).text == "6"


async def test_a_server_that_does_not_respond_is_explained_and_its_messages_are_kept() -> None:
    app = Server("elsewhere")
    async with serving(app) as address:
        wrong = address.url.replace("/mcp", "/wrong")
        async with serving_console(
            servers=[source_at(wrong), source_at("http://127.0.0.1:9/mcp", "none")]
        ) as console:
            view = await console.post("/api/workbench/connections", {"server": "remote"})
            assert view["error"].endswith(f"but there is one at {address.url}")
            bench = Bench(console, view)
            assert (await bench.snapshot())["messages"][-1]["kind"] == "failure"
            view = await console.post("/api/workbench/connections", {"server": "none"})
            assert "Is the server running" in view["error"]
            report = await console.post("/api/servers/none/doctor")
            assert not report["ok"]
            assert "Is the server running" in report["error"]


async def test_the_doctor_examines_servers_in_the_process_too() -> None:
    async with bench_console() as console:
        report = await console.post("/api/servers/bench/doctor")
        assert report["ok"]
        checks = {check["name"]: check for check in report["checks"]}
        assert "2025-11-25" in checks["versions"]["says"]
        assert checks["tools"]["says"].startswith("7:")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "file:///etc/passwd",
        "npx server",
        "ftp://host/",
        "http://",
        "http://me:pw@host/",
        "http://:pw@host/",
        "http://@host/",
        "http://a b/",
    ],
)
async def test_only_web_addresses_are_added(url: str) -> None:
    async with serving_console() as console:
        refused = await console.post("/api/servers", {"url": url}, status=422)
        assert refused["fields"]["url"]


async def test_a_server_is_added_used_and_removed() -> None:
    async with serving(bench_server()) as address, serving_console() as console:
        added = await console.post("/api/servers", {"url": address.url, "token": "a-secret-token"})
        bench = await connected(console, added["id"])
        assert (await bench.call("add", {"a": 1}))["status"] == "done"
        assert "a-secret-token" not in json.dumps(await console.get("/api/session"))
        await console.post(f"/api/servers/{added['id']}/remove")
        await console.post("/api/workbench/connections", {"server": added["id"]}, status=404)
        await bench.post("calls", {"kind": "tool", "name": "add"}, status=404)


async def test_servers_are_added_only_where_that_is_allowed() -> None:
    async with serving_console(adds_servers=False) as console:
        await console.post("/api/servers", {"url": "http://127.0.0.1:1/mcp"}, status=403)


async def test_a_read_only_console_reads_and_calls_nothing() -> None:
    async with bench_console(read_only=True) as console:
        bench = await connected(console)
        await bench.post("calls", {"kind": "tool", "name": "add", "arguments": {"a": 1}}, status=403)
        await bench.post("reads", {"kind": "tool", "name": "add", "arguments": {"a": 1}}, status=400)
        read = await bench.post("reads", {"kind": "resource", "name": "note://one"})
        assert (await bench.ended(read["id"]))["status"] == "done"


def test_the_form_of_a_tool_has_no_parts_of_a_wrong_type() -> None:
    schema = {
        "type": "object",
        "properties": {
            "a": None,
            "b": True,
            "c": {"title": "exe\u202egnp", "enum": "no", "anyOf": [None, {"type": "string"}]},
            "d": {"type": "array", "items": None},
        },
        "required": "a",
    }
    assert form_schema(schema) == {
        "type": "object",
        "properties": {
            "a": {},
            "b": {},
            "c": {"title": "exegnp", "anyOf": [{"type": "string"}]},
            "d": {"type": "array", "items": {}},
        },
        "required": [],
    }


async def test_texts_of_a_server_cannot_reorder_what_a_person_reads() -> None:
    server = Server("bench", title="exe\u202egnp", instructions="one\u202e\ntwo")
    async with bench_console(server) as console:
        view = (await connected(console)).view
        assert (view["title"], view["instructions"]) == ("exegnp", "one\ntwo")


async def test_requests_that_make_no_sense_are_refused() -> None:
    async with bench_console() as console:
        bench = await connected(console)
        for number in ("9" * 5000, "9" * 12, "٣", "-1", "x"):
            async with console.http.get(f"{console.url}{bench.path}/messages/{number}") as response:
                assert response.status == 404
        completion = {"ref": "trip", "argument": "city", "value": "", "context": [1]}
        assert "context" in (await bench.post("completions", completion, status=400))["message"]


async def test_a_connection_belongs_to_one_person() -> None:
    async with bench_console() as console:
        bench = await connected(console)
        other = Bench(console, {"id": "made-up"})
        async with (
            aiohttp.ClientSession() as stranger,
            stranger.get(f"{console.url}{bench.path}") as response,
        ):
            assert response.status == 401
        await other.post("calls", {"kind": "tool", "name": "add"}, status=404)


async def test_too_many_running_calls_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("antiphon.console.workbench.calls.MAX_RUNNING", 2)
    async with bench_console() as console:
        bench = await connected(console)
        calls = [await bench.start("wait") for _ in range(2)]
        await bench.post("calls", {"kind": "tool", "name": "wait"}, status=429)
        for call in calls:
            await bench.post(f"calls/{call}/cancel")
        assert (await bench.call("add", {"a": 1}))["status"] == "done"


async def test_messages_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("antiphon.console.workbench.message_log.MAX_MESSAGES", 10)
    async with bench_console() as console:
        bench = await connected(console)
        for _ in range(10):
            await bench.call("add", {"a": 1})
        snapshot = await bench.snapshot()
        assert len(snapshot["messages"]) == 10
        assert snapshot["dropped"] > 0
        gone = snapshot["messages"][0]["number"] - 1
        async with console.http.get(f"{console.url}{bench.path}/messages/{gone}") as response:
            assert response.status == 404


async def test_the_least_used_connection_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("antiphon.console.workbench.connections.MAX_CONNECTIONS_PER_USER", 2)
    server = bench_server()
    sources = [source_of(server, f"s{number}") for number in range(3)]
    async with server.running(), serving_console(servers=sources) as console:
        first, second = await connected(console, "s0"), await connected(console, "s1")
        await connected(console, "s2")
        await second.get("catalog")
        await first.post("calls", {"kind": "tool", "name": "add"}, status=404)


async def test_a_connection_that_is_made_again_keeps_its_messages() -> None:
    async with bench_console() as console:
        bench = await connected(console)
        await bench.call("add", {"a": 1})
        again = await connected(console, again=True)
        assert again.view["id"] == bench.view["id"]
        methods = [each["method"] for each in (await bench.snapshot())["messages"]]
        assert methods.count("tools/call") == 2
        assert methods.count("server/discover") >= 4


@pytest.mark.parametrize(
    ("template", "values", "uri"),
    [
        ("note://{name}", {"name": "a b/c"}, "note://a%20b%2Fc"),
        ("file:///{+path}", {"path": "a/b c"}, "file:///a/b%20c"),
        ("x://{a}{?b,c}", {"a": 1, "c": "2&"}, "x://1?c=2%26"),
        ("x://{a,b}{/c*}", {"a": 1, "b": 2, "c": "d"}, "x://1,2/d"),
        ("x://host", {}, "x://host"),
    ],
)
def test_templates_are_filled_in(template: str, values: dict[str, Any], uri: str) -> None:
    assert expand(template, values) == uri


async def test_a_connection_without_a_page_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("antiphon.console.workbench.connections.CHECK_SECONDS", 0.01)
    monkeypatch.setattr("antiphon.console.workbench.connections.IDLE_SECONDS", 0.0)
    async with bench_console() as console:
        bench = await connected(console)

        async def is_closed() -> bool:
            async with console.http.get(f"{console.url}{bench.path}") as response:
                return response.status == 404

        await until(is_closed)


async def test_a_resource_that_changes_is_reported_to_its_subscriber() -> None:
    server = bench_server()
    async with bench_console(server) as console:
        bench = await connected(console)
        subscribed = await bench.post("subscriptions", {"uri": "note://one", "on": True})
        assert subscribed["subscriptions"] == ["note://one"]
        listening = asyncio.create_task(bench.events("changed"))

        def has_heard() -> bool:
            server.notify_resource_updated("note://one")
            return listening.done()

        await until(has_heard)
        assert (await listening)[-1] == ("changed", {"uri": "note://one"})
        assert (await bench.post("subscriptions", {"uri": "note://one", "on": False}))["subscriptions"] == []


async def test_a_command_that_fails_shows_what_it_printed(tmp_path: Path) -> None:
    script = tmp_path / "broken.py"
    script.write_text("import sys\nsys.exit('The key is missing.')\n")
    target = ServerTarget("broken", [sys.executable, str(script)], {}, 10.0, keeps_errors=True)
    source = ServerSource(
        "command", "broken", "command", lambda user, **options: target.client(**options), target=target
    )
    async with serving_console(servers=[source]) as console:
        view = await console.post("/api/workbench/connections", {"server": "command"})
        assert "The key is missing." in view["error"]


async def test_what_is_kept_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server("large")

    @server.tool
    async def large(size: int) -> str:
        return "x" * size

    monkeypatch.setattr(calls, "MAX_KEPT_BYTES", 1_000_000)
    monkeypatch.setattr(calls, "MAX_OUTCOME_BYTES", 600_000)
    sources = [source_of(server, "large"), source_of(server, "other")]
    async with server.running(), serving_console(servers=sources) as console:
        bench, other = await connected(console, "large"), await connected(console, "other")
        made = [await bench.call("large", {"size": 150_000}) for _ in range(8)]
        kept = [call["id"] for call in (await bench.snapshot())["calls"]]
        assert 2 <= len(kept) <= 6
        assert kept == [call["id"] for call in made][-len(kept) :]
        assert len((await bench.get(f"calls/{kept[-1]}"))["outcome"]["content"][0]["text"]) == 150_000
        refused = await bench.call("large", {"size": 700_000})
        assert "too large to show" in refused["error"]["message"]
        # If all connections keep too much, the one that was used longest ago forgets first.
        monkeypatch.setattr(connections, "MAX_KEPT_BYTES", 3_000_000)
        monkeypatch.setattr(connections, "CHECK_BYTES", 1)
        await other.call("large", {"size": 150_000})
        for _ in range(6):
            last = await other.call("large", {"size": 150_000})
        assert (await bench.snapshot())["calls"] == []
        assert (await other.get(f"calls/{last['id']}"))["status"] == "done"
