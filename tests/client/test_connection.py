"""One connection: how it is agreed on, lost, given up and closed, and what a server says on it by itself."""

import asyncio
import logging
from typing import Any

import pytest

from antiphon.client import Client, connection
from antiphon.errors import MethodNotFound, RequestError, SessionLost, UnsupportedVersion
from antiphon.model.notification import Log, Progress
from tests.client.channels import DONE, LEGACY, NOTHING, Line, refusal
from tests.client.fakes import MODERN
from tests.support.polling import until

FUTURE = "2033-01-01"
STREAMING = {
    "extensions": {"dev.antiphon/streaming": {}},
    "tasks": {"responses": {"modes": ["streaming"]}},
}


async def done(line: Line, asked: dict[str, Any]) -> dict[str, Any]:
    return DONE


async def hang(line: Line, asked: dict[str, Any]) -> dict[str, Any]:
    await asyncio.Event().wait()
    return NOTHING


def welcome(version: str) -> dict[str, Any]:
    return {"result": {"protocolVersion": version, "supportedVersions": [version], "capabilities": {}}}


# Coming to terms


async def test_a_server_that_offers_only_versions_of_the_future_is_refused() -> None:
    async def answer(line: Line, asked: dict[str, Any]) -> dict[str, Any]:
        return welcome(FUTURE)

    line = Line(answer, welcomes=False)
    with pytest.raises(UnsupportedVersion, match=f"speaks {FUTURE}, and this client wants {MODERN}"):
        async with Client(line):
            pass
    assert [message["method"] for message in line.sent] == ["server/discover"]
    assert line.is_closed


async def test_a_server_that_offers_only_an_older_version_is_spoken_to_in_that() -> None:
    async def answer(line: Line, asked: dict[str, Any]) -> dict[str, Any]:
        return welcome("2025-06-18")

    line = Line(answer, welcomes=False)
    async with Client(line) as client:
        assert client.version == "2025-06-18"
    assert line.asked("initialize")[0]["protocolVersion"] == "2025-06-18"


async def test_a_slow_answer_to_the_first_question_counts_where_the_second_is_refused() -> None:
    refused = asyncio.Event()

    async def answer(line: Line, asked: dict[str, Any]) -> dict[str, Any]:
        if asked["method"] == "initialize":
            refused.set()
            return refusal(-32601)
        await refused.wait()
        return welcome(MODERN)

    async with Client(Line(answer, welcomes=False), probe_timeout=0) as client:
        assert client.version == MODERN


async def test_where_both_questions_are_refused_the_last_refusal_is_told() -> None:
    begun, refused = asyncio.Event(), asyncio.Event()

    async def answer(line: Line, asked: dict[str, Any]) -> dict[str, Any]:
        if asked["method"] == "initialize":
            begun.set()
            await refused.wait()
            return refusal(-32601, "What?")
        await begun.wait()
        refused.set()
        return refusal(-32022, "Not that one.", supported=[FUTURE])

    line = Line(answer, welcomes=False)
    with pytest.raises(MethodNotFound, match=r"What\?"):
        async with Client(line, probe_timeout=0):
            pass
    assert line.is_closed


async def connecting(line: Line, asked: str, **options: Any) -> None:
    """Go away when the server has been asked this, and has not answered."""
    opening = asyncio.create_task(Client(line, **options).__aenter__())
    await until(lambda: line.asked(asked))
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert line.is_closed


async def test_who_goes_away_while_connecting_takes_the_question_back() -> None:
    line = Line(hang, welcomes=False)
    await connecting(line, "server/discover")
    (cancelled,) = line.asked("notifications/cancelled")
    assert cancelled["requestId"] == line.sent[0]["id"]


async def test_who_goes_away_while_two_questions_are_open_takes_back_the_one_that_can_be() -> None:
    line = Line(hang, welcomes=False)
    await connecting(line, "initialize", probe_timeout=0)
    discover = next(message for message in line.sent if message["method"] == "server/discover")
    assert [params["requestId"] for params in line.asked("notifications/cancelled")] == [discover["id"]]


async def test_opening_a_session_is_never_taken_back() -> None:
    line = Line(hang, welcomes=False)
    await connecting(line, "initialize", protocol=LEGACY)
    assert [message["method"] for message in line.sent] == ["initialize"]


# The session


async def test_a_session_that_several_lose_at_once_is_opened_again_once() -> None:
    both = asyncio.Barrier(2)
    lost = iter([True, True])

    async def answer(line: Line, asked: dict[str, Any]) -> dict[str, Any]:
        if next(lost, False):
            await both.wait()
            raise SessionLost("Who?")
        return DONE

    line = Line(answer, version=LEGACY)
    async with Client(line) as client:
        results = await asyncio.gather(client.call("a"), client.call("b"))
    assert [result.text for result in results] == ["Done.", "Done."]
    assert len(line.asked("initialize")) == 2
    assert sorted(params["name"] for params in line.asked("tools/call")) == ["a", "a", "b", "b"]


async def test_a_server_that_does_not_take_notice_of_the_end_does_not_hold_it_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Deaf(Line):
        async def end(self, headers: object) -> None:
            await asyncio.Event().wait()

    monkeypatch.setattr(connection, "GOODBYE_SECONDS", 0.01)
    caplog.set_level(logging.DEBUG, "antiphon.client")
    line = Deaf(done)
    async with Client(line):
        pass
    assert line.is_closed
    assert "the line did not confirm the end of the session" in caplog.text


async def test_a_deadline_of_the_channels_own_is_not_taken_for_that_of_the_request() -> None:
    async def answer(line: Line, asked: dict[str, Any]) -> dict[str, Any]:
        raise TimeoutError("The cable is long.")

    async with Client(Line(answer)) as client:
        with pytest.raises(TimeoutError, match=r"^The cable is long\.$"):
            await client.call("tool")
        async with client.stream("tool") as stream:
            with pytest.raises(TimeoutError, match=r"^The cable is long\.$"):
                await anext(stream)


# What a server says by itself


async def test_a_request_in_a_version_that_forbids_it_is_not_answered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def answer(line: Line, asked: dict[str, Any]) -> dict[str, Any]:
        await line.say(id="q1", method="ping")
        return DONE

    line = Line(answer)
    async with Client(line) as client:
        assert (await client.call("tool")).text == "Done."
    assert line.replies() == []
    assert "the line sent a request, which protocol version 2026-07-28 forbids" in caplog.text


async def test_segments_that_cannot_be_read_and_are_for_nobody_harm_no_other_stream(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "antiphon.client")

    async def answer(line: Line, asked: dict[str, Any]) -> dict[str, Any]:
        for number, request_id in ((0, 999), (1, asked["id"])):
            content = [{"type": "text", "text": "Done."}]
            params = {"requestId": request_id, "seqNr": number, "content": content}
            await line.say(method="notifications/tools/partial_result", params=params)
        return DONE

    line = Line(answer, **STREAMING)
    async with Client(line) as client, client.stream("tool") as stream:
        assert [segment.text async for segment in stream] == ["Done."]
    assert "a part for an unknown request" in caplog.text


async def test_what_is_logged_while_a_stream_is_open_is_heard_beside_it() -> None:
    heard: list[Log] = []

    async def answer(line: Line, asked: dict[str, Any]) -> dict[str, Any]:
        if asked["method"] == "tools/list":
            return {"result": {"tools": []}}
        await line.say(method="notifications/message", params={"level": "info", "data": "Half."})
        return DONE

    for version in (MODERN, LEGACY):
        line = Line(answer, version=version, **STREAMING)
        async with Client(line, on_log=heard.append) as client, client.stream("tool") as stream:
            assert [segment.text async for segment in stream] == ["Done."]
    assert heard == [Log("info", "Half.")] * 2


async def test_progress_that_no_call_waits_for_goes_to_the_client() -> None:
    heard: list[Progress] = []

    async def answer(line: Line, asked: dict[str, Any]) -> dict[str, Any]:
        await line.say(method="notifications/progress", params={"progressToken": "another", "progress": 1})
        return {"result": {"tools": []}}

    async with Client(Line(answer), on_progress=heard.append) as client:
        await client.tools()
    assert heard == [Progress("another", 1)]


async def test_a_log_level_that_is_none_is_not_sent() -> None:
    line = Line(done, version=LEGACY)
    async with Client(line) as client:
        with pytest.raises(ValueError, match="'loud' is not a log level: use one of debug"):
            await client.set_log_level("loud")  # type: ignore[arg-type]
    assert not line.asked("logging/setLevel")


async def test_a_server_that_has_no_log_levels_is_used_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    async def answer(line: Line, asked: dict[str, Any]) -> dict[str, Any]:
        return refusal(-32601, "No logs here.") if asked["method"] == "logging/setLevel" else DONE

    async with Client(Line(answer, version=LEGACY), log_level="error") as client:
        assert (await client.call("tool")).text == "Done."
        with pytest.raises(RequestError, match=r"No logs here\."):
            await client.set_log_level("info")
    assert "the line refused: No logs here." in caplog.text


async def test_a_list_that_changes_while_it_is_read_is_not_kept() -> None:
    changes = iter([True])

    async def answer(line: Line, asked: dict[str, Any]) -> dict[str, Any]:
        if next(changes, False):
            await line.say(method="notifications/tools/list_changed")
        return {"result": {"tools": [], "ttlMs": 60_000}}

    line = Line(answer)
    async with Client(line) as client:
        for asked in (1, 2, 2):
            await client.tools()
            assert len(line.asked("tools/list")) == asked


async def test_a_page_that_was_visited_is_accepted_whatever_the_answer_says() -> None:
    visit = {
        "method": "elicitation/create",
        "params": {"mode": "url", "message": "Pay.", "url": "https://pay"},
    }

    async def answer(line: Line, asked: dict[str, Any]) -> dict[str, Any]:
        if "inputResponses" in asked["params"]:
            return DONE
        return {"result": {"resultType": "input_required", "inputRequests": {"pay": visit}}}

    line = Line(answer)
    async with Client(line) as client:
        asking = await client.call_once("tool")
        await client.call_once("tool", resume=asking, answers={"pay": True})
    assert line.asked("tools/call")[1]["inputResponses"] == {"pay": {"action": "accept"}}
