"""The official TypeScript client signs in to our server: discovery, registration, PKCE, and step-up."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.support import process
from tests.support.authorization_server import CALLBACK, NODE, AuthorizationServer, sign_in
from tests.support.process import ROOT

SCRIPT = Path(__file__).with_name("signing_in.mjs")


async def run(options: dict[str, Any]) -> tuple[dict[str, Any], list[list[str]]]:
    """Return what the client was told, and the scopes of each page that Ada has visited for it."""
    pipe = asyncio.subprocess.PIPE
    given = json.dumps({"modules": str(ROOT / ".node"), "callback": CALLBACK, **options})
    running = await asyncio.create_subprocess_exec(
        str(NODE), str(SCRIPT), given, stdin=pipe, stdout=pipe, stderr=pipe
    )
    assert running.stdin is not None
    assert running.stdout is not None
    assert running.stderr is not None
    visited = []
    try:
        async with asyncio.timeout(60):
            while line := await running.stdout.readline():
                told = json.loads(line)
                if "said" in told:
                    return told["said"], visited
                asked = parse_qs(urlsplit(told["visit"]).query)["scope"][0].split()
                visited.append(sorted(set(asked) - {"offline_access"}))  # which the client adds for itself
                came_back = await sign_in(told["visit"], "ada")
                running.stdin.write(f"{came_back}\n".encode())
            raise AssertionError((await running.stderr.read()).decode())
    finally:
        if running.returncode is None:
            running.kill()
        await running.communicate()


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_the_official_client_registers_and_signs_in(
    oidc: AuthorizationServer, tmp_path: Path, mode: str
) -> None:
    with process.started("protected.py", tmp_path, env={"ISSUER": oidc.url}) as server:
        said, visited = await run({"url": server.url, "mode": mode, "tools": ["whoami"]})
    assert said["version"] == ("2026-07-28" if mode == "auto" else "2025-11-25")
    assert said["whoami"]["content"][0]["text"] == f"{oidc.url}#ada ['notes:read']"
    assert said["registered"]
    assert visited == [["notes:read"]]


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_the_official_client_asks_for_more_scopes_after_a_403(
    oidc: AuthorizationServer, tmp_path: Path, mode: str
) -> None:
    # The client registers with the scopes that it asks for first, so one that may ask for more is registered.
    client = {"client_id": "desktop", "redirect_uris": [CALLBACK]}
    with process.started("protected.py", tmp_path, env={"ISSUER": oidc.url}) as server:
        said, visited = await run(
            {"url": server.url, "mode": mode, "tools": ["whoami", "save"], "client": client}
        )
    assert said["save"]["content"][0]["text"] == "saved"
    assert visited == [["notes:read"], ["notes:read", "notes:write"]]
