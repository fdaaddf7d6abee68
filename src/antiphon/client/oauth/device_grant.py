"""The login of a person with another device: a code that the person types into a page anywhere.

https://datatracker.ietf.org/doc/html/rfc8628
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from antiphon.authorization.urls import shown_url
from antiphon.client.oauth.code_grant import with_offline_access
from antiphon.client.oauth.grants import LoginRequest
from antiphon.client.oauth.logins import Login, RegisteredClient
from antiphon.client.oauth.registration import DEVICE_CODE, configured_client, register
from antiphon.client.oauth.token_requests import (
    IssuerRefused,
    client_credentials,
    read_seconds,
    token_request,
)
from antiphon.errors import AuthorizationFailed
from antiphon.printable import is_web_url, printable, printable_url

__all__ = ["DeviceGrant", "ShowCode"]

ShowCode: TypeAlias = Callable[[str, str], Awaitable[None] | None]
"""Shows a person the address of a page and the code to type there, as a plain or an async function."""

_FIRST_POLL_SECONDS = 5.0
_SLOWER_SECONDS = 5.0
_LONGEST_POLL_SECONDS = 60.0


@dataclass(frozen=True)
class DeviceGrant:
    """Shows a person a code, and waits for at most `login_timeout` seconds until it was typed in."""

    client_id: str | None
    client_secret: str | None
    client_metadata_url: str | None
    client_name: str
    show_code: ShowCode
    login_timeout: float
    is_silent = False

    def __repr__(self) -> str:
        return f"DeviceGrant({self.client_id!r})"

    async def obtain(self, request: LoginRequest) -> Login:
        """Return a login with new tokens; raises `AuthorizationFailed`."""
        issuer = request.server.issuer
        endpoint = issuer.device_authorization_endpoint
        if endpoint is None:
            raise AuthorizationFailed(
                f"The authorization server {shown_url(issuer.issuer)} has no login with a code. "
                "Log in with a browser."
            )
        client = await self._client(request)
        fields, headers = client_credentials(client)
        scopes = with_offline_access(issuer, request.scopes)
        form = {**fields, **request.access(scopes)}
        answer = await token_request(request.requests, endpoint, form, headers)
        code, typed = answer.get("device_code"), answer.get("user_code")
        page = answer.get("verification_uri_complete") or answer.get("verification_uri")
        if not (
            isinstance(code, str) and isinstance(typed, str) and isinstance(page, str) and is_web_url(page)
        ):
            raise AuthorizationFailed(f"{shown_url(endpoint)} responded without a code.")
        shown = self.show_code(printable_url(page), printable(typed, 100))
        if inspect.isawaitable(shown):
            await shown
        form = {"grant_type": DEVICE_CODE, "device_code": code, "resource": request.server.resource, **fields}
        try:
            async with asyncio.timeout(self.login_timeout):
                response = await _poll(request, form, headers, answer.get("interval"))
        except TimeoutError:
            raise AuthorizationFailed(
                f"Nobody has typed the code at {shown_url(issuer.issuer)} within {self.login_timeout:g} s. "
                "Log in again."
            ) from None
        return request.login(client, response, scopes)

    async def _client(self, request: LoginRequest) -> RegisteredClient:
        issuer = request.server.issuer
        configured = configured_client(issuer, self.client_id, self.client_secret, self.client_metadata_url)
        return configured or await register(request.requests, issuer, self.client_name, None)


async def _poll(
    request: LoginRequest, form: dict[str, str], headers: dict[str, str], interval: object
) -> dict[str, object]:
    """Ask for the tokens until the person has decided; raises `AuthorizationFailed`."""
    seconds = read_seconds(interval) or _FIRST_POLL_SECONDS
    while True:
        await asyncio.sleep(min(max(seconds, 0.1), _LONGEST_POLL_SECONDS))
        try:
            return await request.tokens(form, headers)
        except IssuerRefused as error:
            if error.error == "slow_down":
                seconds += _SLOWER_SECONDS
            elif error.error != "authorization_pending":
                raise
