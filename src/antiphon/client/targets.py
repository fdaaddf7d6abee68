"""From what a user names to the channel that leads there: a URL, a command, or a server in this process."""

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
) -> Channel:
    """The channel, not yet open. What only other kinds of channel have use for is ignored.

    A channel of one's own is taken as it is. Raises `ValueError` for a string that is no URL and
    `TypeError` for what leads nowhere.
    """
    if isinstance(target, Sequence) and not isinstance(target, str | bytes):
        from antiphon.transport.client.stdio import StdioChannel

        if not target:
            raise ValueError("The command is empty: name the program and its arguments, one by one.")
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
        )
    if isinstance(target, str):
        raise ValueError(f"{target!r} is no http address; a command is a list, like {target.split()!r}.")
    if hasattr(target, "open") and hasattr(target, "request"):
        return cast(Channel, target)
    if hasattr(target, "engine"):
        from antiphon.transport.client.memory import connect

        return connect(target.engine)
    raise TypeError(f"A {type(target).__name__} leads to no server: name a URL, a command or a Server.")
