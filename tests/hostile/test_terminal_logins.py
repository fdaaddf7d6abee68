"""The commands for logins against a server and an issuer whose every string is poisoned."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from antiphon import FileLogins
from antiphon.client.oauth.logins import Login, RegisteredClient
from tests.hostile.hostile_server import POISON
from tests.hostile.terminal import assert_printable, foreign_text, in_pseudo_terminal
from tests.support.web import answering

REFUSAL = {"error": POISON, "error_description": POISON}


class Poisoned:
    """A server and its issuer, which let nobody in. A test changes their answers."""

    def __init__(self, port: int) -> None:
        base = self.base = f"http://127.0.0.1:{port}"
        self.url = f"{base}/mcp"
        names = ("authorization", "token", "registration", "revocation", "device_authorization")
        self.answers: dict[str, Any] = {
            "/.well-known/oauth-protected-resource": {
                "resource": self.url,
                "authorization_servers": [base],
                "scopes_supported": [POISON, "notes:read"],
            },
            "/.well-known/oauth-authorization-server": {
                "issuer": base,
                "code_challenge_methods_supported": ["S256"],
                **{f"{name}_endpoint": f"{base}/{name}" for name in names},
            },
            "/registration": {"client_id": POISON, "client_secret": POISON},
            "/device_authorization": {
                "device_code": POISON,
                "user_code": POISON,
                "verification_uri": f"{base}/{POISON}",
                "interval": 0.1,
            },
            "/token": REFUSAL,
            "/revocation": REFUSAL,
        }

    async def handle(self, request: web.Request) -> web.Response:
        """Answer a request."""
        if request.path == "/mcp":
            return web.Response(status=401, headers={"WWW-Authenticate": 'Bearer scope="\x9b2J x"'})
        answer = self.answers.get(request.path)
        refused = answer is None or answer is REFUSAL
        return web.json_response(answer or {}, status=400 if refused else 200)


def issuer(name: str, value: Any) -> Callable[[Poisoned], None]:
    """Change the metadata of the issuer."""

    def change(server: Poisoned) -> None:
        server.answers["/.well-known/oauth-authorization-server"][name] = value

    return change


def resource(name: str, value: Any) -> Callable[[Poisoned], None]:
    """Change the metadata of the server."""

    def change(server: Poisoned) -> None:
        server.answers["/.well-known/oauth-protected-resource"][name] = value

    return change


def answer(path: str, value: Any) -> Callable[[Poisoned], None]:
    """Change an answer of the issuer."""
    return lambda server: server.answers.update({path: value})


def nothing(server: Poisoned) -> None:
    """Change nothing."""


DEVICE = ("login", "URL", "--device")
PASTE = ("login", "URL", "--paste")
TOKENS = {"access_token": POISON, "token_type": POISON, "scope": POISON}

CASES: dict[str, tuple[Callable[[Poisoned], None], Sequence[str]]] = {
    "device": (nothing, DEVICE),
    "device-page": (answer("/device_authorization", {"verification_uri": f"javascript:{POISON}"}), DEVICE),
    "device-tokens": (answer("/token", TOKENS), DEVICE),
    "device-let-in": (answer("/token", {**TOKENS, "access_token": "t", "token_type": "bearer"}), DEVICE),
    "paste": (nothing, PASTE),
    "paste-page": (issuer("authorization_endpoint", f"http://127.0.0.1:1/{POISON}"), PASTE),
    "registration": (answer("/registration", REFUSAL), PASTE),
    "issuer": (issuer("issuer", POISON), PASTE),
    "endpoint": (issuer("token_endpoint", f"https://{POISON}"), PASTE),
    "types": (issuer("code_challenge_methods_supported", POISON), PASTE),
    "resource": (resource("resource", f"https://ada:pw@x.example/{POISON}"), PASTE),
    "issuers": (resource("authorization_servers", [POISON, f"https://x.example/{POISON}"]), PASTE),
    "logins": (nothing, ("logins",)),
    "logins-json": (nothing, ("logins", "--json")),
    "logout": (nothing, ("logout", "URL")),
}


@pytest.mark.parametrize("case", CASES)
async def test_the_terminal_gets_printable_text_alone(case: str, tmp_path: Path) -> None:
    change, words = CASES[case]
    async with answering(Poisoned) as server:
        change(server)
        if words[0] != "login":
            FileLogins(tmp_path / "antiphon" / "logins").save(poisoned_login(server))
        arguments = [word.replace("URL", server.url) for word in words]
        shown = await asyncio.to_thread(in_pseudo_terminal, arguments, {"XDG_STATE_HOME": str(tmp_path)})
    assert shown.strip(), "it printed nothing"
    assert "Traceback" not in shown
    rest = foreign_text(shown)
    assert_printable(rest)
    assert "ada:pw" not in rest
    assert "\nError: forged" not in rest.replace("\r", "")


def poisoned_login(server: Poisoned) -> Login:
    return Login(
        url=server.url,
        resource=POISON,
        issuer=POISON,
        client=RegisteredClient(POISON),
        token_endpoint=f"{server.base}/token",
        access_token=POISON,
        refresh_token=POISON,
        revocation_endpoint=f"{server.base}/revocation",
        scopes=(POISON,),
    )
