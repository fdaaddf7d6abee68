"""Finds the proxy for a URL in the environment, by the rules of curl. Opens no connection."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit
from urllib.request import getproxies

__all__ = ["environment_proxy"]


def environment_proxy(scheme: str, host: str, port: int | None) -> str | None:
    """Return the address of the proxy that the environment names for a host; `None` without one.

    HTTP_PROXY, HTTPS_PROXY and ALL_PROXY name a proxy, in capitals or not, and NO_PROXY the hosts without
    one. Windows and macOS have settings for them too.
    """
    named = getproxies()
    address = named.get(scheme) or named.get("all")
    if not address or any(_matches(entry.strip(), host, port) for entry in named.get("no", "").split(",")):
        return None
    return address if "://" in address else f"http://{address}"


def _matches(entry: str, host: str, port: int | None) -> bool:
    """Return whether an entry of NO_PROXY means this host.

    `example.com` means the host and all below it, `.example.com` only those below it. An entry may have a
    port, or be a network such as 10.0.0.0/8.
    """
    if entry == "*":
        return True
    if not entry:
        return False
    host = host.lower().strip("[]")
    try:
        network = ipaddress.ip_network(entry.strip("[]"), strict=False)
    except ValueError:
        pass
    else:
        try:
            return ipaddress.ip_address(host) in network
        except ValueError:
            return False
    try:
        split = urlsplit(entry if "://" in entry else f"//{entry}")
        name, wanted_port = split.hostname or "", split.port
    except ValueError:
        return False
    if wanted_port is not None and wanted_port != port:
        return False
    if name.startswith("."):
        return host.endswith(name)
    return bool(name) and (host == name or (name != "localhost" and host.endswith(f".{name}")))
