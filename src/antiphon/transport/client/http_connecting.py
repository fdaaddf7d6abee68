"""What the HTTP clients have in common below HTTP: TLS settings, idle connections, reasons of failures."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import re
import socket
import ssl
import sys
from functools import cache

__all__ = [
    "IDLE_SECONDS",
    "QUIET_SECONDS",
    "default_tls",
    "is_short_address",
    "os_reason",
    "see_closed_connections",
]

IDLE_SECONDS = 4.0
"""How long a connection stays in the pool. Many servers close one after 5 s, and a request sent meanwhile is
lost."""
QUIET_SECONDS = 0.5
"""After how long without a request a client looks whether servers have closed connections meanwhile."""
_NUMBER = re.compile(r"[0-9]+|0[xX][0-9A-Fa-f]*")


def is_short_address(host: str) -> bool:
    """Return whether resolvers read a host as an IPv4 address that is not written as four numbers.

    `127.1` and `0x7f000001` are 127.0.0.1 to them, and names to a check that looks for private addresses. No
    name on the internet ends with a number.
    """
    if not _NUMBER.fullmatch(host.rstrip(".").rpartition(".")[2]):
        return False
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return True
    return False


@cache
def default_tls() -> ssl.SSLContext:
    """Return the TLS settings of clients that have none: certificates as the operating system trusts them."""
    if sys.platform in ("win32", "darwin"):  # OpenSSL does not know where these keep certificates
        import truststore

        return truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


async def see_closed_connections() -> None:
    """Let the event loop read its sockets, so that the pool knows which connections servers have closed.

    A program that has blocked the loop since the last request would send the next one into such a connection.
    """
    for _ in range(2):  # the loop reads the sockets after it has woken this task once
        await asyncio.sleep(0)


def os_reason(error: OSError) -> str:
    """Return the reason of an error of the operating system, of TLS or of the resolver."""
    if isinstance(error, ConnectionRefusedError):
        return "Connection refused"
    if isinstance(error, socket.gaierror):
        return error.strerror or "the name of the host was not found"
    if isinstance(error, ssl.SSLError) or not error.errno:
        return str(error) or type(error).__name__
    return os.strerror(error.errno)
