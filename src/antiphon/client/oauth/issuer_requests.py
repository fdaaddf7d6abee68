"""Requests to issuers and for metadata: JSON documents and forms, each with a deadline and a bound.

No redirect is followed. Messages name a URL without its query, and never what a form or a document holds.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import SplitResult, urlencode, urlsplit

import msgspec

from antiphon.authorization.urls import problem_of_url, shown_url
from antiphon.errors import AuthorizationFailed, BadAnswer
from antiphon.transport.client.http_client import HttpClient, HttpFailure
from antiphon.transport.client.http_connecting import is_short_address
from antiphon.transport.client.http_response import body

__all__ = ["Document", "IssuerRequests"]

MAX_DOCUMENT_BYTES = 512 * 1024

_SPECIAL = tuple(
    map(
        ipaddress.ip_network,
        (
            "192.0.0.0/24",  # for protocols
            "192.88.99.0/24",  # relays of 6to4
            "224.0.0.0/4",  # multicast
            "2001::/23",  # for protocols; Teredo leads to an IPv4 address
            "2002::/16",  # 6to4 leads to an IPv4 address
            "3fff::/20",  # for documentation
        ),
    )
)
"""Addresses that no server on the internet has, and that `ipaddress` calls global in some version of Python.

https://www.iana.org/assignments/iana-ipv6-special-registry
"""
_GLOBAL_UNICAST = ipaddress.ip_network("2000::/3")
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_ISATAP = 0x00005EFE
"""The third quarter of an IPv6 address that has an IPv4 address as its last one (RFC 5214)."""


class Document(NamedTuple):
    """A response: its status, and the JSON object in it, which is empty if there is none."""

    status: int
    values: dict[str, Any]
    nonce: str | None = None
    """The nonce for the next proof (RFC 9449)."""


class IssuerRequests:
    """Sends requests for one server. `url` is the URL of the server, and `connect` returns an HTTP client.

    A server on the internet must not make a client send requests to the client's own network: addresses in
    private ranges are refused unless the server has one too, or `allow_private` is true.
    """

    def __init__(
        self, url: str, connect: Callable[[], HttpClient], *, timeout: float, allow_private: bool
    ) -> None:
        self._url = url
        self._is_forced = allow_private
        self._connect = connect
        self.timeout = timeout
        """How long one request may take, in seconds."""
        self._allow_private = allow_private or _is_private(url)

    def problem_of_server(self) -> str | None:
        """Return why no token may be sent to the server, or `None`.

        Its URL may have a query and a user. `allow_private` allows http in a private network.
        """
        try:
            parts = urlsplit(self._url)
            host = SplitResult(parts.scheme, parts.netloc.rpartition("@")[2], "", "", "").geturl()
        except ValueError:
            return "is not a URL"
        problem = problem_of_url(host)
        is_allowed = self._is_forced and parts.scheme == "http" and _is_private(host)
        return None if is_allowed else problem

    def problem_of(self, url: object, *, query: bool = True) -> str | None:
        """Return why the client may not use a URL, or `None`."""
        if problem := problem_of_url(url, query=query):
            return problem
        if not self._allow_private and _is_private(str(url)):
            return "is in a private network, and the server is not"
        return None

    async def get(self, url: str) -> Document:
        """Return the document at a URL; raises `AuthorizationFailed`."""
        return await self._send("GET", url, {}, None)

    async def post_form(
        self, url: str, form: Mapping[str, str], headers: Mapping[str, str] | None = None
    ) -> Document:
        """Post a form, and return the response; raises `AuthorizationFailed`."""
        kind = {"content-type": "application/x-www-form-urlencoded", **(headers or {})}
        return await self._send("POST", url, kind, urlencode(form).encode())

    async def post_json(self, url: str, values: Mapping[str, Any]) -> Document:
        """Post a JSON object, and return the response; raises `AuthorizationFailed`."""
        return await self._send(
            "POST", url, {"content-type": "application/json"}, msgspec.json.encode(values)
        )

    async def _send(
        self, method: str, url: str, headers: Mapping[str, str], content: bytes | None
    ) -> Document:
        shown = shown_url(url)
        if problem := self.problem_of(url):
            raise AuthorizationFailed(f"The URL {shown} {problem}. No request was sent.")
        http = self._connect()
        try:
            async with asyncio.timeout(self.timeout):
                response = await http.request(
                    method,
                    url,
                    {"accept": "application/json", "accept-encoding": "identity", **headers},
                    content,
                )
                try:
                    read = await body(response, MAX_DOCUMENT_BYTES, shown)
                finally:
                    await response.close()
        except TimeoutError:
            raise AuthorizationFailed(f"{shown} has not responded within {self.timeout:g} s.") from None
        except HttpFailure as error:
            raise AuthorizationFailed(f"No connection to {shown}: {error}.") from None
        except BadAnswer as error:
            raise AuthorizationFailed(str(error)) from None
        finally:
            await http.close()
        return Document(response.status, _object(bytes(read)), response.header("dpop-nonce"))


def _object(read: bytes) -> dict[str, Any]:
    try:
        values = msgspec.json.decode(read)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def _is_private(url: str) -> bool:
    """Return whether the host of a URL is `localhost`, or an address that is not on the internet."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return True
    try:
        return not _is_public(ipaddress.ip_address(host))
    except ValueError:
        pass
    name = host.rstrip(".")
    is_local = name == "localhost" or name.endswith((".localhost", ".local", ".internal"))
    return is_local or is_short_address(host)


def _is_public(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Return whether an address is one of the internet, and contains none that is not."""
    if any(address in network for network in _SPECIAL if network.version == address.version):
        return False
    if isinstance(address, ipaddress.IPv4Address):
        return address.is_global
    low = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    if address.ipv4_mapped or address in _NAT64:
        return _is_public(low)
    is_isatap = int(address) >> 32 & 0xFCFFFFFF == _ISATAP
    return address in _GLOBAL_UNICAST and address.is_global and (not is_isatap or _is_public(low))
