"""The ids of questions that a server sends in a session.

An id is sealed, so a process can tell whether it asked the question in this session, or another process with
the same secret. A response to anything else is refused, and does not reach the store that processes share.
"""

from __future__ import annotations

import secrets
from typing import Literal, TypeAlias

from antiphon.errors import SealError
from antiphon.runtime.carriers.connection import ANSWER_TIMEOUT_SECONDS
from antiphon.runtime.carriers.seal import Seal

__all__ = ["Asker", "QuestionIds"]

Asker: TypeAlias = Literal["this process", "another process"]

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

    def asker_of(self, session: str, question_id: str | int | None) -> Asker | None:
        """Return which process asked a question in the session, and may still wait for its answer.

        Returns `None` if none did, or if the time to answer is over.
        """
        if (
            not isinstance(question_id, str)
            or not question_id.startswith(_PREFIX)
            or len(question_id) > _MAX_ID_CHARACTERS
        ):
            return None
        try:
            token, bound_to = question_id.removeprefix(_PREFIX), self._bound_to + session.encode()
            origin = self._seal.open(token, use="question", bound_to=bound_to)
        except SealError:
            return None
        return "this process" if origin == self._origin else "another process"
