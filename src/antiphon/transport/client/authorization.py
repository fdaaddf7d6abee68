"""The seam between the HTTP channel and the object that gets access tokens for it.

The channel asks for a header before each request, and reports every 401 and 403. It knows no OAuth. A login
of a person takes minutes, so it never happens inside of a request: the channel raises `AuthorizationNeeded`,
and the connection waits for the login outside of the deadline of the request.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple, Protocol, TypeAlias

from antiphon.errors import ClientError, RequestError, Unauthorized

__all__ = [
    "Authorization",
    "AuthorizationNeeded",
    "Authorizing",
    "Connect",
    "Refused",
    "authorize_in_background",
]

logger = logging.getLogger("antiphon.client")

Authorizing: TypeAlias = Literal["login", "step-up"]
"""What a person has to do: log in, or allow further scopes."""


class Refused(NamedTuple):
    """A request that the server refused."""

    header: str | None
    """The Authorization header of the request."""
    status: int
    """401 or 403."""
    challenge: str
    """The `WWW-Authenticate` header of the response."""
    nonce: str | None
    """The `DPoP-Nonce` header of the response."""
    error: RequestError
    attempt: int
    """How often the request was sent before."""


class Authorization(Protocol):
    """Gets access tokens for the requests of one channel."""

    async def headers(self, method: str) -> Mapping[str, str]:
        """Return the headers that authorize a request; empty without a token. Raises `ClientError`."""

    def received(self, nonce: str | None) -> None:
        """Receive the `DPoP-Nonce` of a response; `None` without one. Raises nothing."""

    async def refused(self, refused: Refused) -> bool:
        """Return whether the channel should send the request again, because there is another token now.

        Raises `AuthorizationNeeded` if a person can help, and `ClientError`.
        """

    async def close(self) -> None:
        """Stop what runs in the background. Raises nothing."""


class Authorize(Protocol):
    """Gets another token for a request that was refused."""

    async def __call__(self, *, in_background: bool = False) -> None:
        """Get another token, for which a person may have to log in; raises `ClientError`.

        `in_background` is for work that the program does not wait for. A server decides how often such work
        is refused, so a person is asked for it only once in a while: in between, the refusal is raised.
        """


class AuthorizationNeeded(Unauthorized):
    """A request that was refused, and that succeeds once `authorize` has got another token."""

    def __init__(self, kind: Authorizing, refusal: RequestError, authorize: Authorize) -> None:
        super().__init__(refusal.message)
        self.kind = kind
        self.refusal = refusal
        """The error of the server, for a caller that does not authorize."""
        self.authorize = authorize


async def authorize_in_background(
    needed: AuthorizationNeeded, peer: str
) -> ClientError | RequestError | None:
    """Authorize a stream that no caller waits for; return why the stream cannot be opened, or `None`."""
    try:
        await needed.authorize(in_background=True)
    except RequestError as refusal:
        return refusal
    except ClientError as error:
        logger.warning(
            "The stream of changes from %s is closed until somebody logs in: %s "
            "The client tries again without asking.",
            peer,
            error,
        )
        return error
    return None


class Connect(Protocol):
    """Settings that can authorize requests: `OAuth` is one."""

    def authorization(self, url: str, connect: Callable[[], object]) -> Authorization:
        """Return the authorization of requests to a URL. `connect` returns a new `HttpClient`."""
