"""The folder of logins: who may write to it, and what a process that was killed leaves there."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from antiphon import FileLogins
from antiphon.client.oauth.logins import Login, RegisteredClient
from antiphon.client.oauth.loopback_listener import LoopbackListener

URL = "https://mcp.example.com/mcp"
LOGIN = Login(URL, URL, "https://id.example.com", RegisteredClient("c"), "https://id.example.com/token", "t")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has other permissions")
@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_a_folder_that_others_can_write_to_is_not_used(
    tmp_path: Path, mode: int, caplog: pytest.LogCaptureFixture
) -> None:
    logins = FileLogins(tmp_path / "logins")
    logins.save(LOGIN)
    logins.folder.chmod(mode)
    assert logins.find(URL) is None
    assert logins.all() == []
    assert "chmod go-w" in caplog.text
    with pytest.raises(OSError, match="Other users can write"):
        logins.save(LOGIN)
    logins.folder.chmod(0o755)
    assert logins.find(URL) == LOGIN


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has other permissions")
def test_a_folder_of_another_user_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logins = FileLogins(tmp_path / "logins")
    logins.save(LOGIN)
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    if owner != 0:  # a folder of root is trusted
        assert logins.find(URL) is None
    os_stat = os.stat_result((0o40700, 0, 0, 1, owner + 2, 0, 0, 0, 0, 0))
    monkeypatch.setattr(Path, "stat", lambda self, **options: os_stat)
    with pytest.raises(OSError, match="belongs to another user"):
        logins.save(LOGIN)


def test_a_logout_removes_what_a_process_that_was_killed_left(tmp_path: Path) -> None:
    logins = FileLogins(tmp_path / "logins")
    logins.save(LOGIN)
    old, new = logins.folder / ".saving-old", logins.folder / ".saving-new"
    for path in (old, new):
        path.write_text("a token")
    os.utime(old, (1, 1))
    logins.remove(LOGIN)
    assert [path.name for path in logins.folder.iterdir()] == [".saving-new"]


async def test_the_listener_survives_requests_that_are_none(caplog: pytest.LogCaptureFixture) -> None:
    async with LoopbackListener() as listener:
        port = int(listener.redirect_uri.split(":")[2].partition("/")[0])
        answers = []
        for target in (b"//[", b"//[/callback", b"http://[", b"/callback#x", b"/callback?code=c"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET " + target + b" HTTP/1.1\r\n\r\n")
            answers.append((await reader.read()).split(b" ")[1])
            writer.close()
        assert answers == [b"404", b"404", b"404", b"404", b"200"]
        assert await listener.next_url() == "/callback?code=c"
    assert not caplog.text
