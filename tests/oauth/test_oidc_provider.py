"""Our client and our server behind a real authorization server: logins, refreshes and more scopes."""

from __future__ import annotations

import asyncio
import json
import stat
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import aiohttp
import msgspec
import pytest

from antiphon import (
    AuthorizationFailed,
    Client,
    FileLogins,
    InputRequired,
    MemoryLogins,
    OAuth,
    Result,
    Unauthorized,
)
from antiphon.client.oauth.logins import Login
from tests.oauth.notes import Robot, log_in, no_browser, serving_notes
from tests.support.authorization_server import AuthorizationServer, sign_in
from tests.support.loop_time import LoopTime
from tests.support.process import environment


def only_login(logins: FileLogins) -> Login:
    (login,) = logins.all()
    return login


def expire(logins: FileLogins) -> Login:
    """Store the only login as one whose access token has expired, and return it."""
    login = msgspec.structs.replace(only_login(logins), expires_at=time.time() - 10)
    logins.save(login)
    return login


@pytest.mark.parametrize("path", ["/mcp", "/opaque"], ids=["jwt", "opaque"])
async def test_a_client_registers_itself_and_a_person_logs_in(oidc: AuthorizationServer, path: str) -> None:
    robot = Robot()
    async with serving_notes(oidc, path) as url:
        auth = OAuth(store=MemoryLogins(), open_browser=robot)
        async with Client(url, auth=auth) as client:
            assert (await client.call("whoami")).text == f"{oidc.url}#ada ['notes:read']"
    (page,) = robot.visits
    asked = parse_qs(urlsplit(page).query)
    assert asked["resource"] == [url]
    assert asked["code_challenge_method"] == ["S256"]


async def test_a_client_is_known_by_its_metadata_document(oidc: AuthorizationServer) -> None:
    logins = MemoryLogins()
    document = "https://agent.example.com/client.json"
    async with serving_notes(oidc) as url:
        auth = OAuth(client_metadata_url=document, store=logins, open_browser=Robot())
        async with Client(url, auth=auth) as client:
            assert "#ada" in (await client.call("whoami")).text
    assert [login.client.client_id for login in logins.all()] == [document]


async def test_the_browser_itself_brings_the_code_to_the_loopback_port(oidc: AuthorizationServer) -> None:
    async def browse(url: str) -> None:
        came_back = await sign_in(url, "ada")
        async with aiohttp.ClientSession() as browser:
            forged = came_back.partition("?")[0] + "?code=forged&state=forged"
            for address in (came_back.replace("/callback", "/favicon.ico"), forged, came_back):
                async with browser.get(address) as page:
                    await page.read()

    async with serving_notes(oidc) as url:
        auth = OAuth(client_id="desktop", store=MemoryLogins(), open_browser=browse)
        async with Client(url, auth=auth) as client:
            assert "#ada" in (await client.call("whoami")).text


async def test_a_tool_that_needs_more_scopes_asks_for_them_without_the_program(
    oidc: AuthorizationServer,
) -> None:
    robot = Robot()
    async with serving_notes(oidc) as url:
        auth = OAuth(client_id="desktop", store=MemoryLogins(), open_browser=robot)
        async with Client(url, auth=auth) as client:
            assert "['notes:read']" in (await client.call("whoami")).text
            assert (await client.call("save")).text == "saved"
            assert "['notes:read', 'notes:write']" in (await client.call("whoami")).text
    assert len(robot.visits) == 2


async def test_calls_at_the_same_time_log_in_once(oidc: AuthorizationServer) -> None:
    robot = Robot()
    async with serving_notes(oidc) as url:
        auth = OAuth(client_id="desktop", store=MemoryLogins(), open_browser=robot)
        async with Client(url, auth=auth) as client:
            saved = await asyncio.gather(*(client.call("save") for _ in range(8)))
            assert [each.text for each in saved] == ["saved"] * 8
    assert len(robot.visits) == 2


async def test_calls_at_the_same_time_that_need_different_scopes_all_succeed(
    oidc: AuthorizationServer,
) -> None:
    async with serving_notes(oidc) as url:
        auth = OAuth(client_id="desktop", store=MemoryLogins(), open_browser=Robot())
        async with Client(url, auth=auth) as client:
            done = await asyncio.gather(client.call("save"), client.call("purge"))
            assert [each.text for each in done] == ["saved", "purged"]


async def test_an_issuer_that_is_away_does_not_stop_calls_with_a_valid_token(
    oidc: AuthorizationServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logins = FileLogins(tmp_path)
    async with serving_notes(oidc) as url:
        await log_in(url, logins)
        now = time.time()
        changed = msgspec.structs.replace(only_login(logins), token_endpoint="http://127.0.0.1:1/token")
        logins.save(msgspec.structs.replace(changed, obtained_at=now - 570, expires_at=now + 30))
        async with Client(url, auth=OAuth(store=logins, open_browser=no_browser)) as client:
            for _ in range(5):
                assert "#ada" in (await client.call("whoami")).text
    assert caplog.text.count("Cannot refresh the login") == 1


async def test_a_restart_opens_no_browser(oidc: AuthorizationServer, tmp_path: Path) -> None:
    logins = FileLogins(tmp_path / "logins")
    async with serving_notes(oidc) as url:
        await log_in(url, logins)
        (file,) = logins.folder.glob("*.json")
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(logins.folder.stat().st_mode) == 0o700
        before = expire(logins)
        again = OAuth(store=FileLogins(logins.folder), open_browser=no_browser)
        async with Client(url, auth=again) as client:
            assert "#ada" in (await client.call("whoami")).text
        after = only_login(logins)
        assert after.access_token != before.access_token
        assert after.refresh_token != before.refresh_token
        async with Client(url, auth=OAuth(store=FileLogins(logins.folder), open_browser=no_browser)):
            assert only_login(logins) == after, "it has not expired"


async def test_a_refused_token_is_refreshed_although_it_has_not_expired(
    oidc: AuthorizationServer, tmp_path: Path
) -> None:
    logins = FileLogins(tmp_path)
    async with serving_notes(oidc) as url:
        await log_in(url, logins)
        logins.save(msgspec.structs.replace(only_login(logins), access_token="refused"))
        async with Client(url, auth=OAuth(store=logins, open_browser=no_browser)) as client:
            assert "#ada" in (await client.call("whoami")).text


async def test_a_state_and_a_task_survive_a_refresh(oidc: AuthorizationServer, tmp_path: Path) -> None:
    logins = FileLogins(tmp_path)
    async with serving_notes(oidc) as url:
        can_ask = {"elicitation": {}}
        auth = OAuth(store=logins, open_browser=Robot())
        async with Client(url, auth=auth, capabilities=can_ask) as client:
            stopped = await client.call_once("greet")
            assert isinstance(stopped, InputRequired)
            task = (await client.submit("write")).id
        before = expire(logins)
        auth = OAuth(store=logins, open_browser=no_browser)
        async with Client(url, auth=auth, capabilities=can_ask) as client:
            done = await client.call_once("greet", resume=stopped, answers={"who": {"value": "Grace"}})
            assert isinstance(done, Result)
            assert done.text == "Hello, Grace!"
            assert (await client.task(task).result()).text == "written"
        assert only_login(logins).access_token != before.access_token


SCRIPT = """
import asyncio, sys
from antiphon import Client, FileLogins, OAuth

async def no_browser(url):
    raise AssertionError("a browser was opened")

async def main(url, folder):
    async with Client(url, auth=OAuth(store=FileLogins(folder), open_browser=no_browser)) as client:
        print((await client.call("whoami")).text)

print("ready", flush=True)
sys.stdin.readline()
asyncio.run(main(*sys.argv[1:]))
"""


async def test_eight_processes_with_one_expired_login_refresh_it_once(
    oidc: AuthorizationServer, tmp_path: Path
) -> None:
    logins = FileLogins(tmp_path)
    async with serving_notes(oidc) as url:
        await log_in(url, logins)
        expire(logins)
        command = [sys.executable, "-c", SCRIPT, url, str(tmp_path)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        processes = [
            await asyncio.create_subprocess_exec(*command, env=environment(), **pipes) for _ in range(8)
        ]
        try:
            async with asyncio.timeout(120):
                before = oidc.granted("refresh_token")
                for process in processes:
                    assert process.stdout is not None
                    assert await process.stdout.readline() == b"ready\n"
                ended = await asyncio.gather(*(process.communicate(b"\n") for process in processes))
        finally:
            for process in processes:
                if process.returncode is None:
                    process.kill()
        for said, complained in ended:
            assert b"#ada" in said, complained.decode()
        assert oidc.granted("refresh_token") == before + 1
        # The issuer ends a login whose refresh token is spent twice. This one can still be refreshed.
        expire(logins)
        async with Client(url, auth=OAuth(store=logins, open_browser=no_browser)) as client:
            assert "#ada" in (await client.call("whoami")).text


async def test_an_ended_login_asks_a_person_again(oidc: AuthorizationServer, tmp_path: Path) -> None:
    robot = Robot("grace")
    logins = FileLogins(tmp_path)
    async with serving_notes(oidc) as url:
        await log_in(url, logins)
        logins.save(msgspec.structs.replace(expire(logins), access_token="old", refresh_token="spent"))
        async with Client(url, auth=OAuth(store=logins, open_browser=robot)) as client:
            assert "#grace" in (await client.call("whoami")).text
        assert len(robot.visits) == 1
        # The client that was registered for the first login is used again.
        assert only_login(logins).client.redirect_uri is not None


async def test_off_a_terminal_the_error_says_what_to_run(oidc: AuthorizationServer, tmp_path: Path) -> None:
    async with serving_notes(oidc) as url:
        with pytest.raises(AuthorizationFailed, match=f"antiphon login {url}"):
            async with Client(url, auth=OAuth(store=FileLogins(tmp_path))):
                pass


async def test_a_person_has_a_deadline_that_is_not_the_one_for_connecting(oidc: AuthorizationServer) -> None:
    async def slow(url: str) -> str:
        LoopTime.here().advance(100)
        return await sign_in(url, "ada")

    async def never(url: str) -> None:
        return None

    async with serving_notes(oidc) as url:
        auth = OAuth(store=MemoryLogins(), open_browser=slow)
        async with Client(url, auth=auth, connect_timeout=60) as client:
            assert "#ada" in (await client.call("whoami")).text
        auth = OAuth(store=MemoryLogins(), open_browser=never, login_timeout=0.2)
        with pytest.raises(AuthorizationFailed, match="Nobody has logged in"):
            async with Client(url, auth=auth):
                pass


async def test_a_program_acts_for_itself_with_client_credentials(oidc: AuthorizationServer) -> None:
    async with serving_notes(oidc) as url:
        auth = OAuth.service("robot", "robot-secret", issuer=oidc.url)
        async with Client(url, auth=auth) as client:
            assert (await client.call("whoami")).text == f"client:{oidc.url}#robot ['notes:read']"
            assert (await client.call("save")).text == "saved"
        with pytest.raises(AuthorizationFailed, match="invalid_client"):
            async with Client(url, auth=OAuth.service("robot", "wrong", issuer=oidc.url)):
                pass


async def test_no_text_of_an_object_or_an_error_has_a_token(
    oidc: AuthorizationServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    logins = FileLogins(tmp_path)
    async with serving_notes(oidc) as url:
        auth = OAuth(store=logins, open_browser=Robot())
        async with Client(url, auth=auth) as client:
            await client.call("whoami")
        login = only_login(logins)
        logins.save(msgspec.structs.replace(login, access_token="refused", refresh_token="spent"))
        with pytest.raises((AuthorizationFailed, Unauthorized)) as raised:
            async with Client(url, auth=OAuth(store=logins)):
                pass
    texts = f"{auth!r} {login!r} {login.client!r} {raised.value} {caplog.text}"
    for secret in (login.access_token, login.refresh_token, "spent", "Bearer ey"):
        assert secret is not None
        assert secret not in texts
    assert json.loads(next(tmp_path.glob("*.json")).read_text())["issuer"] == oidc.url
