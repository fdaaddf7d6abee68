"""Sessions over HTTP: their ids contain the negotiated version, and belong to one principal."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from antiphon import BearerTokens, Context, Limits, Server
from tests.support import http
from tests.support.process import started
from tests.support.serving import serving
from tests.support.speakers import CLIENT, DRAFT, LEGACY, MODERN, Session

pytestmark = pytest.mark.usefixtures("way")

SECRET = "a secret that is long enough"


def build(secret: str | None = SECRET, limits: Limits | None = None) -> Server:
    tokens = BearerTokens({"a-token": "alice", "b-token": "bob"})
    server = Server("tests", secrets=None if secret is None else [secret], authenticate=tokens, limits=limits)

    @server.tool
    async def who(ctx: Context) -> str:
        assert ctx.client is not None
        return f"{ctx.principal.id} {ctx.client.name} {sorted(ctx.capabilities)}"

    return server


def alice(port: int) -> Session:
    return Session(port, headers={"authorization": "Bearer a-token"})


def bob(port: int) -> Session:
    return Session(port, headers={"authorization": "Bearer b-token"})


def lost(response: http.Response) -> bool:
    return response.status == 404 and response.error["code"] == -32600


@pytest.mark.parametrize(
    ("asked", "got"),
    [
        (LEGACY, LEGACY),
        ("2025-06-18", "2025-06-18"),
        ("2024-11-05", "2024-11-05"),
        (DRAFT, DRAFT),
        (MODERN, LEGACY),
        ("1900-01-01", LEGACY),
    ],
)
async def test_the_version_is_negotiated(asked: str, got: str) -> None:
    async with serving(build()) as where:
        session = alice(where.port)
        response = await session.open(asked)
        assert response.result["protocolVersion"] == got
        assert response.result["serverInfo"]["name"] == "tests"
        result = (await session.call("who")).result
        assert result.get("resultType") == ("complete" if got == DRAFT else None)


async def test_a_session_id_has_only_visible_characters() -> None:
    async with serving(build()) as where:
        session = alice(where.port)
        await session.open()
        assert all("!" <= character <= "~" for character in session.session_id)


async def test_a_session_knows_its_client() -> None:
    async with serving(build()) as where:
        session = alice(where.port)
        await session.open(capabilities={"roots": {}, "sampling": {}})
        assert (await session.call("who")).text == f"alice {CLIENT['name']} ['roots', 'sampling']"


async def test_a_session_belongs_to_the_principal_that_opened_it() -> None:
    async with serving(build()) as where:
        session = alice(where.port)
        await session.open()
        session.headers["authorization"] = "Bearer b-token"
        assert lost(await session.call("who"))
        assert lost(await session.end())
        async with session.listening() as connection:
            assert lost(await connection.receive())
        session.headers["authorization"] = "Bearer a-token"
        assert (await session.call("who")).status == 200


async def test_a_client_can_end_its_session() -> None:
    async with serving(build()) as where:
        session, other = alice(where.port), alice(where.port)
        await session.open()
        await other.open()
        assert (await session.end()).status == 204
        assert lost(await session.call("who"))
        assert lost(await session.end())
        assert lost(await session.tell("notifications/initialized"))
        async with session.listening() as connection:
            assert lost(await connection.receive())
        assert (await other.call("who")).status == 200


@pytest.mark.parametrize("token", ["", "rubbish", "é", "A" * 200])
async def test_an_unknown_session_id_is_refused(token: str) -> None:
    async with serving(build()) as where:
        session = alice(where.port)
        session.headers["mcp-session-id"] = token
        assert lost(await session.call("who"))


async def test_a_session_id_of_another_server_is_refused_despite_the_same_secret() -> None:
    other = Server("other", secrets=[SECRET], authenticate=BearerTokens({"a-token": "alice"}))
    async with serving(build()) as where, serving(other) as elsewhere:
        session = alice(elsewhere.port)
        await session.open()
        session.port = where.port
        assert lost(await session.call("who"))


async def test_a_session_expires_whether_it_is_cached_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(build(limits=Limits(session_lifetime=600, max_sessions=1))) as where:
        session, other = alice(where.port), alice(where.port)
        await session.open()
        await other.open()  # evicts the first one
        assert (await session.call("who")).status == (await other.call("who")).status == 200
        now = time.time()
        monkeypatch.setattr("time.time", lambda: now + 601)
        assert lost(await other.call("who"))
        assert lost(await session.call("who"))


async def test_capabilities_that_are_too_large_are_refused() -> None:
    large = {"experimental": {"many": [[]] * 500_000}}
    async with serving(build()) as where:
        session = alice(where.port)
        params = {"protocolVersion": LEGACY, "capabilities": large, "clientInfo": CLIENT}
        refused = await session.ask("initialize", params)
        assert (refused.status, refused.error["code"]) == (413, -32600)
        assert "at most 16384" in refused.error["message"]
        assert "mcp-session-id" not in refused.headers
        await session.open(capabilities={"experimental": {"many": [[]] * 500}})
        assert (await session.call("who")).text == "alice tests ['experimental']"


async def test_without_memory_for_a_session_idle_ones_are_evicted() -> None:
    limits = Limits(max_memory_bytes=100_000)
    server = build(limits=limits)
    async with serving(server) as where:
        sessions = [alice(where.port) for _ in range(50)]
        for session in sessions:
            await session.open()
        budget = server.engine.budget
        assert budget.reserved <= 50_000, "one principal gets half of it"
        for session in sessions:
            assert (await session.call("who")).text.startswith("alice")
        for session in sessions:
            assert (await http.request(where.port, "DELETE", session.headers)).status == 204
        assert budget.reserved == 0


async def test_a_session_for_which_there_is_no_memory_is_refused() -> None:
    async with serving(build(limits=Limits(max_memory_bytes=100))) as where:
        params = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": CLIENT}
        refused = await alice(where.port).ask("initialize", params)
        assert refused.status == 413
        assert "memory for the session" in refused.error["message"]


async def test_an_evicted_session_is_restored_from_its_id() -> None:
    server = build(limits=Limits(max_sessions=1))
    async with serving(server) as where:
        session, other = alice(where.port), alice(where.port)
        await session.open(capabilities={"roots": {}})
        of_one = server.engine.budget.reserved
        await other.open(capabilities={"roots": {}})
        assert server.engine.budget.reserved == of_one > 0, "only one of them is kept"
        for each in (session, other, session):
            assert (await each.call("who")).text == "alice tests ['roots']"
            assert server.engine.budget.reserved == of_one


async def test_2026_ignores_session_ids() -> None:
    async with serving(build()) as where:
        from tests.support.speakers import Modern

        asker = Modern(where.port, headers={"authorization": "Bearer a-token", "mcp-session-id": "rubbish"})
        assert (await asker.call("who")).status == 200


@pytest.mark.parametrize("way", ["run"], indirect=True)
async def test_another_process_with_the_same_secret_serves_the_session(tmp_path: Path) -> None:
    same, different = (
        {"ANTIPHON_SECRETS": f"{SECRET}, {SECRET} older"},
        {"ANTIPHON_SECRETS": "quite another secret"},
    )
    older = {"ANTIPHON_SECRETS": f"{SECRET} older"}
    script = "everything.py"
    with (
        started(script, tmp_path, env=same) as one,
        started(script, tmp_path, env=same) as two,
        started(script, tmp_path, env=older) as before,
        started(script, tmp_path, env=different) as stranger,
    ):
        session = Session(one.port)
        await session.open(capabilities={"roots": {}})
        first = (await session.call("whoami")).text
        session.port = two.port
        assert (await session.call("whoami")).text == first
        session.port = stranger.port
        assert lost(await session.call("whoami"))
        rotated = Session(before.port)
        await rotated.open()
        rotated.port = one.port
        assert (await rotated.call("whoami")).status == 200, "a key that is no longer first still opens"
