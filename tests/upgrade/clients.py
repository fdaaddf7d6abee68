"""What clients and the command line leave on disk: logins, recordings, exported tasks, files of hosts.

Each part has a function that writes it and one that uses it. `Internet` stands in for the servers and the
issuer that the logins belong to.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import keyring
from keyring.backend import KeyringBackend
from keyring.errors import PasswordDeleteError

from antiphon import Client, FileLogins, KeyringLogins, OAuth
from antiphon.client.oauth.logins import LoginStore
from antiphon.testing import record, replay, replay_history
from tests.upgrade.desk import Desk
from tests.upgrade.kept import Wire, authorized, elicit, served

ISSUER = "https://id.example.com"
LOGINS: Mapping[str, dict[str, Any]] = {
    "registered": {},
    "with-secret": {"client_id": "known", "client_secret": "s3cret", "issuer": ISSUER},
    "expired": {},
    "proven": {},
}
"""The servers at which somebody logs in, each `https://NAME.example.com/mcp`, and the options of the login.

The tokens of `expired` expire, at once while somebody logs in by hand. Those of `proven` are bound to a key.
"""
HOSTS = ("claude-desktop", "claude-code", "cursor", "vscode")


class _Body(httpx2.AsyncByteStream):
    """A body that is read once."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._content


def _response(status: int, data: Any, **headers: str) -> httpx2.Response:
    given = {"content-type": "application/json", **{key.replace("_", "-"): headers[key] for key in headers}}
    return httpx2.Response(status, headers=given, stream=_Body(json.dumps(data).encode()))


class Internet(httpx2.AsyncBaseTransport):
    """The servers of `LOGINS`, and their issuer."""

    def __init__(self, wire: Wire, lifetime: int) -> None:
        self._lifetime = lifetime
        self._wire = wire
        self.asked: list[str] = []
        """The paths of the requests to the issuer."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Answer a request."""
        name, path = request.url.host.partition(".")[0], request.url.path
        if name == "id":
            self.asked.append(path)
            content = (await request.aread()).decode()
            return _response(200 if path != "/register" else 201, self._issued(path, content))
        if path.startswith("/.well-known/oauth-protected-resource"):
            bound = {"dpop_bound_access_tokens_required": True} if name == "proven" else {}
            resource = f"https://{name}.example.com/mcp"
            return _response(200, {"resource": resource, "authorization_servers": [ISSUER], **bound})
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if (
            not token.startswith(f"{name}-access-")
            or (scheme == "DPoP") != (name == "proven")
            or (name == "proven" and "dpop" not in request.headers)
        ):
            page = f"https://{name}.example.com/.well-known/oauth-protected-resource/mcp"
            kind = "DPoP" if name == "proven" else "Bearer"
            return _response(401, {}, www_authenticate=f'{kind} resource_metadata="{page}"')
        headers = {key: request.headers[key] for key in request.headers if key.startswith("mcp-")}
        body = json.loads(await request.aread())
        answer = await self._wire.post(body, {**headers, **authorized("ada-token")})
        return _response(answer.status_code, answer.json())

    def _issued(self, path: str, content: str) -> dict[str, Any]:
        if path.startswith("/.well-known/"):
            return {
                "issuer": ISSUER,
                "authorization_endpoint": f"{ISSUER}/authorize",
                "token_endpoint": f"{ISSUER}/token",
                "registration_endpoint": f"{ISSUER}/register",
                "revocation_endpoint": f"{ISSUER}/revoke",
                "response_types_supported": ["code"],
                "grant_types_supported": ["authorization_code", "refresh_token"],
                "code_challenge_methods_supported": ["S256"],
                "token_endpoint_auth_methods_supported": ["none", "client_secret_basic"],
                "dpop_signing_alg_values_supported": ["ES256"],
                "scopes_supported": ["read", "offline_access"],
            }
        if path == "/register":
            return {**json.loads(content), "client_id": "client-of-the-program"}
        form = {name: values[0] for name, values in parse_qs(content).items()}
        name = urlsplit(form["resource"]).netloc.partition(".")[0]
        number = 2 if form["grant_type"] == "refresh_token" else 1
        assert number == 1 or form["refresh_token"] == f"{name}-refresh"
        lifetime = {"expires_in": self._lifetime} if name == "expired" else {}
        return {
            "access_token": f"{name}-access-{number}",
            "token_type": "DPoP" if name == "proven" else "Bearer",
            "refresh_token": f"{name}-refresh",
            "scope": "read offline_access",
            **lifetime,
        }


class Keyring(KeyringBackend):
    """A keyring in memory, which a file can hold."""

    priority = 1  # type: ignore[assignment]

    def __init__(self, entries: Mapping[str, str] = {}) -> None:
        super().__init__()
        self.entries = dict(entries)

    def get_password(self, service: str, username: str) -> str | None:
        """Return an entry."""
        return self.entries.get(f"{service} {username}")

    def set_password(self, service: str, username: str, password: str) -> None:
        """Set an entry."""
        self.entries[f"{service} {username}"] = password

    def delete_password(self, service: str, username: str) -> None:
        """Delete an entry."""
        if self.entries.pop(f"{service} {username}", None) is None:
            raise PasswordDeleteError("not found")


async def approve(page: str) -> str:
    """Log in as a person does: come back with a code."""
    query = {name: values[0] for name, values in parse_qs(urlsplit(page).query).items()}
    return f"{query['redirect_uri']}?code=c&state={query['state']}&iss={ISSUER}"


async def connect(store: LoginStore, *, by_hand: bool) -> dict[str, list[str]]:
    """Connect to every server; return what the issuer was asked. With `by_hand`, a person logs in."""
    asked = {}
    desk = Desk("memory:")
    async with served(desk) as wire:
        for name, options in LOGINS.items():
            internet = Internet(wire, 1 if by_hand else 3600)
            given = (
                {**options, "open_browser": approve, "relogin": True} if by_hand else {"interactive": False}
            )
            auth = OAuth(store=store, **given)
            url = f"https://{name}.example.com/mcp"
            async with (
                httpx2.AsyncClient(transport=internet) as http,
                Client(url, auth=auth, http=http, protocol="2026-07-28") as client,
            ):
                assert await client.tools()
            asked[name] = internet.asked
    return asked


async def write_logins(folder: Path) -> None:
    """Log in everywhere, with files and with a keyring."""
    await connect(FileLogins(folder / "logins"), by_hand=True)
    backend, before = Keyring(), keyring.get_keyring()
    keyring.set_keyring(backend)
    try:
        await connect(KeyringLogins(folder / "keyring"), by_hand=True)
    finally:
        keyring.set_keyring(before)
    (folder / "keyring.json").write_text(json.dumps(backend.entries, indent=1) + "\n", encoding="utf-8")
    for lock in folder.rglob("*.lock"):
        lock.unlink()


async def converse(client: Client) -> list[str]:
    """Say what is recorded, and return the answers."""
    async with client:
        return [
            str(len(await client.tools())),
            (await client.call("pay", amount=3, allow_task=False)).text,
            str((await client.call("structured", allow_task=False)).data),
            str((await client.read("numbered://3")).contents),
        ]


async def write_recordings(folder: Path) -> None:
    """Record a conversation in each version that differs, and write down what was answered."""
    answers = {}
    for protocol in ("2026-07-28", "2025-11-25", "DRAFT-2026-v1"):
        client = Client(Desk("memory:", signed_in=False).server, protocol=protocol, elicit=elicit)
        with record(client, folder / f"{protocol}.jsonl"):
            answers[protocol] = await converse(client)
    (folder / "answers.json").write_text(json.dumps(answers, indent=1) + "\n", encoding="utf-8")


async def replay_recordings(folder: Path) -> dict[str, list[str]]:
    """Have the same conversations with the recordings."""
    return {
        path.stem: await converse(Client(replay(path), protocol=path.stem, elicit=elicit))
        for path in folder.glob("*.jsonl")
    }


def run(*words: str | Path, env: Mapping[str, str] | None = None) -> str:
    """Run a command of ours, and return what it prints."""
    command = [sys.executable, "-m", "antiphon", *map(str, words)]
    done = subprocess.run(command, env={**os.environ, **(env or {})}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def write_exports(folder: Path, store: str, history: str) -> None:
    """Export all tasks of a store, and the history of one."""
    run("tasks", "export", store, "--all", "--output", folder / "tasks.jsonl")
    run("tasks", "export", store, history, "--output", folder / "history.json")


async def replayed_next(path: Path) -> tuple[str | None, list[str]]:
    """Replay a history; return where it ends, and what it did not use."""
    desk = Desk("memory:")
    replayed = await replay_history(desk.server, path)
    assert desk.world.effects == []
    return replayed.next, list(replayed.unused)


def install(folder: Path, name: str) -> None:
    """Install a server into the file of every host: a program for some, an address for others."""
    for host in HOSTS:
        options = ["--host", host, "--name", name, "--config", folder / f"{host}.json", "--yes"]
        if host in ("claude-desktop", "cursor"):
            run("install", *options, "--env", "TOKEN=1", "--", "sh", "-c", "true")
        else:
            run("install", *options, "--header", "X-Team: north", "https://mcp.example.com/mcp")
    for backup in [path for path in folder.iterdir() if path.suffix != ".json"]:
        backup.unlink()


async def write_all(folder: Path, store: str, history: str) -> None:
    """Write everything."""
    await write_logins(folder)
    for name in ("recordings", "exports", "hosts"):
        (folder / name).mkdir()
    await write_recordings(folder / "recordings")
    write_exports(folder / "exports", store, history)
    install(folder / "hosts", "one")
