"""`antiphon login`, `logout` and `logins`, and the commands that use a stored login."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from pathlib import Path

import aiohttp

from antiphon import FileLogins
from tests.cli.command import COMMAND, plain_environment
from tests.oauth.notes import log_in, serving_notes
from tests.support.authorization_server import AuthorizationServer, sign_in


class Ran:
    """A command that runs, with pipes in place of a terminal."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def page(self) -> str:
        """Return the address that the command asks a person to open."""
        assert self.process.stderr is not None
        seen = ""
        async with asyncio.timeout(60):
            while not (found := re.search(r"(http://\S+)\n", seen)):
                line = (await self.process.stderr.readline()).decode()
                assert line, seen
                seen += line
        return found[1]

    async def end(self, typed: str = "") -> tuple[int | None, str, str]:
        """Return the exit code and the output, after typing a text."""
        async with asyncio.timeout(60):
            out, err = await self.process.communicate(typed.encode())
        return self.process.returncode, out.decode(), err.decode()


async def start(*words: str, env: Mapping[str, str]) -> Ran:
    pipe = asyncio.subprocess.PIPE
    return Ran(
        await asyncio.create_subprocess_exec(
            *COMMAND, *words, env=plain_environment(env), stdin=pipe, stdout=pipe, stderr=pipe
        )
    )


async def run(*words: str, env: Mapping[str, str]) -> tuple[int | None, str, str]:
    return await (await start(*words, env=env)).end()


def state(tmp_path: Path) -> tuple[dict[str, str], FileLogins]:
    return {"XDG_STATE_HOME": str(tmp_path)}, FileLogins(tmp_path / "antiphon" / "logins")


async def test_a_login_by_paste_is_used_by_other_commands_until_logout(
    oidc: AuthorizationServer, tmp_path: Path
) -> None:
    env, logins = state(tmp_path)
    async with serving_notes(oidc) as url:
        code, _, err = await run("call", url, "whoami", env=env)
        assert (code, f"antiphon login {url}" in err) == (3, True)
        code, _, err = await run("tasks", "show", url, "some-id", env=env)
        assert (code, f"antiphon login {url}" in err) == (3, True)
        command = await start("login", url, "--paste", env=env)
        came_back = await sign_in(await command.page(), "ada")
        code, out, err = await command.end(f"{came_back}\n")
        assert (code, out) == (0, f"Logged in at {url} with the scopes notes:read.\n"), err
        code, out, err = await run("call", url, "whoami", env=env)
        assert (code, "#ada" in out) == (0, True), err
        assert (await run("tools", url, env=env))[0] == 0
        code, _, err = await run("tasks", "show", url, "some-id", env=env)
        assert (code, "login" in err) == (2, False), err
        code, _, err = await run("call", url, "save", env=env)
        assert (code, f"antiphon login {url} --scope notes:read --scope notes:write" in err) == (3, True)
        (login,) = logins.all()
        code, out, _ = await run("logins", "--json", env=env)
        (listed,) = json.loads(out)
        assert (listed["url"], listed["issuer"], listed["can_refresh"]) == (url, oidc.url, True)
        assert login.access_token not in out
        assert url in (await run("logins", env=env))[1]
        code, out, err = await run("logout", url, env=env)
        assert (code, out) == (0, f"Removed the login at {url}. The issuer has ended it.\n"), err
        assert not logins.all()
        assert (await run("logout", url, env=env))[0] == 1
        # The refresh token is of no use any more: the issuer has revoked it.
        logins.save(login)
        async with aiohttp.ClientSession() as session:
            form = {
                "grant_type": "refresh_token",
                "refresh_token": login.refresh_token,
                "client_id": login.client.client_id,
            }
            async with session.post(login.token_endpoint, data=form) as response:
                assert (await response.json())["error"] == "invalid_grant"


async def test_a_login_with_another_device(oidc: AuthorizationServer, tmp_path: Path) -> None:
    env, logins = state(tmp_path)
    async with serving_notes(oidc) as url:
        command = await start("login", url, "--device", "--client-id", "desktop", env=env)
        page = await command.page()
        await confirm_device(page, "ada")
        code, out, err = await command.end()
        assert (code, f"Logged in at {url}" in out) == (0, True), err
        (login,) = logins.all()
        assert login.client.client_id == "desktop"
        code, out, err = await run("call", url, "whoami", env=env)
        assert (code, "#ada" in out) == (0, True), err


async def test_off_a_terminal_no_browser_opens(oidc: AuthorizationServer, tmp_path: Path) -> None:
    env, _ = state(tmp_path)
    async with serving_notes(oidc) as url:
        code, _, err = await run("login", url, env=env)
        assert (code, "--device or --paste" in err) == (2, True)
        code, _, err = await run("login", "server.py", env=env)
        assert (code, "is not a URL" in err) == (2, True)


async def test_a_token_on_the_command_line_comes_before_a_stored_login(
    oidc: AuthorizationServer, tmp_path: Path
) -> None:
    env, logins = state(tmp_path)
    async with serving_notes(oidc) as url:
        await log_in(url, logins)
        token = await oidc.client_token(url)
        code, out, err = await run("call", url, "whoami", "--token", token, env=env)
        assert (code, "#robot" in out) == (0, True), err


async def test_the_doctor_checks_where_a_server_gets_its_tokens_from(
    oidc: AuthorizationServer, tmp_path: Path
) -> None:
    env, logins = state(tmp_path)
    async with serving_notes(oidc) as url:
        code, out, _ = await run("doctor", url, "--json", env=env)
        checks = {check["name"]: check for check in json.loads(out)["checks"]}
        assert code == 0
        assert url in checks["metadata"]["says"]
        assert checks["issuer"]["says"] == oidc.url
        assert [checks[name]["state"] for name in ("pkce", "clients", "login")] == ["ok", "ok", "advice"]
        assert checks["clients"]["data"] == ["metadata documents", "registration"]
        await log_in(url, logins)
        code, out, err = await run("doctor", url, env=env)
        assert code == 0, err
        assert "tools      5: whoami, save, purge, greet, write" in out
        assert "ok     audience   the token is for this server" in out


async def confirm_device(page: str, user: str) -> None:
    """Type the code of a login into the pages of the issuer, as a person does on another device."""
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser:
        async with browser.get(page) as response:
            text, url = await response.text(), response.url
        for _ in range(10):
            action = re.search(r'action="([^"]+)"', text)
            if action is None:
                return
            form = dict(re.findall(r'name="(\w+)" value="([^"]*)"', text))
            if "prompt" in form:
                form |= {"login": user, "password": "any"}
            elif "xsrf" in form:
                form["confirm"] = "yes"
            async with browser.post(url.join(aiohttp.client.URL(action[1])), data=form) as response:
                text, url = await response.text(), response.url
    raise AssertionError(text)
