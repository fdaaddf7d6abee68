"""Chooses the channel to a server: for a URL, for a command, or for a server in this process.

It also checks the options of a client that are times.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

from antiphon.model.identity import ANONYMOUS, Principal, problem_of
from antiphon.printable import redacted_url
from antiphon.transport.client.channel import Channel

if TYPE_CHECKING:
    import ssl

    import aiohttp
    import httpx2

    from antiphon.client.oauth.oauth import OAuth

__all__ = ["channel_to", "check_times"]


def channel_to(
    target: Any,
    *,
    auth: str | OAuth | httpx2.Auth | None,
    headers: Mapping[str, str] | None,
    http: aiohttp.ClientSession | httpx2.AsyncClient | None,
    tls: ssl.SSLContext | None,
    proxy: str | Literal[False] | None,
    env: Mapping[str, str] | None,
    cwd: str | os.PathLike[str] | None,
    principal: Principal | str | None,
    connect_timeout: float,
    max_message: int,
    max_requests: int,
    shutdown_timeout: float,
    keep_alive_timeout: float,
) -> Channel:
    """Return the channel to a target, not yet open.

    A target that is a channel is returned as it is. Raises `ValueError` for a string that is not a URL and
    for an option that this kind of target does not have, and `TypeError` for any other target that is not a
    server, or for an option of a wrong type.
    """
    over_http = {"headers": headers, "auth": auth, "http": http, "tls": tls, "proxy": proxy}
    of_process = {"env": env, "cwd": cwd}
    in_memory = {"principal": principal}
    if isinstance(target, Sequence) and not isinstance(target, str | bytes):
        from antiphon.transport.client.stdio import StdioChannel

        if not target:
            raise ValueError("The command is empty: pass a list of the program and its arguments.")
        _refuse("A command that the client starts", {**over_http, **in_memory}, "Pass secrets with env={…}.")
        return StdioChannel(
            target, env=env, cwd=cwd, max_message=max_message, shutdown_timeout=shutdown_timeout
        )
    address = str(target)
    if address.startswith(("http://", "https://")):
        from antiphon.transport.client.http import HttpChannel

        _refuse("A URL", of_process, "It is for a command that the client starts.")
        _refuse("A URL", in_memory, "Say who you are with headers={…} or auth=….")
        return HttpChannel(
            address,
            http=http,
            auth=auth,
            headers=headers,
            tls=tls,
            proxy=proxy,
            connect_timeout=connect_timeout,
            max_message=max_message,
            max_requests=max_requests,
            keep_alive_timeout=keep_alive_timeout,
        )
    if isinstance(target, str):
        raise ValueError(
            f"{redacted_url(target)!r} is not an http address. To start a command, pass a list: "
            f"{list(map(redacted_url, target.split()))!r}."
        )
    if hasattr(target, "open") and hasattr(target, "request"):
        _refuse("A channel", {**over_http, **of_process, **in_memory}, "Configure the channel.")
        return cast(Channel, target)
    if hasattr(target, "engine"):
        from antiphon.transport.client.memory import connect

        _refuse("A server in this process", of_process, "It is for a command that the client starts.")
        _refuse("A server in this process", over_http, "Say who calls with principal=….")
        return connect(target.engine, _caller(principal))
    raise TypeError(f"Cannot connect to a {type(target).__name__}: pass a URL, a command or a Server.")


def _caller(principal: Principal | str | None) -> Principal:
    """Return the caller of a server in this process; raises `ValueError` for one without an id."""
    if principal is None:
        return ANONYMOUS
    caller = principal if isinstance(principal, Principal) else Principal(principal)
    if problem := problem_of(caller):
        raise ValueError(
            f"principal= is {problem}. Pass the id of the caller, or leave principal= out to be anonymous."
        )
    return caller


def _refuse(target: str, options: Mapping[str, Any], remedy: str) -> None:
    """Raise `ValueError` for an option that would do nothing."""
    for name, value in options.items():
        if value is not None and value != {}:
            raise ValueError(f"{target} does not use {name}=. {remedy}")


def check_times(**options: float) -> None:
    """Raise `ValueError` for an option that is not a number of seconds."""
    for option, seconds in options.items():
        if not seconds >= 0:
            raise ValueError(f"{option}={seconds!r}: pass a number of seconds of at least 0.")
