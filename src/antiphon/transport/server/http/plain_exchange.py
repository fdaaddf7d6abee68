"""A plain request: the HTTP protocol hands it to the endpoint itself, without ASGI in between.

Its answer is written in one piece. For everything else, such as an event stream or an error, the connection
opens the ASGI cycle of the request, and the request continues as any other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from antiphon.model.identity import Stranger
from antiphon.runtime.limits import Limits
from antiphon.transport.server.http.asgi import Receive, Send
from antiphon.transport.server.http.exchange import Exchange

if TYPE_CHECKING:
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

    from antiphon.transport.server.http.protocol import HttpProtocol

__all__ = ["PlainExchange"]


class PlainExchange(Exchange):
    """A POST to the endpoint with a small body, which has arrived."""

    cycle: RequestResponseCycle | None = None
    """The ASGI cycle of the request, once there is one."""
    has_resources = True

    def __init__(self, connection: HttpProtocol, headers: Mapping[bytes, bytes]) -> None:
        self.connection = connection
        self.headers = headers

    @property
    def _limits(self) -> Limits:  # type: ignore[override]
        return self.connection.limits

    @property
    def stranger(self) -> Stranger:  # type: ignore[override]
        """Who calls a server without authentication."""
        return self.connection.stranger

    @property
    def transport(self) -> asyncio.Transport:
        """The transport of the connection."""
        return self.connection.transport

    def write(self, body: bytes) -> bool:
        """Write a small JSON answer at once, unless the client does not read or has sent another request."""
        if self.cycle is not None or not self.connection.write_answer(body):
            return False
        self.has_resources = self.tasks is not None or self.account is not None
        return True

    # An event stream keeps one of these. A method of the exchange would keep the exchange, which keeps the
    # stream: the memory of both would wait for the garbage collector.

    @property
    def send(self) -> Send:  # type: ignore[override]
        """Send an ASGI message."""
        return self._open_cycle().send  # type: ignore[return-value]

    @property
    def receive(self) -> Receive:  # type: ignore[override]
        """Receive an ASGI message: the body was read, so there is only the notice of a disconnect."""
        return self._open_cycle().receive  # type: ignore[return-value]

    def close(self) -> None:
        """Close what the exchange opened. Ends the connection if the request got no answer."""
        super().close()
        cycle = self.cycle
        if cycle is None:
            if self.connection.plain is self:
                self.connection.plain = None
                self.transport.close()
        elif not cycle.response_complete and not cycle.disconnected:
            self.transport.close()

    def _open_cycle(self) -> RequestResponseCycle:
        return self.connection.open_cycle(self) if self.cycle is None else self.cycle
