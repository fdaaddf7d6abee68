"""The open HTTP connections of one process: their number, their deadlines, and the log lines about both.

Owns the caps on connections and the timer that checks deadlines. Knows nothing about HTTP: a connection says
what to do when its deadline passes.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import os
from functools import lru_cache
from typing import Any, Protocol

from antiphon.model.identity import STRANGER, Stranger
from antiphon.runtime.limits import Limits
from antiphon.runtime.observability.rate_limited_log import RateLimitedLog
from antiphon.transport.server.http.unread import count_unread, drop

__all__ = ["Connection", "Connections", "network_of", "raise_descriptor_limit", "stranger_at"]

logger = logging.getLogger("antiphon")

SWEEP_SECONDS = 1.0
"""How often deadlines are checked, at least."""
RESERVED_DESCRIPTORS = 256
"""How many descriptors are left to stores, files and child processes."""
MAX_DESCRIPTORS = 1024 * 1024
"""How far the limit of descriptors is raised, even if the hard limit is higher or infinite."""
IDLE_FRACTION = 16
"""The part of all connections that is closed at once if there are too many, and some are idle."""
_MAX_STRANGERS = 1024
"""For how many addresses it is kept whose they are. To find it out again takes some microseconds."""
IPV6_NETWORK_BITS = 64
"""The part of an IPv6 address that says whose it is: a provider gives each customer a whole network."""


class Connection(Protocol):
    """A connection as the sweep sees it."""

    transport: asyncio.Transport
    unread_bytes: int
    """How many bytes the client had not read at the last sweep."""
    unread_since: float
    """Since when the client has read nothing."""

    idle_until: float | None
    """When the connection is closed unless a request comes; `None` while it has a request."""

    def expire(self) -> None:
        """Act on a deadline that has passed."""


class Connections:
    """Admits connections up to the limits, and ends those that take too long or do not read."""

    def __init__(self, limits: Limits, descriptors: int | None = None) -> None:
        self.limits = limits
        self._max, self._max_per_address = _reconcile(limits, descriptors)
        self._open: dict[Connection, str | None] = {}
        """The admitted connections, with the network of each."""
        self._by_network: dict[str, int] = {}
        self.deadlines: dict[Connection, float] = {}
        """When each connection expires that a request head is awaited from, or that was refused."""
        self._log = RateLimitedLog()
        self._interval = max(0.01, min(SWEEP_SECONDS, limits.head_timeout / 4, limits.body_timeout / 4))
        self._timer: asyncio.TimerHandle | None = None
        """Runs the next sweep; `None` before the first connection."""
        self._has_searched = False
        """Whether idle connections were searched since the last sweep."""

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, connection: Connection, client: tuple[str, int] | None) -> str | None:
        """Count a connection; return why it is refused, or `None` if it is admitted."""
        if self._timer is None:
            self._schedule(asyncio.get_running_loop())
        if len(self._open) >= self._max:
            self._close_idle()
        if len(self._open) >= self._max:
            self._log.warning(
                "Refusing connections: %d are open, and no more are allowed. Raise Limits.max_connections, "
                "or close connections that are idle.",
                len(self._open),
            )
            return "The server is at its limit of connections: try again later."
        network = None if client is None else network_of(client[0])
        if network is not None:
            count = self._by_network.get(network, 0)
            if count >= self._max_per_address:
                self._log.warning(
                    "Refusing connections from %s: %d are open, and no more are allowed. If this is a load "
                    "balancer, raise Limits.max_connections_per_address.",
                    network,
                    count,
                )
                return "Your address is at its limit of connections: try again later."
            self._by_network[network] = count + 1
        self._open[connection] = network
        return None

    def leave(self, connection: Connection) -> None:
        """Forget a connection that is closed."""
        self.deadlines.pop(connection, None)
        network = self._open.pop(connection, None)
        if network is not None:
            self._by_network[network] -= 1
            if not self._by_network[network]:
                del self._by_network[network]

    def _close_idle(self) -> None:
        """Close the connections that have been idle longest, a few at once: new clients need the room more.

        The search takes time, so it is done once between two sweeps.
        """
        if self._has_searched:
            return
        self._has_searched = True
        idle = [
            (until, connection) for connection in self._open if (until := connection.idle_until) is not None
        ]
        idle.sort(key=lambda pair: pair[0])
        for _, connection in idle[: 1 + len(self._open) // IDLE_FRACTION]:
            if connection.transport.get_write_buffer_size():  # a client that does not read would keep it open
                drop(connection.transport)
            else:
                connection.transport.close()
            self.leave(connection)

    def log(self, message: str, *values: Any) -> None:
        """Log a warning, once per minute for each message."""
        self._log.warning(message, *values)

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = loop.call_later(self._interval, self._sweep, loop)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        """End the connections whose deadline had passed when this sweep was due.

        A sweep that comes late follows a time in which the process stood still. What clients have sent
        meanwhile is read before the next sweep.
        """
        assert self._timer is not None
        now = self._timer.when()
        self._schedule(loop)
        self._has_searched = False
        for connection, deadline in tuple(self.deadlines.items()):
            if now >= deadline:
                connection.expire()
        for connection in tuple(self._open):
            if connection.idle_until is not None and now >= connection.idle_until:
                connection.expire()
            else:
                self._check_reading(connection, now)
        self._check_descriptors()

    def _check_reading(self, connection: Connection, now: float) -> None:
        """Abort a connection whose client has read nothing of an answer for `Limits.body_timeout` seconds.

        To close it would not do: a transport that is closed waits until its buffer is empty.
        """
        unread = connection.transport.get_write_buffer_size()
        if unread:
            unread = count_unread(connection.transport)
        if unread and unread >= connection.unread_bytes > 0:
            if now - connection.unread_since >= self.limits.body_timeout:
                drop(connection.transport)
                self._log.warning(
                    "Closed a connection: its client has read nothing of its answer for %g seconds, "
                    "Limits.body_timeout.",
                    self.limits.body_timeout,
                )
        else:
            connection.unread_since = now
        connection.unread_bytes = unread

    def _check_descriptors(self) -> None:
        """Log if no descriptor is left: the event loop drops new connections then, and may not say so."""
        try:
            os.close(os.open(os.devnull, os.O_RDONLY))
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                self._log.warning(
                    "Cannot accept connections: the process has no file descriptor left. Raise its limit "
                    "(ulimit -n), or lower Limits.max_connections."
                )


def raise_descriptor_limit() -> int | None:
    """Raise the limit of open descriptors to the hard limit; return it, or `None` if there is none."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return None if soft == resource.RLIM_INFINITY else soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):  # some systems have a lower limit than they say
        return soft
    return wanted


def _reconcile(limits: Limits, descriptors: int | None) -> tuple[int, int]:
    """Return how many connections are admitted in all and by address, given the limit of descriptors."""
    wanted, per_address = int(limits.max_connections), int(limits.max_connections_per_address)
    if descriptors is None:
        return wanted, per_address
    possible = max(1, descriptors - min(RESERVED_DESCRIPTORS, descriptors // 4))
    if possible >= wanted:
        return wanted, per_address
    logger.warning(
        "At most %d connections are accepted, not %d (Limits.max_connections): the process may have only %d "
        "file descriptors. Raise the hard limit (ulimit -Hn), or lower Limits.max_connections.",
        possible,
        wanted,
        descriptors,
    )
    return possible, max(1, possible * per_address // wanted)


def network_of(host: str) -> str:
    """Return the address of a client; for IPv6, the network that the client can choose addresses from."""
    if ":" not in host:
        return host
    try:
        address = ipaddress.IPv6Address(host.partition("%")[0])
    except ValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    if address.is_loopback:
        return str(address)
    return str(ipaddress.IPv6Network((address, IPV6_NETWORK_BITS), strict=False))


def stranger_at(client: tuple[str, int] | None) -> Stranger:
    """Return the caller of a server without authentication who comes from an address."""
    return STRANGER if client is None else _stranger_of(client[0])


@lru_cache(maxsize=_MAX_STRANGERS)
def _stranger_of(host: str) -> Stranger:
    return Stranger(address=network_of(host))
