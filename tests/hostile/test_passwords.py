"""The password in the URL of a store: in no message, log, representation or traceback."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

import pytest

from antiphon import Server
from antiphon.cli.run.settings import Settings
from antiphon.errors import StoreUnavailable
from antiphon.store import hide_password, open_store
from antiphon.store.artifacts import open_artifacts
from antiphon.store.maintenance import back_up_store, compact_store
from antiphon.store.postgres.database import Database
from antiphon.store.urls import parse_store_url
from tests.cli.command import antiphon
from tests.support.process import free_port

SECRETS = ("hunter", "swordfish")
"""The two halves of each password."""

URLS = {
    "plain": "postgresql://ann:hunter-swordfish@127.0.0.1:{port}/d",
    "encoded": "postgresql://ann:hunter%40%2Fswordfish@127.0.0.1:{port}/d",
    "parameter": "postgresql://ann@127.0.0.1:{port}/d?password=hunter-swordfish&connect_timeout=1",
    "socket": "postgresql:///d?host=127.0.0.1&port={port}&user=ann&password=hunter-swordfish",
    "at sign": "postgresql://ann:hunter@swordfish@127.0.0.1:{port}/d",
    "slash": "postgresql://ann:hunter/swordfish@127.0.0.1:{port}/d",
    "question mark": "postgresql://ann:hunter?swordfish@127.0.0.1:{port}/d",
    "hash": "postgresql://ann:hunter#swordfish@127.0.0.1:{port}/d",
    "colon": "postgresql://ann:hunter:swordfish@127.0.0.1:{port}/d",
    "bracket": "postgresql://ann:hunter]swordfish@127.0.0.1:{port}/d",
}
MALFORMED = {
    "no slashes": "postgresql:ann:hunter-swordfish@h/d",
    "another scheme": "mysql://ann:hunter-swordfish@h/d",
    "no scheme": "ann:hunter-swordfish@h/d",
    "schema": "postgresql://ann:hunter-swordfish@h/d?schema=Bad",
}


def check(text: str) -> None:
    """Check that no part of a password is in a text."""
    assert not any(secret in text for secret in SECRETS), text


@pytest.fixture(params=URLS)
def url(request: pytest.FixtureRequest) -> str:
    """The URL of a database that nobody serves."""
    return URLS[request.param].format(port=free_port())


@pytest.mark.parametrize("kind", ["tasks", "artifacts"])
async def test_a_store_that_cannot_be_reached_does_not_say_the_password(
    url: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    store: Any = None
    try:
        store = open_store(url) if kind == "tasks" else open_artifacts(url)
        await store.open()
    except (StoreUnavailable, ValueError) as error:
        check(str(error))
        check("".join(traceback.format_exception(error)))
    else:
        raise AssertionError("the store was opened")
    check(repr(store))
    check(caplog.text)


def test_what_holds_a_url_does_not_show_the_password(url: str) -> None:
    check(hide_password(url))
    check(repr(Database.from_url(url, 1.0)))
    check(repr(parse_store_url(url)))
    check(repr(Settings("server.py", store=url)))
    server = Server("hidden", store=url, artifacts=url)
    check(repr(server) + repr(server.engine) + repr(server.engine.tasks))


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_url_is_refused_without_its_password(name: str) -> None:
    for opening in (open_store, open_artifacts):
        with pytest.raises(ValueError, match=".") as raised:
            opening(MALFORMED[name])
        check("".join(traceback.format_exception(raised.value)))


def test_maintenance_names_the_database_without_the_password(tmp_path: Path) -> None:
    url = URLS["plain"].format(port=1)
    with pytest.raises(ValueError, match="pg_dump") as raised:
        back_up_store(url, tmp_path / "copy")
    check(str(raised.value))
    with pytest.raises(ValueError, match="VACUUM") as raised:
        compact_store(url)
    check(str(raised.value))


@pytest.mark.parametrize("name", ["plain", "parameter", "slash"])
def test_commands_do_not_print_the_password(name: str, tmp_path: Path) -> None:
    url = URLS[name].format(port=free_port())
    program = tmp_path / "served.py"
    program.write_text(
        "from antiphon import Server\n\nserver = Server('served')\n\n\n"
        "@server.tool(task='required')\ndef done() -> str:\n    return 'done'\n"
    )
    for words in (
        ("tasks", "ls", url),
        ("store", "backup", url, str(tmp_path / "copy")),
        ("run", str(program), "--store", url, "--port", "0"),
        ("worker", str(program), "--store", url),
        ("call", url, "tool"),
        ("doctor", url),
        ("run", "--help"),
    ):
        done = antiphon(*words, env={"ANTIPHON_STORE": url})
        check(done.stdout + done.stderr)
