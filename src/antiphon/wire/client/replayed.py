"""Compares a request with a recorded one, and gives recorded messages the ids of the requests made now.

Knows which parts of a message belong to one connection: its ids, its metadata, and how a client introduces
itself. It knows no file and no channel.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET

from antiphon.model.request import RequestId
from antiphon.wire import jsonrpc
from antiphon.wire.jsonrpc import Frame
from antiphon.wire.server.v2026_07_28 import SUBSCRIPTION_ID

__all__ = ["comparable_params", "is_same_reply", "is_same_request", "owner_of", "renumbered"]

_GREETINGS = ("initialize", "server/discover")
"""Requests that differ between clients: they are compared by their method alone."""


def is_same_request(recorded: Frame, made: Frame) -> bool:
    """Return whether a request is the recorded one, made again."""
    if recorded.method != made.method:
        return False
    return recorded.method in _GREETINGS or comparable_params(recorded) == comparable_params(made)


def comparable_params(frame: Frame) -> dict[str, Any]:
    """Return the parameters of a request without its metadata, which differ between clients."""
    params = {} if frame.params is UNSET else frame.params
    return {name: value for name, value in params.items() if name != "_meta"}


def is_same_reply(recorded: Frame, made: Frame) -> bool:
    """Return whether an answer to a question of the server is the recorded one. Errors are not compared."""
    if recorded.error is not UNSET or made.error is not UNSET:
        return recorded.error is not UNSET and made.error is not UNSET
    return bool(_comparable_result(recorded) == _comparable_result(made))


def owner_of(frame: Frame) -> RequestId | None:
    """Return the id of the request that a message of the server names; `None` if it names none."""
    if frame.method is UNSET:
        return frame.request_id
    if frame.params is UNSET:
        return None
    found = frame.meta.get(SUBSCRIPTION_ID, frame.params.get("progressToken"))
    return found if isinstance(found, str | int) else None


def renumbered(frame: Frame, recorded: RequestId | None, current: RequestId | None) -> Frame:
    """Return a message of the server with the id that the request has now, in place of the recorded one."""
    if recorded == current:
        return frame
    if frame.method is UNSET:
        return msgspec.structs.replace(frame, id=current)
    if frame.params is UNSET:
        return frame
    params = dict(frame.params)
    if params.get("progressToken") == recorded:
        params["progressToken"] = current
    if frame.meta.get(SUBSCRIPTION_ID) == recorded:
        params["_meta"] = {**frame.meta, SUBSCRIPTION_ID: current}
    return msgspec.structs.replace(frame, raw=msgspec.Raw(jsonrpc.encode(params)))


def _comparable_result(frame: Frame) -> Any:
    result = frame.result
    if not isinstance(result, dict):
        return result
    return {name: value for name, value in result.items() if name != "_meta"}
