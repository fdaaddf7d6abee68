"""Makes the requests of a call with questions one by one, as a client would."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.support.speakers import Modern, Speaker

EVERYTHING: Mapping[str, Any] = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}


def accept(**content: Any) -> dict[str, Any]:
    """Return a response that accepts a form with these values."""
    return {"action": "accept", "content": content}


async def once(
    speaker: Speaker,
    tool: str,
    arguments: Mapping[str, Any] | None = None,
    *,
    answers: Mapping[str, Any] | None = None,
    state: str | None = None,
    id: Any = 1,
) -> dict[str, Any]:
    """Make one request of a call, and return the response."""
    params: dict[str, Any] = {"name": tool, "arguments": dict(arguments or {})}
    if answers is not None:
        params["inputResponses"] = dict(answers)
    if state is not None:
        params["requestState"] = state
    return (await speaker.ask("tools/call", params, id=id)).frame


async def drive(
    speaker: Speaker,
    tool: str,
    arguments: Mapping[str, Any] | None,
    answers: Mapping[str, Any],
    most: int = 50,
) -> tuple[dict[str, Any], list[list[str]]]:
    """Make all requests of a call; return the last result, and the keys of the questions before it."""
    asked: list[list[str]] = []
    frame = await once(speaker, tool, arguments)
    for number in range(2, most):
        result: dict[str, Any] = frame["result"]
        if result["resultType"] == "complete":
            return result, asked
        keys = list(result.get("inputRequests", {}))
        asked.append(keys)
        given = {key: answers[key] for key in keys}
        frame = await once(
            speaker, tool, arguments, answers=given or None, state=result.get("requestState"), id=number
        )
    raise AssertionError(f"still asking after {most} rounds: {asked[-1]}")


class Able(Modern):
    """A client of 2026-07-28 that can answer everything."""

    capabilities = EVERYTHING
