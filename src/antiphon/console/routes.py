"""What a part of the console is made of: routes, the requests that they get, and what they may answer.

A part is a class with `routes()`. Its handlers raise `Problem` for a person to read. This module knows no
store, no server and no page.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from antiphon.model.identity import Principal
from antiphon.transport.server.http.router import HttpRequest

__all__ = [
    "ConsoleRequest",
    "ConsoleUser",
    "EventStream",
    "Feature",
    "Handler",
    "Problem",
    "Route",
    "RouteTable",
]


_PASSING_CLAIMS = frozenset({"auth_time", "exp", "iat", "jti", "nbf"})


@dataclass(frozen=True, slots=True)
class ConsoleUser:
    """The person who looks at the console."""

    name: str
    """The name that the page shows, and that answers and cancellations record."""
    principal: Principal | None
    """The authenticated principal; `None` for the local operator, who started the console."""
    may_operate: bool
    """Whether the person sees and changes everybody's tasks."""
    may_write: bool
    """Whether the person may change anything. A read-only console only shows."""

    @property
    def rights(self) -> tuple[str, frozenset[str], str] | None:
        """The identity of the person with all scopes and claims; `None` for the local operator.

        A connection that was opened with some rights is not used with others. Claims that differ in every
        token of a person do not count.
        """
        if self.principal is None:
            return None
        claims = self.principal.claims.items()
        lasting = sorted((name, repr(value)) for name, value in claims if name not in _PASSING_CLAIMS)
        return self.principal.id, frozenset(self.principal.scopes), repr(lasting)


class ConsoleRequest(HttpRequest):
    """A request to the API of the console."""

    params: Mapping[str, str]
    """The variables of the path, decoded."""
    user: ConsoleUser
    """The person who sent the request."""
    server: str | None
    """The address at which the request arrived, if the ASGI server knows it."""


class Problem(Exception):
    """A request that failed, with a message for the person who sent it.

    `fields` has a message for each field of a form that is wrong.
    """

    def __init__(self, status: int, message: str, fields: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.fields = dict(fields or {})


class EventStream:
    """A response of server-sent events. `events` yields the name of each event, and its data for JSON.

    The iterator is closed when the person leaves the page, or when the console stops.
    """

    def __init__(self, events: AsyncIterator[tuple[str, Any]]) -> None:
        self.events = events


Handler: TypeAlias = Callable[[ConsoleRequest], Awaitable[Any]]
"""Returns data for JSON, an `HttpResponse` or an `EventStream`. Raises `Problem`."""


@dataclass(frozen=True, slots=True)
class Route:
    """A path of the API, such as `/api/stores/{store}/tasks/{id}`, and the function that serves it."""

    method: str
    path: str
    handler: Handler
    writes: bool = False
    """Whether the route changes something. A read-only console refuses it."""
    operators: bool = False
    """Whether the route is for operators only. For other people it does not exist."""


class Feature(Protocol):
    """A part of the console: the inbox, the tasks, the workbench."""

    def routes(self) -> Sequence[Route]:
        """Return the routes of the part."""


class RouteTable:
    """Finds the route of a request by its method and its path."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self._routes = [(tuple(route.path.strip("/").split("/")), route) for route in routes]

    def find(self, method: str, path: Sequence[str]) -> tuple[Route, dict[str, str]] | None:
        """Return the route of a path, given by its decoded segments, and the variables of the path.

        Returns `None` if no route has the path. Raises `Problem` if only other methods have it.
        """
        allowed: set[str] = set()
        for pattern, route in self._routes:
            params = _match(pattern, path)
            if params is None:
                continue
            if route.method == method:
                return route, params
            allowed.add(route.method)
        if allowed:
            raise Problem(405, f"Use {' or '.join(sorted(allowed))} for this address.")
        return None


def _match(pattern: Sequence[str], path: Sequence[str]) -> dict[str, str] | None:
    """Return the variables of a path that fits a pattern; `None` if it does not fit."""
    if len(pattern) != len(path):
        return None
    params: dict[str, str] = {}
    for expected, given in zip(pattern, path, strict=True):
        if expected.startswith("{"):
            if not given:
                return None
            params[expected[1:-1]] = given
        elif expected != given:
            return None
    return params
