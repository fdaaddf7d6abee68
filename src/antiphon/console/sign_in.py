"""Who looks at the console: a link that works once, or a token that the server's `authenticate` verifies.

Owns the cookie. The cookie of a link holds a random secret, of which this process knows the hash. The cookie
of a token holds the token, sealed, so that every request is authenticated anew.
"""

from __future__ import annotations

import hashlib
import hmac
import inspect
import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from antiphon.console.routes import ConsoleUser, Problem
from antiphon.errors import Forbidden, RequestError, SealError, Unauthorized
from antiphon.model.identity import Principal
from antiphon.runtime.carriers.seal import Seal

__all__ = ["Operators", "SignIn"]

Operators: TypeAlias = Collection[str] | Callable[[Principal], bool | Awaitable[bool]]
"""The ids of the principals who operate the server, or a function that says whether a principal does."""
Identify: TypeAlias = Callable[[Mapping[str, str]], Awaitable[Principal]]

COOKIE_SECONDS = 12 * 60 * 60
"""How long a browser stays signed in."""
LINK_SECONDS = 10 * 60
"""How long a link can be used."""
_MAX_LINKS = 16
"""How many links that nobody has used are kept. A new one replaces the oldest."""
_MAX_SESSIONS = 256
_MAX_TOKEN_BYTES = 2800
"""How long a token may be: browsers keep cookies of 4096 bytes."""
_BINDING = b"console"


def _ignore() -> None:
    """Do nothing."""


class SignIn:
    """Signs people in, and says who sends a request.

    `operator` is the name of the local operator, who signs in with a link; `None` if there are no links.
    `identify` authenticates headers, as the server does; `None` if the server does not authenticate. `now`
    returns the time.
    """

    def __init__(
        self,
        *,
        operator: str | None = None,
        identify: Identify | None = None,
        seal: Seal | None = None,
        operators: Operators = (),
        read_only: bool = False,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._operator = operator
        self._identify = identify
        self._seal = Seal() if seal is None else seal
        self._operators = operators
        self._may_write = not read_only
        self._links = _Secrets(_MAX_LINKS, LINK_SECONDS, now)
        self._sessions = _Secrets(_MAX_SESSIONS, COOKIE_SECONDS, now)
        self.on_expired_link: Callable[[], None] = _ignore
        """Is called after somebody used a link that has expired. A command prints a new one."""

    @property
    def takes_tokens(self) -> bool:
        """Whether people can sign in with a token."""
        return self._identify is not None

    @property
    def makes_links(self) -> bool:
        """Whether the local operator signs in with links."""
        return self._operator is not None

    def create_link(self, on_used: Callable[[], None] = _ignore) -> str:
        """Return a token for the address of the console, which signs one browser in as the operator.

        `on_used` is called when it has done so.
        """
        return self._links.create(on_used)

    def redeem_link(self, token: str) -> str | None:
        """Return the value of a new cookie for the token of a link.

        Returns `None` if the token is unknown, was used, or has expired.
        """
        kept = self._links.remove(token)
        if kept is None:
            return None
        if not self._links.is_valid(kept):
            self.on_expired_link()
            return None
        kept.on_used()
        return self._sessions.create()

    async def redeem_token(self, token: str, headers: Mapping[str, str]) -> str:
        """Return the value of a new cookie for a token that the server accepts; raises `Problem`."""
        token = token.strip()
        if len(token) > _MAX_TOKEN_BYTES:
            raise Problem(413, f"A browser keeps at most {_MAX_TOKEN_BYTES} bytes of a token.")
        if not token or not token.isascii() or not token.isprintable():
            raise Problem(401, "This is not a token.")
        await self._authenticate(token, headers)
        return self._seal.seal(token.encode(), use="console", bound_to=_BINDING, lifetime=COOKIE_SECONDS)

    def sign_out(self, cookie: str) -> None:
        """Make the cookie of a link invalid. The cookie of a token is removed from the browser only."""
        self._sessions.remove(cookie)

    async def user(self, cookies: Sequence[str], headers: Mapping[str, str]) -> ConsoleUser | None:
        """Return who sends a request; `None` if the person has to sign in. Raises `Problem`.

        A browser sends several cookies if another program of the host has set one. If they are of different
        people, nobody is signed in.
        """
        if self._operator is not None and any(self._sessions.has(cookie) for cookie in cookies):
            return ConsoleUser(self._operator, None, may_operate=True, may_write=self._may_write)
        if self._identify is None:
            return None
        if "authorization" in headers:
            return await self._person(await self._authenticate(None, headers))
        found = [user for cookie in cookies if (user := await self._owner(cookie, headers)) is not None]
        return found[0] if len({user.rights for user in found}) == 1 else None

    async def _owner(self, cookie: str, headers: Mapping[str, str]) -> ConsoleUser | None:
        """Return the person whose token a cookie holds; `None` if it is invalid."""
        try:
            token = self._seal.open(cookie, use="console", bound_to=_BINDING).decode()
            return await self._person(await self._authenticate(token, headers))
        except (SealError, Problem):  # the token has expired, or was revoked
            return None

    async def _authenticate(self, token: str | None, headers: Mapping[str, str]) -> Principal:
        """Return the principal of a token, or of the headers; raises `Problem`."""
        if self._identify is None:
            raise Problem(404, "This console has no sign-in with a token.")
        given = headers if token is None else {**headers, "authorization": f"Bearer {token}"}
        try:
            return await self._identify(given)
        except (Unauthorized, Forbidden) as error:
            raise Problem(401, error.message) from None
        except RequestError as error:
            raise Problem(error.status, error.message) from None

    async def _person(self, principal: Principal) -> ConsoleUser:
        if callable(self._operators):
            found = self._operators(principal)
            may_operate = bool(await found if inspect.isawaitable(found) else found)
        else:
            may_operate = principal.id in self._operators
        return ConsoleUser(principal.id, principal, may_operate=may_operate, may_write=self._may_write)


class _Kept(NamedTuple):
    """What is known of a secret: when it ends to be valid, and what follows its use."""

    expires_at: float
    on_used: Callable[[], None]


class _Secrets:
    """Random secrets, of which only the hashes are kept. Beyond `most`, a new one replaces the oldest."""

    def __init__(self, most: int, seconds: float, now: Callable[[], float]) -> None:
        self._most = most
        self._seconds = seconds
        self._now = now
        self._kept: dict[bytes, _Kept] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def create(self, on_used: Callable[[], None] = _ignore) -> str:
        """Return a new secret."""
        secret = secrets.token_urlsafe(32)
        while len(self._kept) >= self._most:
            del self._kept[next(iter(self._kept))]
        self._kept[_hash(secret)] = _Kept(self._now() + self._seconds, on_used)
        return secret

    def has(self, secret: str) -> bool:
        """Return whether a secret is known and valid, in a time that does not depend on the others."""
        given, found = _hash(secret), False
        for each, kept in self._kept.items():
            found |= hmac.compare_digest(each, given) & self.is_valid(kept)
        return found

    def remove(self, secret: str) -> _Kept | None:
        """Forget a secret; return what was known of it, or `None`. It may have expired."""
        return self._kept.pop(_hash(secret), None)

    def is_valid(self, kept: _Kept) -> bool:
        """Return whether a secret has not expired."""
        return self._now() < kept.expires_at


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
