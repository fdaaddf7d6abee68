"""Chooses the channel to a server: for a URL, for a command, or for a server in this process."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from antiphon.transport.client.channel import Channel

if TYPE_CHECKING:
    import httpx2

__all__ = ["channel_to"]


def channel_to(
    target: Any,
    *,
    auth: httpx2.Auth | None,
    headers: Mapping[str, str] | None,
    http: httpx2.AsyncClient | None,
    env: Mapping[str, str] | None,
    cwd: str | os.PathLike[str] | None,
    connect_timeout: float,
    max_message: int,
    max_requests: int,
    shutdown_timeout: float,
    keep_alive_timeout: float,
) -> Channel:
    """Return the channel to a target, not yet open. Options of other kinds of channels are ignored.

    A target that is a channel is returned as it is. Raises `ValueError` for a string that is not a URL, and
    `TypeError` for any other target that is not a server.
    """
    if isinstance(target, Sequence) and not isinstance(target, str | bytes):
        from antiphon.transport.client.stdio import StdioChannel

        if not target:
            raise ValueError("The command is empty: pass a list of the program and its arguments.")
        return StdioChannel(
            target, env=env, cwd=cwd, max_message=max_message, shutdown_timeout=shutdown_timeout
        )
    address = str(target)
    if address.startswith(("http://", "https://")):
        from antiphon.transport.client.http import HttpChannel

        return HttpChannel(
            target,
            http=http,
            auth=auth,
            headers=headers,
            connect_timeout=connect_timeout,
            max_message=max_message,
            max_requests=max_requests,
            keep_alive_timeout=keep_alive_timeout,
        )
    if isinstance(target, str):
        raise ValueError(
            f"{target!r} is not an http address. To start a command, pass a list: {target.split()!r}."
        )
    if hasattr(target, "open") and hasattr(target, "request"):
        return cast(Channel, target)
    if hasattr(target, "engine"):
        from antiphon.transport.client.memory import connect

        return connect(target.engine)
    raise TypeError(f"Cannot connect to a {type(target).__name__}: pass a URL, a command or a Server.")
