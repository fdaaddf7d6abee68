"""The ids of questions that a server sends in a session.

An id is sealed, so a process can tell whether another process with the same secret asked the question in
this session. A response to anything else is dropped, and does not reach the store that processes share.
"""

from __future__ import annotations

import secrets

from antiphon.errors import SealError
from antiphon.runtime.carriers.connection import ANSWER_TIMEOUT_SECONDS
from antiphon.runtime.carriers.seal import Seal

__all__ = ["QuestionIds"]

_PREFIX = "ask-"
_ORIGIN_BYTES = 8
_MAX_ID_CHARACTERS = 512
"""Ids are much shorter. A longer one is not opened."""


class QuestionIds:
    """Creates the ids of questions, and recognizes those of other processes."""

    def __init__(self, seal: Seal, server: str) -> None:
        self._seal = seal
        self._bound_to = b"question\0" + server.encode() + b"\0"
        self._origin = secrets.token_bytes(_ORIGIN_BYTES)

    def create(self, session: str) -> str:
        """Return the id of a new question in the session with this name."""
        bound_to = self._bound_to + session.encode()
        return _PREFIX + self._seal.seal(
            self._origin, use="question", bound_to=bound_to, lifetime=ANSWER_TIMEOUT_SECONDS
        )

    def is_of_another_process(self, session: str, question_id: str | int | None) -> bool:
        """Return whether another process asked this question in the session, and may still wait for it."""
        if (
            not self._seal.shared
            or not isinstance(question_id, str)
            or not question_id.startswith(_PREFIX)
            or len(question_id) > _MAX_ID_CHARACTERS
        ):
            return False
        try:
            token, bound_to = question_id.removeprefix(_PREFIX), self._bound_to + session.encode()
            origin = self._seal.open(token, use="question", bound_to=bound_to)
        except SealError:
            return False
        return origin != self._origin
