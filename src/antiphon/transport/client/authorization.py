"""The seam between the HTTP channel and the object that gets access tokens for it.

The channel asks for a header before each request, and reports every 401 and 403. It knows no OAuth. A login
of a person takes minutes, so it never happens inside of a request: the channel raises `AuthorizationNeeded`,
and the connection waits for the login outside of the deadline of the request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal, Protocol, TypeAlias

from antiphon.errors import RequestError, Unauthorized

__all__ = ["Authorization", "AuthorizationNeeded", "Authorizing", "Connect"]

Authorizing: TypeAlias = Literal["login", "step-up"]
"""What a person has to do: log in, or allow further scopes."""


class Authorization(Protocol):
    """Gets access tokens for the requests of one channel."""

    async def header(self) -> str | None:
        """Return the value of the Authorization header; `None` without a token. Raises `ClientError`."""

    async def refused(
        self, header: str | None, status: int, challenge: str, refusal: RequestError, attempt: int
    ) -> bool:
        """Return whether the channel should send the request again, because there is another token now.

        `header` is the header that was refused, and `attempt` counts the requests that were sent before.
        Raises `AuthorizationNeeded` if a person can help, and `ClientError`.
        """

    async def close(self) -> None:
        """Stop what runs in the background. Raises nothing."""


class AuthorizationNeeded(Unauthorized):
    """A request that was refused, and that succeeds once `authorize` has got another token."""

    def __init__(
        self, kind: Authorizing, refusal: RequestError, authorize: Callable[[], Awaitable[None]]
    ) -> None:
        super().__init__(refusal.message)
        self.kind = kind
        self.refusal = refusal
        """The error of the server, for a caller that does not authorize."""
        self.authorize = authorize


class Connect(Protocol):
    """Settings that can authorize requests: `OAuth` is one."""

    def authorization(self, url: str, connect: Callable[[], object]) -> Authorization:
        """Return the authorization of requests to a URL. `connect` returns a new `HttpClient`."""
