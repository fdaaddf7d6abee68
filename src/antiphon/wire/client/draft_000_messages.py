"""`DRAFT-000-messages`, as a client speaks it: the message that asks has the id of the request.

`ClientDraft000` is what both options of this draft share.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import UNSET

from antiphon.wire.client.draft_keyless import Asked, ClientKeyless
from antiphon.wire.jsonrpc import Frame
from antiphon.wire.questions import ELICITATION, SAMPLING
from antiphon.wire.server.draft_000_messages import STATE

__all__ = ["ClientDraft000", "ClientDraft000Messages"]


class ClientDraft000(ClientKeyless):
    """What both options of the draft share: answers stand beside the params."""

    def _answer(self, params: dict[str, Any], answers: list[Any], state: str | None) -> dict[str, Any]:
        params["_meta"] = {**params.get("_meta", {}), STATE: state}
        models = [each for each in answers if each is not None and "role" in each]
        persons = [each for each in answers if each is not None and "role" not in each]
        if len(persons) == 1 and (fields := _fields(persons[0])):
            persons = fields
        lists = (("elicitation", persons), ("sampling", models))
        return {name: self._listed(given) for name, given in lists if given}

    def _listed(self, answers: list[Any]) -> Any:
        """Return the answers of one kind as the option writes them."""
        return answers


class ClientDraft000Messages(ClientDraft000):
    """The first option: a message that asks, in place of the response, for one answer at a time."""

    asks_by = frozenset((ELICITATION, SAMPLING))

    def _asked(self, frame: Frame) -> Asked | None:
        if frame.method is UNSET:
            return None
        meta = frame.beside if isinstance(frame.beside, dict) else {}
        params = {} if frame.params is UNSET else frame.params
        return Asked([(frame.method, params)], meta, meta.get(STATE))

    def _listed(self, answers: list[Any]) -> Any:
        return answers[0] if len(answers) == 1 else answers


def _fields(response: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the fields of a form that a person accepted, as the draft prints them; none otherwise."""
    content = response.get("content")
    if response.get("action") != "accept" or not isinstance(content, Mapping):
        return []
    return [{"name": name, "value": value} for name, value in content.items()]
